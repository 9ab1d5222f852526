"""Find the facts that an answer must hold to be right, in question-answer pairs of the owner's own data.

In:  pairs of question and answer: the ones to mine, and all the data there is, from which common words are told from names.
Out: per pair the Facts of the answer in their order: numbers with units, times, dates, prices, addresses, quoted terms, names, codes.
Made for precision: whatever might be said otherwise (weekdays, "two of them", the first word of a sentence) is no fact, nor is what the
question says already. Common nouns ("linen box", 蓝卡) are found only in quotes; names in German are not found at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .entities import contains_entity
from .text.fact_patterns import PATTERNS, FactKind
from .text.language_guess import guess_language

MIN_SINGLE_NAME_COUNT = 2
"""a single capitalised word is a name only if it comes so often inside sentences and never in small letters"""
MAX_CAPITAL_SHARE = 0.7
"""of the words inside sentences, and of the letters; beyond it the text is a headline or a shout"""
GERMAN_SHARE = 0.1
"""of the texts whose language can be told: then only texts that are surely not German may have names"""
MAX_QUOTED_WORDS = 5
LOOK_BACK = 20
"""characters before a word that tell whether it begins a sentence"""
_NO_NAMES = frozenset(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september october "
    "november december i i'm i've i'll i'd ok okay mr mrs ms dr sir madam am pm tv usa uk eu english chinese german french spanish "
    "the a an and or but if we you our your my it he she they this that there please yes no not hello hi dear thanks thank sorry "
    "faq good morning afternoon evening night".split()
)
_SENTENCE_START = re.compile(r"(?:\A|[.!?:;。！？：；\n…•*-]|\d[.)])[\s\"'“‘(\[*_-]*\Z")
_WORD_INSIDE = re.compile(r"(?<=[a-z0-9,;] )[A-Za-z][A-Za-z'’-]*")
_SMALL_WORD = re.compile(r"(?<![A-Za-z])[a-z][a-z'’-]+")


@dataclass(frozen=True)
class Fact:
    """One thing that a right answer says."""

    kind: FactKind
    text: str
    """as it stands in the answer"""


@dataclass(frozen=True)
class _Names:
    """What the whole data says about words with a capital."""

    small: frozenset[str]
    """words that also come in small letters"""
    inside: Counter[str]
    """names and capitalised words inside sentences"""
    has_german: bool

    def possible(self, text: str) -> bool:
        """Not in German, where every noun has a capital, nor in a headline or a shout."""
        language = guess_language(text).language
        return language != "de" and (language is not None or not self.has_german) and not _is_headline(text)


def mine_facts(pairs: Sequence[tuple[str, str]], data: Iterable[tuple[str, str]] = ()) -> list[tuple[Fact, ...]]:
    """The facts of each pair's answer that its question does not say. data: further pairs of the same owner.

    Every fact is found in its own answer by entities.contains_entity.
    """
    names = _names([*pairs, *data])
    return [tuple(_facts(question, answer, names)) for question, answer in pairs]


def _names(pairs: Sequence[tuple[str, str]]) -> _Names:
    texts = [text for pair in pairs for text in pair]
    languages = Counter(guess_language(text).language for text in texts)
    has_german = languages["de"] > GERMAN_SHARE * (languages.total() - languages[None])
    names = _Names(frozenset(word for text in texts for word in _SMALL_WORD.findall(text)), Counter(), has_german)
    for text in filter(names.possible, texts):
        names.inside.update(match["fact"] for match in PATTERNS["name"].finditer(text) if not _starts_sentence(text, match.start()))
    return names


def _facts(question: str, answer: str, names: _Names) -> Iterator[Fact]:
    claimed = [False] * len(answer)
    found: list[tuple[int, Fact]] = []
    if answer.strip(" .。").isdecimal():
        found.append((0, Fact("number", answer.strip(" .。"))))
    for kind, pattern in PATTERNS.items():
        for match in pattern.finditer(answer):
            start, end = _place(match)
            if any(claimed[start:end]):
                continue
            if kind == "name":
                start = _name_start(answer, start, end, names)
            if start is None or not _is_fact(kind, answer, start, end):
                continue
            claimed[start:end] = [True] * (end - start)
            found.append((start, Fact(kind, answer[start:end])))
    seen: set[str] = set()
    for _, fact in sorted(found, key=lambda item: item[0]):
        if fact.text not in seen and contains_entity(answer, fact.text) and not contains_entity(question, fact.text):
            seen.add(fact.text)
            yield fact


def _place(match: re.Match[str]) -> tuple[int, int]:
    return next(match.span(name) for name, text in match.groupdict().items() if "fact" in name and text is not None)


def _is_fact(kind: FactKind, answer: str, start: int, end: int) -> bool:
    text = answer[start:end]
    if kind == "quoted":
        return len(text.split()) <= MAX_QUOTED_WORDS and any(letter.isalnum() for letter in text)
    if kind == "phone":
        return not re.fullmatch(r"(?:19|20)\d\d\s?-\s?(?:19|20)\d\d", text)
    if kind == "number":
        return not _is_list_number(answer, start, end)
    return True


def _is_list_number(answer: str, start: int, end: int) -> bool:
    return answer[:start].rstrip(" ").endswith("\n") and answer[end : end + 1] in (".", ")", "、")


def _is_headline(text: str) -> bool:
    words, letters = _WORD_INSIDE.findall(text), [letter for letter in text if letter.isascii() and letter.isalpha()]
    has_many_capitals = len(words) >= 4 and sum(word[0].isupper() for word in words) > MAX_CAPITAL_SHARE * len(words)
    return has_many_capitals or (len(letters) > 8 and sum(letter.isupper() for letter in letters) > MAX_CAPITAL_SHARE * len(letters))


def _starts_sentence(text: str, at: int) -> bool:
    return _SENTENCE_START.search(text[max(0, at - LOOK_BACK) : at]) is not None


def _name_start(answer: str, start: int, end: int, names: _Names) -> int | None:
    """Where the name in this stretch of capitalised words begins, or None if it is none."""
    words = answer[start:end].split(" ")
    if guess_language(answer).script == "HAN":
        return start if len(words[0]) > 1 and words[0].lower() not in _NO_NAMES else None
    if not names.possible(answer):
        return None
    while words and words[0].lower() in _NO_NAMES:
        start, words = start + len(words[0]) + 1, words[1:]
    text = " ".join(words)
    if _starts_sentence(answer, start) and text not in names.inside and answer.strip(" .") != text:
        if not words or words[0].lower() not in names.small:
            return None  # nothing tells whether it has its capital from the sentence
        start, words = start + len(words[0]) + 1, words[1:]
    if len(words) >= 2:
        return start if not any(word[0].isupper() and word.lower() in _NO_NAMES for word in words) else None
    is_name = len(words) == 1 and words[0].lower() not in names.small | _NO_NAMES
    return start if is_name and names.inside[words[0]] >= MIN_SINGLE_NAME_COUNT else None
