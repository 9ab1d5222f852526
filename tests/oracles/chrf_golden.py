"""Make tests/cases/measures/chrf_golden.json: answers, references, and the score that sacrebleu gives them.

    python tests/oracles/chrf_golden.py

Needs sacrebleu (extra `oracle`). The texts are the shop's answers, each against another one, and texts that break n-gram counting.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import sacrebleu

CASES = Path(__file__).parents[1] / "cases"
TARGET = CASES / "measures" / "chrf_golden.json"
ODD = (
    "", " ", "a", "ab", "abcdef", "abcdefg", "abcdefgabcdefg", "aaaaaaaaaaaa", "A b C d E f", "one\ttwo\nthree", "\u3000全角\u3000空格", "你好",
    "你好，世界！",
    "您好，世界。", "😂", "😂😂👍🏽", "👨‍👩‍👧 family", "naïve café", "nai\u0308ve cafe\u0301", "ﬁne", "10:20到18:40", "Straße", "STRASSE",
    "\u200bzero\u200b", "مرحبا بالعالم", "안녕하세요", "नमस्ते",
)  # fmt: skip


def shop_answers() -> list[str]:
    lines = (CASES / "data" / "customer_service_shop.jsonl").read_text(encoding="utf-8").split("\n")
    answers = dict.fromkeys(json.loads(line)["messages"][-1]["content"] for line in lines if line)
    return list(answers)


def cases() -> list[tuple[str, list[str]]]:
    shop = shop_answers()
    pairs = [(answer, [other]) for answer, other in zip(shop, [*shop[1:], shop[0]], strict=True)]
    pairs += [(answer, [answer.lower(), answer.replace(" ", "")]) for answer in shop[:6]]
    pairs += [(answer, [reference]) for answer, reference in product(ODD[:9], repeat=2)]
    pairs += [(answer, [reference]) for answer, reference in zip(ODD, [*ODD[1:], ODD[0]], strict=True)] + [(text, [text]) for text in ODD]
    pairs += [(ODD[at], [ODD[at + 1], ODD[at + 2], ODD[at]]) for at in range(0, len(ODD) - 2, 3)]
    return pairs


def main() -> None:
    rows = [[answer, references, sacrebleu.sentence_chrf(answer, references).score] for answer, references in cases()]
    TARGET.parent.mkdir(exist_ok=True)
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    TARGET.write_text(f'{{"sacrebleu": "{sacrebleu.__version__}", "cases": [\n{body}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
