"""Is the new version better, and has it forgotten nothing? Measure two models on the same things and judge.

In:  the weights before and after, the held-out samples, the scenario's test conversations, the base-ability questions.
Out: Scores of each, and a Judgement: promote, warn or keep the old version, with reasons.
The merged file itself is measured, not the adapter, because a merge can lose what was learned.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..engine.decode import Decoder
from ..engine.dialogue import Dialogue
from ..engine.engine import Engine, EngineSource
from ..engine.forward import ForwardSet
from ..engine.packing import Tokens
from ..versions.record import OpenedVersion, Verdict
from . import ability
from .evaluation import Answer, EvalCase, answer_cases, entity_recall

MERGE_TOLERANCE = 0.01
"""relative rise of the held-out loss from mounted adapter to merged file that counts as nothing lost"""
RECALL_TOLERANCE = 0.02
"""fall of the entity recall that is still called equal"""


@dataclass(frozen=True)
class Scores:
    """What one model measured."""

    heldout_loss: float | None
    """mean over the held-out label tokens, in nats; None without held-out conversations"""
    answers: tuple[Answer, ...]
    ability: tuple[float, ...]
    """probability of the right choice above guessing, per question: 0 guessing, 1 certain"""

    @property
    def perplexity(self) -> float | None:
        return None if self.heldout_loss is None else math.exp(min(self.heldout_loss, 700.0))

    @property
    def entity_recall(self) -> float:
        return entity_recall(self.answers)

    @property
    def overlap(self) -> float:
        return sum(a.overlap for a in self.answers) / len(self.answers) if self.answers else 0.0

    def as_json(self) -> dict:
        mean_ability = sum(self.ability) / len(self.ability) if self.ability else None
        return {
            "heldout_loss": self.heldout_loss, "perplexity": self.perplexity, "entity_recall": self.entity_recall, "overlap": self.overlap,
            "ability": mean_ability, "answers": [a.as_json() for a in self.answers],
        }  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """The verdict on a version, with its reasons in sentences."""

    verdict: Verdict
    reasons: tuple[str, ...]
    before: Scores
    after: Scores

    def scores(self) -> dict[str, float]:
        """The numbers that a version's record keeps."""
        pairs = {"heldout_loss": self.after.heldout_loss, "heldout_loss_before": self.before.heldout_loss,
                 "entity_recall": self.after.entity_recall, "entity_recall_before": self.before.entity_recall}  # fmt: skip
        return {name: round(value, 6) for name, value in pairs.items() if value is not None}


@dataclass(frozen=True)
class TestSet:
    """What both models are measured on."""

    __test__ = False  # the name is no invitation to pytest

    heldout: Sequence[Tokens]
    cases: tuple[EvalCase, ...]
    questions: tuple[ability.Question, ...]


class Measurement:
    """One open model, measured part by part: whoever needs only the loss does not wait for the answers."""

    def __init__(self, engine: Engine, dialogue: Dialogue, tests: TestSet, say: Callable[[str], None]) -> None:
        self._engine, self._dialogue, self._tests, self._say = engine, dialogue, tests, say
        self._forwards = ForwardSet(engine)

    def heldout_loss(self) -> float | None:
        """None without held-out conversations."""
        if not self._tests.heldout:
            return None
        loss = mean_loss(self._forwards, self._tests.heldout)
        self._say(f"held-out loss {loss:.4f}")
        return loss

    def answers(self) -> tuple[Answer, ...]:
        if not self._tests.cases:
            return ()
        decoder = Decoder(self._engine, self._forwards)
        return answer_cases(self._tests.cases, lambda messages: self._dialogue.answer(decoder, messages))

    def ability(self) -> tuple[float, ...]:
        if not self._tests.questions:
            return ()
        return tuple(ability.score(self._forwards, self._dialogue.tokenizer, self._dialogue.chat, self._tests.questions))

    def scores(self) -> Scores:
        """All parts."""
        return Scores(self.heldout_loss(), self.answers(), self.ability())


