"""Answer the scenario's test conversations and compare with what should be in the answers.

In:  eval.jsonl (conversations that end with a reference answer, and the entities that must appear), who answers.
Out: Answer per conversation: entity recall and overlap with the reference.
Entities are compared without regard to case and width of letters; overlap is the F1 of character bigrams, which needs no words and
so works for Chinese as for English (chrF's idea, Popović 2015, at n = 2).
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..errors import UserError
from ..message import Message


@dataclass(frozen=True)
class EvalCase:
    """One test conversation."""

    messages: tuple[Message, ...]
    """up to the user's last turn"""
    reference: str
    entities: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What the model said to one of them."""

    question: str
    text: str
    reference: str
    found: tuple[str, ...]
    missed: tuple[str, ...]
    overlap: float
    """0..1"""

    def as_json(self) -> dict:
        return {
            "question": self.question, "answer": self.text, "reference": self.reference, "found": list(self.found), "missed": list(self.missed),
            "overlap": round(self.overlap, 4),
        }  # fmt: skip


def load_cases(path: Path) -> tuple[EvalCase, ...]:
    """UserError names the line that is no test conversation."""
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            messages = [Message(m["role"], m["content"]) for m in row["messages"]]
            if len(messages) < 2 or messages[-1].role != "assistant":
                raise ValueError("the last turn is not the assistant's")
            cases.append(EvalCase(tuple(messages[:-1]), messages[-1].text, tuple(row.get("entities", ()))))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path.name} line {number}", f"is no test conversation ({error})", remedy="compile the bundle again") from None
    return tuple(cases)


def answer_cases(cases: Sequence[EvalCase], say: Callable[[Sequence[Message]], str]) -> tuple[Answer, ...]:
    """Answers of `say` to all cases."""
    answers = []
    for case in cases:
        text = say(case.messages)
        folded = fold(text)
        found = tuple(e for e in case.entities if fold(e) in folded)
        missed = tuple(e for e in case.entities if fold(e) not in folded)
        answers.append(Answer(case.messages[-1].text, text, case.reference, found, missed, overlap(text, case.reference)))
    return tuple(answers)


def entity_recall(answers: Sequence[Answer]) -> float:
    """Share of all entities that appear in their answers; 0 when none is asked for."""
    found = sum(len(a.found) for a in answers)
    total = found + sum(len(a.missed) for a in answers)
    return found / total if total else 0.0


def fold(text: str) -> str:
    """For comparison: one case, one width, single blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def overlap(text: str, reference: str) -> float:
    """F1 of the character bigrams of both texts."""
    a, b = (Counter(pairwise(t)) for t in (fold(text), fold(reference)))
    shared = sum((a & b).values())
    return 2 * shared / (sum(a.values()) + sum(b.values())) if shared else 0.0
