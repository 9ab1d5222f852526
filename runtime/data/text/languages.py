"""Which script every character belongs to, by Unicode block, and which scripts a language is written in.

In:  code points (uint32).
Out: character classes (uint8): a script's number, DIGIT, SPACE, or OTHER.
Scripts, not languages, are told apart: that needs no model, is the same everywhere, and Latin against Han is what matters.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

OTHER, DIGIT, SPACE = 0, 250, 251

# First and last code point of each stretch of letters (Unicode 15 block names in the keys' order of use).
_SCRIPT_RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "Latin": (
        (0x41, 0x5A),
        (0x61, 0x7A),
        (0xAA, 0xAA),
        (0xBA, 0xBA),
        (0xC0, 0xD6),
        (0xD8, 0xF6),
        (0xF8, 0x2AF),
        (0x1D00, 0x1D25),
        (0x1D2C, 0x1D5C),
        (0x1D62, 0x1D65),
        (0x1D6B, 0x1D77),
        (0x1D79, 0x1DBE),
        (0x1E00, 0x1EFF),
        (0x2C60, 0x2C7F),
        (0xA720, 0xA7FF),
        (0xAB30, 0xAB5A),
        (0xAB5C, 0xAB64),
        (0xFF21, 0xFF3A),
        (0xFF41, 0xFF5A),
    ),
    "Han": ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF)),
    "Kana": ((0x3041, 0x3096), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9D)),
    "Hangul": ((0x1100, 0x11FF), (0x3131, 0x318E), (0xA960, 0xA97F), (0xAC00, 0xD7FB)),
    "Cyrillic": ((0x400, 0x481), (0x48A, 0x52F), (0x1C80, 0x1C8F), (0x2DE0, 0x2DFF), (0xA640, 0xA69F)),
    "Greek": ((0x370, 0x373), (0x376, 0x377), (0x37B, 0x37D), (0x37F, 0x37F), (0x386, 0x386), (0x388, 0x3FF), (0x1F00, 0x1FFF)),
    "Armenian": ((0x531, 0x556), (0x561, 0x587)),
    "Hebrew": ((0x591, 0x5F2), (0xFB1D, 0xFB4F)),
    "Arabic": ((0x610, 0x61A), (0x620, 0x65F), (0x66E, 0x6D3), (0x6D5, 0x6FF), (0x750, 0x77F), (0x8A0, 0x8FF), (0xFB50, 0xFDFF), (0xFE70, 0xFEFC)),
    "Devanagari": ((0x900, 0x963), (0x970, 0x97F), (0xA8E0, 0xA8FF)),
    "Bengali": ((0x980, 0x9E3),),
    "Gurmukhi": ((0xA01, 0xA5E),),
    "Gujarati": ((0xA81, 0xAE3),),
    "Tamil": ((0xB82, 0xBD7),),
    "Telugu": ((0xC00, 0xC63),),
    "Kannada": ((0xC80, 0xCE3),),
    "Malayalam": ((0xD00, 0xD63),),
    "Sinhala": ((0xD81, 0xDDF),),
    "Thai": ((0xE01, 0xE3A), (0xE40, 0xE4E)),
    "Lao": ((0xE81, 0xECD),),
    "Tibetan": ((0xF00, 0xF00), (0xF40, 0xFBC)),
    "Myanmar": ((0x1000, 0x103F), (0x1050, 0x108F)),
    "Georgian": ((0x10A0, 0x10FF), (0x1C90, 0x1CBF)),
    "Ethiopic": ((0x1200, 0x135F),),
    "Khmer": ((0x1780, 0x17D3),),
}
SCRIPTS: tuple[str, ...] = tuple(_SCRIPT_RANGES)
"""Script names; a character class is the position in this tuple plus one."""

_LATIN = "af az bs ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv ms mt nl no pl pt ro sk sl sq sv sw tl tr uz vi zu".split()
SCRIPTS_OF_LANGUAGE: dict[str, tuple[str, ...]] = {
    **{code: ("Latin",) for code in _LATIN},
    **{code: ("Cyrillic",) for code in ["be", "bg", "kk", "ky", "mk", "mn", "ru", "tg", "uk"]},
    **{code: ("Arabic",) for code in ["ar", "fa", "ps", "ur"]},
    "sr": ("Cyrillic", "Latin"),
    "zh": ("Han",),
    "ja": ("Han", "Kana"),
    "ko": ("Hangul", "Han"),
    "el": ("Greek",),
    "hy": ("Armenian",),
    "he": ("Hebrew",),
    "hi": ("Devanagari",),
    "mr": ("Devanagari",),
    "ne": ("Devanagari",),
    "bn": ("Bengali",),
    "pa": ("Gurmukhi",),
    "gu": ("Gujarati",),
    "ta": ("Tamil",),
    "te": ("Telugu",),
    "kn": ("Kannada",),
    "ml": ("Malayalam",),
    "si": ("Sinhala",),
    "th": ("Thai",),
    "lo": ("Lao",),
    "bo": ("Tibetan",),
    "my": ("Myanmar",),
    "ka": ("Georgian",),
    "am": ("Ethiopic",),
    "km": ("Khmer",),
}
"""Scripts in which a language is written (ISO 639-1)."""


@lru_cache(maxsize=1)
def class_table() -> np.ndarray:
    """uint8 [0x110000]: the class of every code point."""
    table = np.zeros(0x110000, dtype=np.uint8)
    for number, ranges in enumerate(_SCRIPT_RANGES.values(), start=1):
        for first, last in ranges:
            table[first : last + 1] = number
    for first, last in ((0x30, 0x39), (0xFF10, 0xFF19), (0x660, 0x669), (0x6F0, 0x6F9), (0x966, 0x96F)):
        table[first : last + 1] = DIGIT
    for first, last in (
        (0x09, 0x0D),
        (0x1C, 0x20),
        (0x85, 0x85),
        (0xA0, 0xA0),
        (0x1680, 0x1680),
        (0x2000, 0x200F),
        (0x2028, 0x202F),
        (0x205F, 0x2064),
        (0x2066, 0x206F),
        (0x3000, 0x3000),
        (0xFEFF, 0xFEFF),
    ):
        table[first : last + 1] = SPACE
    return table


def expected_classes(languages: tuple[str, ...]) -> list[int]:
    """The classes that are letters of one of these languages."""
    return sorted({SCRIPTS.index(script) + 1 for language in languages for script in SCRIPTS_OF_LANGUAGE[language]})
