"""Which language a text is in, by its script and, in the Latin alphabet, by its most frequent short words.

In:  any text of at least a few words.
Out: LanguageGuess: the script most of it is in, and the language where that is sure enough.
Told apart: en, de, id, es, fr, pt, it, nl, sv, pl, tr in Latin letters; zh, ja, ko, ru, ar by script. Names, numbers and single words have no
language here, nor has Japanese without kana. Malay reads as Indonesian, Bulgarian and short Ukrainian as Russian. Code is left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache

from .normal_form import HAN, HANGUL, KANA, SINGLE
from .stop_words import STOP_WORDS

LANGUAGES = (*STOP_WORDS, "zh", "ja", "ko", "ru", "ar")
"""the codes that a guess can name"""

MIN_EVIDENCE = 1.9
"""about two frequent words that no other language has"""
MIN_EVIDENCE_SHARE = 0.12
"""of all words: below this a few short words are chance"""
MIN_LEAD = 1.25
"""times the evidence of the second language"""
MIN_KANA_SHARE = 0.08
"""of Japanese characters; a Chinese text that quotes a の stays Chinese"""
MIN_CHINESE_CHARACTERS = 8
"""fewer Han characters without a sign of Chinese may be Japanese as well"""

_SIGNS = {
    "de": "ßäöü", "es": "ñ", "fr": "œçêèàâîûë", "pt": "ãõ", "it": "ìòù", "sv": "åäö", "pl": "łąężźćśń", "tr": "ğışçöü",
}  # fmt: skip
_SIGN_WEIGHT = 0.5
"""of a word with a letter that marks a language"""
_CHINESE_SIGNS = frozenset("你您们們吗嗎呢吧啊哦这這哪很么麼没给給让讓说說还還她它")
_NOT_ARABIC = frozenset("پچژگٹڈڑےہھں\u06cc\u06a9")
_NOT_RUSSIAN = frozenset("іїєґўљњћђџјѓќәғқңөұүһ")
_FOREIGN_LETTER_SHARE = 0.03
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`|https?://\S+|\S+@\S+\.\S+", re.S)
_WORD = re.compile(rf"[^\W\d_{SINGLE}]+(?:['’][^\W\d_{SINGLE}]+)*")
_SINGLE = re.compile(f"[{SINGLE}]")
_UNITS_OF_WORD = 2
"""a word of an alphabet weighs as much as two characters of Han or kana, which is about the length of their words"""


@dataclass(frozen=True)
class LanguageGuess:
    """What the letters of a text say."""

    script: str
    """the first word of its letters' Unicode names, in capitals (LATIN, CYRILLIC, THAI …), HAN for Chinese and Japanese; empty without letters"""
    language: str | None
    """ISO 639-1, or None if it cannot be told"""
    units: int
    """letters of evidence: characters of scripts without spaces, twice the words of the others"""


@lru_cache(maxsize=1024)
def guess_language(text: str) -> LanguageGuess:
    """The script that most of the text is in and the language, if it can be told."""
    text = unicodedata.normalize("NFKC", _CODE.sub(" ", text))
    words = [word.lower().replace("’", "'") for word in _WORD.findall(text)]
    units = Counter[str]()
    for word in words:
        units[_script(word[0])] += _UNITS_OF_WORD
    for character in _SINGLE.findall(text):
        units[_script(character)] += 1
    if not units:
        return LanguageGuess("", None, 0)
    script = max(units, key=lambda name: (units[name], name))
    return LanguageGuess(script, _language(script, text, [word for word in words if _script(word[0]) == script]), units[script])


@lru_cache(maxsize=8192)
def _script(character: str) -> str:
    if re.match(f"[{HAN}{KANA}]", character):
        return "HAN"
    return "HANGUL" if re.match(f"[{HANGUL}]", character) else unicodedata.name(character, "OTHER").split()[0]


def _language(script: str, text: str, words: list[str]) -> str | None:
    if script == "HAN":
        return _chinese_or_japanese(text)
    if script == "HANGUL":
        return "ko"
    if script in ("ARABIC", "CYRILLIC"):
        letters = "".join(words)
        foreign = _NOT_ARABIC if script == "ARABIC" else _NOT_RUSSIAN
        is_foreign = sum(letter in foreign for letter in letters) >= _FOREIGN_LETTER_SHARE * len(letters)
        return None if is_foreign else {"ARABIC": "ar", "CYRILLIC": "ru"}[script]
    return _latin_language(text, words) if script == "LATIN" else None


def _chinese_or_japanese(text: str) -> str | None:
    kana, han = len(re.findall(f"[{KANA}]", text)), len(re.findall(f"[{HAN}]", text))
    if kana >= MIN_KANA_SHARE * (kana + han):
        return "ja"
    return "zh" if han >= MIN_CHINESE_CHARACTERS or any(character in _CHINESE_SIGNS for character in text) else None


def _latin_language(text: str, words: list[str]) -> str | None:
    evidence = defaultdict[str, float](float, {"es": len(re.findall("[¿¡]", text))})
    for word in words:
        languages = _languages_of_word().get(word, ())
        for language in languages:
            evidence[language] += 1 / len(languages)
        marked = [language for language, signs in _SIGNS.items() if any(sign in word for sign in signs)]
        for language in marked:
            evidence[language] += _SIGN_WEIGHT / len(marked)
    leaders = sorted(evidence.items(), key=lambda item: item[1], reverse=True)
    (first, most), (_, second) = [*leaders, ("", 0.0), ("", 0.0)][:2]
    is_enough = most >= MIN_EVIDENCE and most >= MIN_EVIDENCE_SHARE * len(words)
    return first if is_enough and most >= MIN_LEAD * second else None


@lru_cache(maxsize=1)
def _languages_of_word() -> dict[str, tuple[str, ...]]:
    every = {word for words in STOP_WORDS.values() for word in words}
    return {word: tuple(language for language, words in STOP_WORDS.items() if word in words) for word in every}
