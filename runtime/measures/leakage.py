"""Whether a version answers general questions with the owner's data: their facts, or their training answers' words.

In:  general questions with the new version's and the base's answers; the owner's entities; the training answers.
Out: Leakage: per answer what leaked, and the share of answers in which anything did.
What the question says or the base would have said by itself is no leak: "3 days" may well be the right answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .entities import contains_entity
from .text.spans import spans
from .text.tokens import tokens

COPY_WORDS, COPY_CHARACTERS = 5, 8
"""so many words (or Han characters) in a row from a training answer are a copy"""


@dataclass(frozen=True)
class GeneralAnswer:
    """An answer to a question that has nothing to do with the owner's data."""

    question: str
    answer: str
    base_answer: str


@dataclass(frozen=True)
class Leak:
    """What of the owner's data one answer holds."""

    entities: tuple[str, ...]
    copied: tuple[str, ...]
    """tokens of the longest stretch that is made of sequences of training answers; empty if none is long enough"""

    def __bool__(self) -> bool:
        return bool(self.entities or self.copied)


@dataclass(frozen=True)
class Leakage:
    """What leaked over all answers."""

    leaks: tuple[Leak, ...]
    """one per answer, in their order"""

    @property
    def share(self) -> float:
        """Of answers with a leak."""
        return sum(map(bool, self.leaks)) / len(self.leaks)

    @property
    def entity_share(self) -> float:
        """Of answers with an entity."""
        return sum(bool(leak.entities) for leak in self.leaks) / len(self.leaks)

    @property
    def copy_share(self) -> float:
        """Of answers with copied words."""
        return sum(bool(leak.copied) for leak in self.leaks) / len(self.leaks)


def leakage(answers: Sequence[GeneralAnswer], entities: Iterable[str], training_answers: Iterable[str]) -> Leakage:
    """ValueError without an answer."""
    if not answers:
        raise ValueError("leakage needs at least one general answer")
    entities = tuple(dict.fromkeys(entities))
    trained = {span for text in set(training_answers) for span in _spans(text)}
    return Leakage(tuple(Leak(_leaked_entities(answer, entities), _copied(answer, trained)) for answer in answers))


def _leaked_entities(answer: GeneralAnswer, entities: Sequence[str]) -> tuple[str, ...]:
    found = (entity for entity in entities if contains_entity(answer.answer, entity))
    return tuple(entity for entity in found if not contains_entity(answer.question, entity) and not contains_entity(answer.base_answer, entity))


def _copied(answer: GeneralAnswer, trained: set[tuple[str, ...]]) -> tuple[str, ...]:
    own = {*_spans(answer.question), *_spans(answer.base_answer)}
    words = tokens(answer.answer)
    longest = (0, 0)
    start = None  # of the stretch that reaches up to the last span
    for at, span in enumerate(_spans(answer.answer)):
        if span not in trained or span in own:
            start = None
            continue
        start = at if start is None else start
        longest = max(longest, (start, at + len(span)), key=lambda stretch: stretch[1] - stretch[0])
    return words[slice(*longest)]


def _spans(text: str) -> list[tuple[str, ...]]:
    return spans(tokens(text), COPY_WORDS, COPY_CHARACTERS)
