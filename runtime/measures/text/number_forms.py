"""Write numbers one way: 1,000 and 1.000 as 1000, 一百二十 and 3万 in digits, twenty-five as 25.

In:  folded text (normal_form.fold), or one written number.
Out: the text with its Chinese numerals in digits; the canonical digits of a number.
A comma or point before exactly three digits groups thousands (Rp 50.000 is fifty thousand), any other single one is a decimal point: 3.142
is read as 3142. Both sides of a comparison are read the same way, so only texts that mix the two conventions can be confused.
"""

from __future__ import annotations

import re
from decimal import Decimal

_ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
NUMBER_WORDS: dict[str, int] = {word: value for value, word in enumerate(_ONES.split(), 1)}
TENS_WORDS: dict[str, int] = {word: 10 * n for n, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)}
"""may be followed by one..nine"""

_DIGITS = {"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_UNITS = {"十": 10, "百": 100, "千": 1000}
_LARGE = {"亿": 10**8, "万": 10**4}
_NUMERALS = "".join([*_DIGITS, *_UNITS, *_LARGE])
_RUN = re.compile(rf"(?:(?:\d+(?:\.\d+)?(?=[百千万亿]))?[{_NUMERALS}]+)+")
_PIECE = re.compile(rf"\d+(?:\.\d+)?|[{_NUMERALS}]")
_PERCENT = re.compile(rf"百分之(\d+(?:\.\d+)?|[{_NUMERALS}]+)")
MEASURES = (
    "天日号月年周岁秒分时点刻个位元块毛角折件条只张本次遍倍层楼室米克斤吨升瓦度寸尺包盒箱瓶杯份套双支台部辆家间种项款级期季页"
    "章节课题道步人口名句行字颗粒棵根片把顶座届円圆冊匹枚階歳"
)
"""Behind a single numeral these say that it counts: 三天 is 3 days, but 三思 is no number"""
_NO_COUNT_BEFORE = ("几", "数", "周", "星期", "礼拜", "十", "百", "千", "万", "亿")
_MEASURE_WORDS = ("小时", "公里", "公斤", "公尺", "星期", "礼拜", "英寸", "厘米", "毫米", "毫升", "平方", "平米", "单元")


def canonical_number(written: str) -> str:
    """ "1,000" → "1000", "62.00" → "62", "3,5" → "3.5", "0555" → "0555" (a code), "1.2.3" → "1.2.3" (a version)."""
    sign, digits = ("-", written[1:]) if written.startswith("-") else ("", written)
    groups, marks = re.split("[.,']", digits), re.findall("[.,']", digits)
    if not marks:
        return written
    whole, fraction = groups, ""
    if marks[-1] != "'" and marks.count(marks[-1]) == 1 and not (len(marks) == 1 and _is_grouped(groups)):
        whole, fraction = groups[:-1], groups[-1].rstrip("0")
    if len(whole) > 1 and not _is_grouped(whole):
        return written
    return sign + "".join(whole) + (f".{fraction}" if fraction else "")


def _is_grouped(groups: list[str]) -> bool:
    return 1 <= len(groups[0]) <= 3 and groups[0][0] != "0" and all(len(group) == 3 for group in groups[1:])


def chinese_numbers_to_digits(text: str) -> str:
    """Numerals that count something in digits: 三天 → 3天, 百分之八 → 8%, 九二折 → 92折, 二〇二六年 → 2026年; 一起, 周一, 十分 and 千万 stay.

    A text that is nothing but a numeral is always written in digits.
    """
    if len(text) and all(character in _NUMERALS for character in text):
        return _value(text) or text
    text = _PERCENT.sub(lambda match: f"{_value(match[1]) or match[1]}%", text)
    return _RUN.sub(lambda match: _counting(match, text) or match[0], text)


def _counting(match: re.Match[str], text: str) -> str | None:
    run, before, after = match[0], text[max(0, match.start() - 2) : match.start()], text[match.end() : match.end() + 2]
    if before.endswith(_NO_COUNT_BEFORE):
        return None
    if len(run) == 1:
        counts = (after[:1] in MEASURES and after[:1]) or after in _MEASURE_WORDS or before.endswith("第")
        return _value(run) if counts and run + after[:1] != "十分" else None
    if all(character in _DIGITS for character in run):
        is_spelled_digit_by_digit = len(run) >= 4 or "零" in run or "〇" in run or after[:1] == "折"
        return _value(run) if is_spelled_digit_by_digit else None
    return _value(run)


def _value(run: str) -> str | None:
    """The numeral in digits, or None if it is no number (千万, 三十四百)."""
    if all(character in _DIGITS for character in run):
        return "".join(str(_DIGITS[character]) for character in run)
    value = _number(run, 0)
    return None if value is None else f"{value.normalize():f}"


def _number(run: str, scale: int) -> Decimal | None:
    """Value of a numeral that stands behind a unit of `scale` (0: behind none)."""
    for mark, size in _LARGE.items():
        head, found, tail = run.rpartition(mark)
        if found:
            high, low = _number(head, 0), _number(tail, size)
            return high * size + low if high and low is not None else None
    return _below_ten_thousand(run, scale)


def _below_ten_thousand(run: str, scale: int) -> Decimal | None:
    total, number, is_short = Decimal(0), None, True
    pieces: list[str] = _PIECE.findall(run)
    for piece in pieces:
        if piece in _UNITS:
            if (number is None and piece != "十") or 0 < scale <= _UNITS[piece]:
                return None
            scale = _UNITS[piece]
            total, number = total + (1 if number is None else number) * scale, None
        elif piece in "零〇":
            is_short = False
        elif number is not None:
            return None
        else:
            number = Decimal(_DIGITS.get(piece, piece))
    if number is None:
        return total
    return total + number * (scale // 10 if is_short and scale >= 100 else 1)  # 一百二 is 120, 一百零二 is 102
