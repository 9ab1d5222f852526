"""Numbers and addresses that are replaced, and those that must survive. Check digits come from the standards' own examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.text.redact import REDACTIONS, chinese_id_is_valid, iban_is_valid, luhn_is_valid, redact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail me at ann.lee+x@mail.example.org.", "mail me at [email]."),
        ("写信到order@lumiere.example吧", "写信到[email]吧"),
        ("call +49 171 1234567 now", "call [phone] now"),
        ("call (555) 123-4567 now", "call [phone] now"),
        ("我的手机是13812345678，随时打", "我的手机是[phone]，随时打"),
        ("身份证11010519491231002X是我的", "身份证[id number]是我的"),
        ("card 4111 1111 1111 1111", "card [card number]"),
        ("card 4111111111111112", "card 4111111111111112"),
        ("IBAN GB82 WEST 1234 5698 7654 32 please", "IBAN [iban] please"),
        ("IBAN GB83 WEST 1234 5698 7654 32 please", "IBAN GB83 WEST 1234 5698 7654 32 please"),
        ("in 1999 I paid 12.50 for 3 of 47", "in 1999 I paid 12.50 for 3 of 47"),
        ("on 2024-03-05 10:20", "on 2024-03-05 10:20"),
        ("version 1.2.3.4", "version 1.2.3.4"),
        ("a@b", "a@b"),
    ],
)
def test_only_what_is_valid_is_replaced(text: str, expected: str) -> None:
    assert redact(text, REDACTIONS)[0] == expected


def test_only_the_named_kinds_are_replaced_and_counted() -> None:
    assert redact("a@example.org and 13812345678 and b@example.org", ["email"]) == ("[email] and 13812345678 and [email]", {"email": 2})


def test_check_digits_agree_with_the_standards_examples() -> None:
    assert luhn_is_valid("79927398713" + "000000000000"[:0]) is False  # ISO/IEC 7812's example is valid but too short for a card
    assert luhn_is_valid("4012888888881881") and not luhn_is_valid("4012888888881882")
    assert chinese_id_is_valid("11010519491231002X") and not chinese_id_is_valid("110105194912310021")
    assert iban_is_valid("DE89 3704 0044 0532 0130 00") and not iban_is_valid("DE88 3704 0044 0532 0130 00")


@given(st.text(max_size=200))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once, _ = redact(text, REDACTIONS)
    assert redact(once, REDACTIONS) == (once, {})
