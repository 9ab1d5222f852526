"""Varied strings to tokenize, the same on every run.

In:  a seed and real_texts.json (pieces of real conversations, poems and technical texts).
Out: (kind, text) pairs: English, Chinese, code, emoji, whitespace, digits, byte noise, control tokens, other scripts, mixtures.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

CASES = Path(__file__).parent.parent / "cases" / "tokenizer"

ENGLISH = [
    "the",
    "quick",
    "brown",
    "fox",
    "doesn't",
    "jump",
    "over",
    "I'm",
    "you've",
    "we'll",
    "they'd",
    "she's",
    "IT'S",
    "DON'T",
    "naïve",
    "café",
    "résumé",
    "co-operate",
    "e.g.",
    "U.S.A.",
    "Mr.",
    "O'Neill",
    "said:",
    "“quote”",
    "‘single’",
    "–",
    "dash",
    "—",
    "em…",
    "semi;",
    "colon:",
    "(paren)",
    "[bracket]",
    "{brace}",
    "50%",
    "$9.99",
    "#1",
    "@home",
    "a/b",
    "x=y",
]
CHINESE = "我们周二到周日营业，十点二十到十八点四十。请问有没有蓝色亚麻布？价格是多少！「引号」《书名》、顿号；冒号：（括号）龘鱻麤"
CODE = [
    "def f(x):\n    return x ** 2  # square\n",
    'for (int i = 0; i < 10; ++i) {\n\tprintf("%d\\n", i);\n}\n',
    "SELECT * FROM t WHERE a>=3 AND b!='x';",
    '<div class="a">&nbsp;</div>',
    '{"key": [1, 2.5e-3, null, true]}',
    "#include <stdio.h>\r\n",
    "fn main() -> Result<(), Box<dyn Error>> {}",
    "a[i]+=b[j]<<3|0xFF&~mask;",
    "git commit -m 'x' && make -j8 2>&1 | tail -n +3",
    "\\begin{equation} \\frac{1}{2} \\end{equation}",
]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🇨🇳", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "✅", "1️⃣", "🫠", "♀️", "☺", "🤷🏻‍♂️"]
SPACES = [" ", "  ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u3000", "\u2003", "\u200b", "\u2028", "\x0b", "\x0c", "    ", "\ufeff", "\u0085"]
OTHER_SCRIPTS = [
    "Привет, как дела?",
    "Γειά σου Κόσμε",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "こんにちは、世界。カタカナｶﾀｶﾅ",
    "안녕하세요 세계",
    "สวัสดีชาวโลก",
    "Việt Nam đẹp lắm",
    "e\u0301te\u0301 n\u0303",
    "Straße ẞ ﬁne ﬀ",
    "İstanbul ıI",
    "ᏣᎳᎩ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛",
    "ＦＵＬＬ ｗｉｄｔｈ",
]
NUMBERS = ["0", "7", "42", "1234567890", "3.14159", "1,000,000", "-5", "1e-4", "０１２３", "½¾", "Ⅷ", "٣٤٥", "२०२४", "①②", "x²", "2024-02-29 10:20"]
CONTROL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|im_start|>user\n",
    "<repo_name>",
    "<|im_",
    "start|>",
    "<|IM_END|>",
    "<| im_end |>",
    "<empty_output>",
]


def corpus(seed: int = 20260131) -> list[tuple[str, str]]:
    """About 2,600 distinct strings."""
    rng = random.Random(seed)
    real = json.loads((CASES / "real_texts.json").read_text(encoding="utf-8"))
    pairs = [("real", text) for text in real]
    pairs += [("empty", "")]
    for kind, make in _MAKERS.items():
        pairs += [(kind, make(rng)) for _ in range(240)]
    seen: dict[str, str] = {}
    for kind, text in pairs:
        seen.setdefault(text, kind)
    return [(kind, text) for text, kind in seen.items()]


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(ENGLISH, k=rng.randint(1, 14)))


def _chinese(rng: random.Random) -> str:
    return "".join(rng.choices(CHINESE, k=rng.randint(1, 24)))


def _code(rng: random.Random) -> str:
    return rng.choice(["", "\n", "\n\n", "    "]).join(rng.choices(CODE, k=rng.randint(1, 3)))


def _emoji(rng: random.Random) -> str:
    return rng.choice(["", " ", "a", "！"]).join(rng.choices(EMOJI, k=rng.randint(1, 5)))


def _spaces(rng: random.Random) -> str:
    return "".join(rng.choice(SPACES) + rng.choice(["", "", "a", "Word", "7", "中", "."]) for _ in range(rng.randint(1, 9)))


def _numbers(rng: random.Random) -> str:
    return rng.choice(["", " ", "a", ", "]).join(rng.choices(NUMBERS, k=rng.randint(1, 5)))


def _byte_noise(rng: random.Random) -> str:
    return rng.randbytes(rng.randint(1, 40)).decode("utf-8", "replace")


def _latin1_noise(rng: random.Random) -> str:
    return rng.randbytes(rng.randint(1, 30)).decode("latin-1")


def _control(rng: random.Random) -> str:
    return "".join(rng.choice(CONTROL) + rng.choice(["", " ", "\n", "hi", "你", "5"]) for _ in range(rng.randint(1, 6)))


def _scripts(rng: random.Random) -> str:
    text = rng.choice(OTHER_SCRIPTS)
    start = rng.randrange(len(text))
    return text[start:] + rng.choice(["", " ", "\n"]) + rng.choice(OTHER_SCRIPTS)[: rng.randint(1, 30)]


def _mixed(rng: random.Random) -> str:
    makers = [_words, _chinese, _code, _emoji, _spaces, _numbers, _scripts]
    return "".join(rng.choice(makers)(rng)[: rng.randint(1, 20)] for _ in range(rng.randint(2, 6)))


_MAKERS = {
    "english": _words,
    "chinese": _chinese,
    "code": _code,
    "emoji": _emoji,
    "whitespace": _spaces,
    "numbers": _numbers,
    "byte noise": _byte_noise,
    "latin-1 noise": _latin1_noise,
    "control": _control,
    "scripts": _scripts,
    "mixed": _mixed,
}
