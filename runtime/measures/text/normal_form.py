"""One spelling for characters that mean the same, and the character classes that tell words from signs.

In:  any text.
Out: the text in one case, one width, simplified Chinese, ASCII digits, plain quotes and dashes, without invisible characters.
Accents are kept (é is not e): in many languages they tell words apart. Chinese is folded character by character, so where one traditional
character has two simplified forms by context (計畫 and 计划), the two spellings stay different.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from importlib import resources

# Written without spaces between words: every character counts by itself. Han, kana, Hangul, Thai, Lao, Tibetan, Myanmar, Khmer.
HAN = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7fb"
SINGLE = HAN + KANA + HANGUL + "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u0f40-\u0fbc\u1000-\u103f\u1050-\u108f\u1780-\u17d3"
# Vowel signs are no letters for `re`, but they stand inside words.
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u06d6-\u06ed\u0900-\u0963\u0970-\u0de5\u0df2\u0df3"
WORD_CHARACTER = rf"(?:[^\W_{SINGLE}]|[{_MARKS}])"
LETTER = rf"(?:[^\W\d_{SINGLE}]|[{_MARKS}])"
EMOJI = "\u2190-\u21ff\u2300-\u23ff\u2460-\u2bff\u3297\u3299\U0001f000-\U0001faff"

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u0640\u064b-\u065f\u0670\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U0001f3fb-\U0001f3ff\U000e0000-\U000e01ef]"
)
"""Format characters, Arabic vowel signs and lengthening, variation selectors, skin tones"""
_RAISED = re.compile("(?<=\\d)(?=[\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2089\u2150-\u2189\u2460-\u24ff])")
"""Between a digit and a raised digit or fraction, which compatibility forms would make one number: 1½ is not 11/2"""
_FOREIGN_DIGIT = re.compile("[^\\D0-9]")
_PLAIN = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u0060\u00b4\u02bc", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u300c\u300d\u300e\u300f", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043", "-"),
    **dict.fromkeys("\u0622\u0623\u0625\u0671", "\u0627"),  # alef with its signs
    **dict(zip("\u0649\u0629\u06cc\u06a9", "\u064a\u0647\u064a\u0643", strict=True)),  # yeh, heh and kaf in their other shapes
    "\u0451": "\u0435",  # Russian yo is mostly written as ye
    "\u2044": "/",
}  # fmt: skip


@lru_cache(maxsize=1)
def han_variants() -> dict[str, str]:
    """Traditional or regional character → the simplified one, from han_variants.txt."""
    text = resources.files(__name__.rpartition(".")[0]).joinpath("han_variants.txt").read_text(encoding="utf-8")
    groups = (group for line in text.split("\n") if not line.startswith("#") for group in line.split())
    return {other: group[0] for group in groups for other in group[1:]}


@lru_cache(maxsize=1)
def _translation() -> dict[int, str]:
    return {ord(character): plain for character, plain in {**_PLAIN, **han_variants()}.items()}


@lru_cache(maxsize=1024)
def fold(text: str) -> str:
    """The text in the form in which texts are compared. Folding twice changes nothing more."""
    text = _RAISED.sub(" ", _INVISIBLE.sub("", text)).translate(_translation())
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = _INVISIBLE.sub("", text).translate(_translation())
    return _FOREIGN_DIGIT.sub(lambda match: str(unicodedata.decimal(match.group())), text)
