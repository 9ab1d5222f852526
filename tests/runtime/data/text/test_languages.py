"""Characters and the scripts they belong to; the oracle is the Unicode database's own character names."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from mobilefinetuner.runtime.data.text.languages import DIGIT, SCRIPTS, SCRIPTS_OF_LANGUAGE, SPACE, class_table

NAME_OF_SCRIPT = {
    "Latin": ("LATIN", "FULLWIDTH LATIN", "MODIFIER LETTER"),
    "Han": ("CJK", "IDEOGRAPHIC", "KANGXI", "HANGZHOU"),
    "Kana": ("HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "KATAKANA-HIRAGANA"),
    "Hangul": ("HANGUL",),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_letters_of_a_script_are_named_after_it(script: str) -> None:
    names = NAME_OF_SCRIPT.get(script, (script.upper(), "GREEK COPTIC" if script == "Greek" else script.upper()))
    codes = np.flatnonzero(class_table() == SCRIPTS.index(script) + 1).tolist()
    named = [unicodedata.name(chr(code)) for code in codes if unicodedata.category(chr(code)) in ("Lu", "Ll", "Lo")]
    strange = [name for name in named if not name.startswith(names) and not name.startswith(("COPTIC", "KANA", "FEMININE", "MASCULINE"))]
    assert named and strange == []


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("Latin", "LATIN SMALL LETTER "),
        ("Cyrillic", "CYRILLIC SMALL LETTER "),
        ("Arabic", "ARABIC LETTER "),
        ("Han", "CJK UNIFIED IDEOGRAPH-"),
        ("Hangul", "HANGUL SYLLABLE "),
        ("Kana", "HIRAGANA LETTER "),
        ("Devanagari", "DEVANAGARI LETTER "),
        ("Thai", "THAI CHARACTER "),
        ("Hebrew", "HEBREW LETTER "),
    ],
)
def test_letters_named_after_a_script_are_in_it(script: str, name: str) -> None:
    wanted = [
        code for code in range(0x20, 0x10000) if unicodedata.name(chr(code), "").startswith(name) and unicodedata.category(chr(code)) in ("Ll", "Lo")
    ]
    classes = class_table()[wanted]
    missing = [chr(code) for code, found in zip(wanted, classes) if found != SCRIPTS.index(script) + 1]
    assert len(missing) <= 0.05 * len(wanted), missing


def test_white_space_and_decimal_digits_are_told_from_letters() -> None:
    assert all(class_table()[ord(character)] == SPACE for character in " \t\n\r\u00a0\u3000\u200b\ufeff")
    assert all(class_table()[ord(character)] == DIGIT for character in "09０９٣")
    assert all(class_table()[ord(character)] == 0 for character in "!。，🙂#")


def test_every_language_is_written_in_a_known_script() -> None:
    assert all(set(scripts) <= set(SCRIPTS) for scripts in SCRIPTS_OF_LANGUAGE.values())
