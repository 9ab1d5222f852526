"""Cut a text into tokens in which one fact has one form, however it is written.

In:  any text.
Out: Tokens: words, single characters of scripts without spaces, numbers, times, dates, addresses, signs, and breaks between sentences.
A time is H:MM of any width, 10h20, 10点20分, a clock with am or pm, and H.MM beside "pukul", "jam", "kl." or "Uhr". Without such a word
10.20 is the number 10.2 that may be meant as a time: it is found where 10:20 is looked for, not the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from .normal_form import EMOJI, SINGLE, WORD_CHARACTER, fold
from .number_forms import NUMBER_WORDS, TENS_WORDS, canonical_number, chinese_numbers_to_digits

Kind = Literal["word", "character", "number", "time", "date", "address", "sign", "break"]


class Token(NamedTuple):
    """One piece of a text in its canonical form."""

    text: str
    kind: Kind
    other: str = ""
    """a second reading: the time that 10.20 can stand for, the plural that was taken off a unit"""
    is_spelled: bool = False
    """a number written as a word: "one" is often no number at all"""


TOP_LEVEL = "com|org|net|edu|gov|info|biz|app|dev|shop|store|io|ai|tv|example|test|invalid|cn|hk|tw|jp|kr|sg|id|de|ch|fr|es|nl|uk|eu|ru|br|mx|au|ca"
"""Endings of a bare host name. Those that are common English words (it, is, in, at, my, me, so, to, be) are left out: "a box.It costs" is no host"""
UNITS = "km|cm|mm|m|kg|g|mg|lb|lbs|oz|l|ml|kw|kwh|w|v|mah|ma|hz|ghz|mhz|gb|mb|tb|kb|h|hr|hrs|min|mins|sec|secs|ms|px|ft|usd|eur|gbp|rmb|cny|idr|rp"
"""Letters that may stick to a number without making it a code: 40W is 40 W, but E19, 3D, 12a and 47th are words"""
UNIT_WORDS = frozenset(UNITS.split("|"))
PERCENT_WORDS = ("percent", "pct", "prozent", "persen", "процент", "процента", "процентов")
_PERCENT_PHRASES = re.compile(r"(?<=\d)\s*(?:per cent|por ciento|pour cent)\b")
CURRENCY_WORDS = {
    **dict.fromkeys(("usd", "us$", "dollar", "dollars"), "$"), **dict.fromkeys(("eur", "euro", "euros"), "€"), "gbp": "£",
    **dict.fromkeys(("cny", "rmb", "yuan", "jpy", "yen"), "¥"), **dict.fromkeys(("rp", "idr", "rupiah"), "rp"),
}  # fmt: skip
_HAN_CURRENCIES = {"$": "美元|美金", "€": "欧元", "£": "英镑", "¥": "人民币|元(?![旦宵])|块钱|円|圆"}

_URL_CHARACTER = r"[a-z0-9\-._~:/?#@!$&'*+,;=%]"
_HOUR, _MINUTE = r"(?:[01]?\d|2[0-4])", r"[0-5]\d"
_MONTH, _DAY = r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12]\d|3[01])"
_PATTERNS: dict[str, str] = {
    "email": r"[a-z0-9][a-z0-9._%+\-]*@[a-z0-9\-]+(?:\.[a-z0-9\-]+)+",
    "url": rf"(?:https?://|www\.)[a-z0-9]{_URL_CHARACTER}*",
    "host": rf"(?:[a-z0-9][a-z0-9\-]*\.)+(?:{TOP_LEVEL})(?![a-z0-9\-])(?:[/?#]{_URL_CHARACTER}*)?",
    "date": rf"(?<![\d.])(?:19|20)\d\d(?:(?P<dash>[-/.]){_MONTH}(?P=dash){_DAY}(?!\d)|年{_MONTH}月{_DAY}[日号])",
    "half_day": rf"(?<![\d.:]){_HOUR}(?:[:.]{_MINUTE})?\s?[ap]\.?m\b",
    "time": rf"(?<![\d:.]){_HOUR}(?:[:h]{_MINUTE}|[点时]{_MINUTE}分)(?![\d:])",
    "said_time": rf"(?:(?<=pukul )|(?<=jam )|(?<=kl\. )){_HOUR}\.{_MINUTE}(?![\d.])|(?<![\d.]){_HOUR}\.{_MINUTE}(?= uhr)",
    "number": rf"(?:(?<!\d\s)(?<![\w)])-)?\d+(?:[.,']\d+)*(?=(?:{UNITS})?(?![a-z0-9]))",
    "sign": rf"us\$|[%$€£¥₹₩฿₫{EMOJI}]",
    "break": rf"[。!?;、]+|\n\s*\n|(?<=[{SINGLE}])[,\n]|[,\n](?=[{SINGLE}])",
    "word": rf"{WORD_CHARACTER}+[+#]*",
    "character": f"[{SINGLE}]",
}
_TOKEN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS.items()))
_SPACED_THOUSANDS = re.compile("(?<=\\d)[\u00a0\u202f\u2009](?=\\d{3}(?!\\d))")
_MAYBE_TIME = re.compile(rf"{_HOUR}\.{_MINUTE}")
_ONES = "|".join(word for word, value in NUMBER_WORDS.items() if value <= 9)
_COMPOUND = re.compile(rf"\b({'|'.join(TENS_WORDS)})[- ]({_ONES})\b")
_SPELLED_NUMBERS = {word: value for word, value in (NUMBER_WORDS | TENS_WORDS).items() if word != "one"}
_SPELLED = re.compile(rf"\b(?:{'|'.join(_SPELLED_NUMBERS)})\b")
_CURRENCY_BEFORE = re.compile(
    r"(us\$|[$€£¥₹₩฿₫]|\b(?:usd|eur|gbp|rmb|cny|jpy|idr|rp)\b\.?|\brp(?=\d))(?:(?=\d)|(?<!\d.)(?<!\d\s.)\s(?=\d))(\d+(?:[.,']\d+)*)"
)


@lru_cache(maxsize=1024)
def entity_tokens(text: str) -> tuple[Token, ...]:
    """The text's tokens in order."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(prepared(text)):
        for token in _canonical(match):
            after_number = bool(tokens) and tokens[-1].kind == "number"
            if after_number:
                token = _behind_number(token)
                if token.kind == "sign" or token.text in UNIT_WORDS:
                    tokens[-1] = tokens[-1]._replace(other="")  # 10.20 kg is no time
            if token.text != "%" or after_number:
                tokens.append(token)
    return tuple(tokens)


