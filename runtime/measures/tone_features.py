"""What is counted in one text to tell its tone, feature by feature.

In:  a text.
Out: FEATURES: for each feature what is counted, and per what (texts, sentences, tokens, …): its value over a collection is the quotient of
the two sums, so it grows neither with the length nor with the number of texts.
A scale is a difference that a reader notices; the scales were set by comparing chat, e-mail, shop, textbook and verse, not by a study.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from .text.normal_form import EMOJI, HAN, SINGLE, fold
from .text.tokens import tokens
from .text.tone_words import CASUAL, CLOSING, CONTRACTION, FIRST_PERSON, FORMAL, GREETING, PARTICLES, SECOND_PERSON

Per = Literal["text", "sentence", "token", "word", "han", "letter", "start"]

_CLOSERS = "\"'”’」』）)"
_OPENERS = "\"'“‘「『（("
_SENTENCE = re.compile(rf"[^。！？!?…\n]*?(?:[。！？!?…]+[{_CLOSERS}]*|\.+[{_CLOSERS}]*(?=\s|\Z)|\n|\Z)", re.S)
_EMOJI = re.compile(f"[{EMOJI}]|[:;]-?[)(DP]")
_SINGLE = re.compile(f"[{SINGLE}]")
_HAN = re.compile(f"[{HAN}]")
_COMMA = re.compile("[,，、]")
_OTHER_MARK = re.compile('[:：;；—–()（）“”"「」《》]')
_LENGTHENED = re.compile(r"([^\W\d_])\1{2,}")
_EXCLAMATION_END = re.compile(r"[!！]\W*\Z")
_QUESTION_END = re.compile(r"[?？]\W*\Z")
_LETTER_END = re.compile(r"[^\W_]\s*\Z")
_TRAILING = re.compile(r"…|\.\.\.|。。")


@dataclass(frozen=True)
class CountedText:
    """One text, taken apart once."""

    text: str

    @cached_property
    def folded(self) -> str:
        return fold(self.text)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        return tokens(self.text)

    @cached_property
    def sentences(self) -> list[str]:
        return [match[0].strip() for match in _SENTENCE.finditer(self.text) if tokens(match[0])]

    @cached_property
    def words(self) -> list[str]:
        """Tokens of alphabetic scripts."""
        return [token for token in self.tokens if token[0].isalpha() and not _SINGLE.match(token)]

    @cached_property
    def cased_letters(self) -> list[str]:
        return [letter for letter in self.text if letter.isupper() or letter.islower()]

    @cached_property
    def cased_starts(self) -> list[str]:
        """First letters of the sentences that begin with a letter of either case."""
        starts = [sentence.lstrip(_OPENERS)[:1] for sentence in self.sentences]
        return [start for start in starts if start.isupper() or start.islower()]

    def count(self, per: Per) -> int:
        """How many of what a feature is counted per."""
        if per == "text":
            return 1
        if per == "han":
            return sum(bool(_HAN.match(token)) for token in self.tokens)
        return len(
            {"sentence": self.sentences, "token": self.tokens, "word": self.words, "letter": self.cased_letters, "start": self.cased_starts}[per]
        )

    def in_words(self, wanted: frozenset[str]) -> int:
        return sum(token in wanted for token in self.tokens)

    def in_sentences(self, pattern: re.Pattern[str]) -> int:
        return sum(bool(pattern.search(sentence)) for sentence in self.sentences)


@dataclass(frozen=True)
class Feature:
    """One number of a tone: times · Σ count / Σ per."""

    meaning: str
    scale: float
    """a difference that a reader notices; distances count in it"""
    per: Per
    count: Callable[[CountedText], float]
    times: float = 1.0
    is_logarithm: bool = False
    """take log2 of the quotient"""


def _found(pattern: re.Pattern[str]) -> Callable[[CountedText], int]:
    return lambda text: len(pattern.findall(text.text))


FEATURES: dict[str, Feature] = {
    "sentence_length": Feature("log2 of the mean number of tokens in a sentence", 0.5, "sentence", lambda t: len(t.tokens), is_logarithm=True),
    "word_length": Feature("mean letters of a word", 0.5, "word", lambda t: sum(map(len, t.words))),
    "exclamations": Feature("share of sentences that end in !", 0.15, "sentence", lambda t: t.in_sentences(_EXCLAMATION_END)),
    "questions": Feature("share of sentences that end in ?", 0.15, "sentence", lambda t: t.in_sentences(_QUESTION_END)),
    "trailing_off": Feature("share of sentences with … or ...", 0.1, "sentence", lambda t: t.in_sentences(_TRAILING)),
    "open_ends": Feature("share of texts that end in a letter or digit", 0.3, "text", lambda t: bool(_LETTER_END.search(t.text))),
    "commas": Feature("commas in 100 tokens", 3.0, "token", _found(_COMMA), 100),
    "other_marks": Feature("colons, semicolons, dashes, brackets, quotes in 100 tokens", 3.0, "token", _found(_OTHER_MARK), 100),
    "emoji": Feature("emoji and smileys in 100 tokens", 2.0, "token", _found(_EMOJI), 100),
    "capitals": Feature("share of letters that are capitals", 0.04, "letter", lambda t: sum(letter.isupper() for letter in t.cased_letters)),
    "small_starts": Feature("share of sentences that begin with a small letter", 0.3, "start", lambda t: sum(s.islower() for s in t.cased_starts)),
    "contractions": Feature("don't, it's, gonna in 100 words", 2.0, "word", lambda t: len(CONTRACTION.findall(t.folded)), 100),
    "lengthened": Feature("words like soooo and 哈哈哈 in 100 tokens", 1.0, "token", _found(_LENGTHENED), 100),
    "greetings": Feature("share of texts that open with a greeting", 0.2, "text", lambda t: bool(GREETING.match(t.folded))),
    "closings": Feature("share of texts that end in thanks or a farewell", 0.2, "text", lambda t: bool(CLOSING.search(t.folded))),
    "first_person": Feature("I, we, our in 100 tokens", 2.5, "token", lambda t: t.in_words(FIRST_PERSON), 100),
    "second_person": Feature("you, your in 100 tokens", 2.5, "token", lambda t: t.in_words(SECOND_PERSON), 100),
    "formal": Feature("polite and formal words in 100 tokens", 1.5, "token", lambda t: t.in_words(FORMAL), 100),
    "casual": Feature("casual words in 100 tokens", 1.5, "token", lambda t: t.in_words(CASUAL), 100),
    "particles": Feature("吧呢啊哦 and the like in 100 Han characters", 2.0, "han", lambda t: t.in_words(PARTICLES), 100),
}