@dataclass(frozen=True)
class Examiner:
    """Measures models on one test set, each opened once."""

    engines: EngineSource
    dialogue: Dialogue
    tests: TestSet
    say: Callable[[str], None]
    """hears of progress"""

    @contextlib.contextmanager
    def opened(self, model: OpenedVersion) -> Iterator[Measurement]:
        """Only one may be open at a time."""
        with self.engines.open(model.model, model.adapter) as engine:
            yield Measurement(engine, self.dialogue, self.tests, self.say)

    def scores(self, model: OpenedVersion) -> Scores:
        """All of one model's scores."""
        self.say(f"measuring {model.id}")
        with self.opened(model) as measurement:
            return measurement.scores()


def mean_loss(forwards: ForwardSet, samples: Sequence[Tokens]) -> float:
    """Summed loss over label tokens, in nats per token."""
    losses = forwards.packed_losses(samples)
    labels = sum(len(part) for part in losses)
    return float(sum(part.sum(dtype="float64") for part in losses)) / labels


def judge(before: Scores, after: Scores, mounted: Scores | None) -> Judgement:
    """Compare. mounted: the scores with the adapter beside the weights, before the merge; None when nothing was merged."""
    worse, doubts, good = [], [], []
    _judge_loss(before, after, worse, doubts, good)
    if mounted is not None:
        comparison = compare_merge(mounted, after)
        (good if comparison.kept else worse).append(str(comparison))
    if any(a.found or a.missed for a in after.answers):
        change = after.entity_recall - before.entity_recall
        text = f"entity recall {before.entity_recall:.2f} → {after.entity_recall:.2f}"
        (worse if change < -RECALL_TOLERANCE else good).append(text)
    if before.ability and after.ability:
        _judge_ability(before, after, worse, doubts, good)
    verdict: Verdict = "keep" if worse else "warn" if doubts else "promote"
    return Judgement(verdict, tuple([*worse, *doubts, *good]), before, after)


def _judge_loss(before: Scores, after: Scores, worse: list[str], doubts: list[str], good: list[str]) -> None:
    if after.heldout_loss is None or before.heldout_loss is None:
        doubts.append("too few conversations to hold some back: the loss on unseen text is unknown")
        return
    text = f"held-out perplexity {before.perplexity:.2f} → {after.perplexity:.2f}"
    (good if after.heldout_loss < before.heldout_loss else worse).append(text)


@dataclass(frozen=True)
class MergeComparison:
    """What a merge did to what the adapter had learned."""

    kept: bool
    found: tuple[str, ...]
    """what was compared, in words"""

    def __str__(self) -> str:
        found = ", ".join(self.found) or "nothing was held back to measure it with"
        return f"the merge {'kept' if self.kept else 'lost'} what was learned: {found}"


def compare_merge(mounted: Scores, merged: Scores) -> MergeComparison:
    """Held-out loss and, where both have them, the answers of the merged file against those with the adapter mounted."""
    found, kept = [], True
    if mounted.heldout_loss is not None and merged.heldout_loss is not None:
        found.append(f"held-out loss {mounted.heldout_loss:.4f} mounted, {merged.heldout_loss:.4f} merged")
        kept = merged.heldout_loss <= mounted.heldout_loss * (1 + MERGE_TOLERANCE)
    if mounted.answers and merged.answers:
        same = sum(a.text == b.text for a, b in zip(mounted.answers, merged.answers))
        found.append(f"{same} of {len(mounted.answers)} answers unchanged")
        kept = kept and merged.entity_recall >= mounted.entity_recall - RECALL_TOLERANCE
    return MergeComparison(kept, tuple(found))


def _judge_ability(before: Scores, after: Scores, worse: list[str], doubts: list[str], good: list[str]) -> None:
    result = ability.paired_test(before.ability, after.ability)
    {"none": good, "possible": doubts, "clear": worse}[ability.forgetting(result)].append(str(result))