@lru_cache(maxsize=1024)
def prepared(text: str) -> str:
    """The folded text after what needs more than one token to be seen: spelled numbers, addresses with (at), currencies before their number."""
    text = chinese_numbers_to_digits(fold(_SPACED_THOUSANDS.sub(",", text)))
    text = _COMPOUND.sub(lambda match: str(TENS_WORDS[match[1]] + NUMBER_WORDS[match[2]]), text)
    text = _SPELLED.sub(lambda match: str(_SPELLED_NUMBERS[match[0]]), text)
    text = re.sub(r"\s*[\[(]\s*(?:at|@)\s*[\])]\s*", "@", text)
    if "@" in text:
        text = re.sub(r"\s*[\[(]\s*dot\s*[\])]\s*", ".", text)
        text = re.sub(r"(?<=[a-z0-9])\s*@\s*(?=[a-z0-9\-]+\.[a-z])", "@", text)
    for sign, names in _HAN_CURRENCIES.items():
        text = re.sub(rf"(?<=\d)\s*(?:{names})", sign, text)
    return _CURRENCY_BEFORE.sub(r"\2 \1 ", _PERCENT_PHRASES.sub("%", text))


def _canonical(match: re.Match[str]) -> Iterator[Token]:
    name, text = match.lastgroup, match[0]
    if name in ("email", "url", "host"):
        yield Token(re.sub(r"^(?:https?://)?(?:www\.)?", "", text).rstrip("./,;:!?'*"), "address")
    elif name == "date":
        yield Token("-".join(str(int(part)) for part in re.findall(r"\d+", text)), "date")
    elif name in ("half_day", "time", "said_time"):
        yield Token(_clock(text), "time")
    elif name == "number":
        number = canonical_number(text)
        time = _clock(text) if _MAYBE_TIME.fullmatch(text) else ""
        yield from (Token(part, "number", time) for part in number.split(",") if part)
    elif text == "one":
        yield Token("1", "number", is_spelled=True)
    else:
        yield Token(text, {"sign": "sign", "break": "break", "word": "word"}.get(name or "", "character"))  # type: ignore[arg-type]


def _clock(text: str) -> str:
    """ "6:40 p.m." → "18:40", "08h05" → "8:05"."""
    hour, minute = (*re.findall(r"\d+", text), "00")[:2]
    half = re.search("[ap](?=\\.?m)", text)
    hour = int(hour) % 12 + (12 if half[0] == "p" else 0) if half and int(hour) <= 12 else int(hour)
    return f"{hour}:{minute}"


def _behind_number(token: Token) -> Token:
    """A percent or currency word as its sign; a unit without its plural, since "5 years" are a "5-year warranty"."""
    if token.kind not in ("word", "sign"):
        return token
    if token.text in PERCENT_WORDS:
        return Token("%", "sign")
    if token.text in CURRENCY_WORDS:
        return Token(CURRENCY_WORDS[token.text], "sign")
    if len(token.text) >= 4 and token.text.isascii() and token.text.endswith("s") and not token.text.endswith("ss"):
        return token._replace(text=token.text[:-1], other=token.text)
    return token
