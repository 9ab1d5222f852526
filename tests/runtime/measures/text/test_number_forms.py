"""Numbers in one form: thousands, decimals, Chinese numerals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures.text.number_forms import canonical_number, chinese_numbers_to_digits


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("1,000", "1000"), ("1.000", "1000"), ("50.000", "50000"), ("12,345,678", "12345678"), ("1.000.000", "1000000"), ("1'000", "1000"),
        ("1,000.50", "1000.5"), ("1.000,50", "1000.5"), ("62.00", "62"), ("3,5", "3.5"), ("3.14", "3.14"), ("10.20", "10.2"), ("0.125", "0.125"),
        ("0555", "0555"), ("007", "007"), ("1.2.3", "1.2.3"), ("192.168.0.1", "192.168.0.1"), ("1,2,3", "1,2,3"), ("-5", "-5"),
        ("-1,000", "-1000"), ("40", "40"),
    ],
)  # fmt: skip
def test_a_number_has_one_form_and_what_is_no_number_stays(written: str, canonical: str) -> None:
    assert canonical_number(written) == canonical


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("一百二十", "120"), ("一百二", "120"), ("一百零二", "102"), ("二百五十", "250"), ("两千零五十", "2050"), ("一万二", "12000"),
        ("三万五千六百", "35600"),
        ("1.5万", "15000"), ("3千5百", "3500"), ("3万元", "30000元"), ("一亿三千万", "130000000"), ("一千零一", "1001"), ("十二点", "12点"),
        ("十天", "10天"), ("三天", "3天"),
        ("两小时", "2小时"), ("第三", "第3"), ("二〇二六年", "2026年"), ("九二折", "92折"), ("八折", "8折"), ("百分之二十", "20%"),
        ("百分之8.5", "8.5%"), ("三", "3"), ("二十五个月", "25个月"),
    ],
)  # fmt: skip
def test_numerals_that_count_become_digits(text: str, digits: str) -> None:
    assert chinese_numbers_to_digits(text) == digits


@pytest.mark.parametrize(
    "text", ["一起来", "周三", "星期一", "万一", "千万不要", "十分好", "三思", "三四天", "几十天", "十几个", "一样", "零下", "三十四百", "你好", ""]
)
def test_numerals_that_do_not_count_stay(text: str) -> None:
    assert chinese_numbers_to_digits(text) == text


def spelled(number: int) -> str:
    """A number below 100 million in Chinese numerals, written independently: place by place, zeros only between digits."""
    if number >= 10_000:
        high, low = divmod(number, 10_000)
        return spelled(high) + "万" + (("零" if low < 1000 else "") + spelled(low) if low else "")
    text, pending_zero = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // unit % 10
        if digit:
            text += ("零" if pending_zero and text else "") + "零一二三四五六七八九"[digit] + name
        pending_zero = not digit
    return text


@given(st.integers(10, 99_999_999))
def test_every_number_that_is_spelled_out_is_read_back(number: int) -> None:
    assert chinese_numbers_to_digits(spelled(number) + "元") == f"{number}元"


@given(st.integers(0, 10**9), st.integers(0, 99))
def test_thousands_may_be_grouped_the_english_or_the_indonesian_way(whole: int, cents: int) -> None:
    english = f"{whole:,}.{cents:02d}"
    indonesian = english.translate(str.maketrans(",.", ".,"))
    assert canonical_number(english) == canonical_number(indonesian) == f"{whole}.{cents:02d}".rstrip("0").rstrip(".")
