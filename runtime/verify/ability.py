"""Whether a version still knows what its base knew: multiple-choice questions scored by likelihood, compared in pairs.

In:  base_ability.jsonl of a bundle; a ForwardSet on some version's weights.
Out: a score per question, 0 for guessing and 1 for certainty; a paired test of two versions and its verdict.
The score is linear in the right answer's probability and not its logarithm: training makes a model surer of all it says, right or
wrong, and the logarithm calls that forgetting although the answers stay the same.
"""

# Shapes: n questions · C choices of a question

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ..bundle.chat_format import ChatFormat, EncodedConversation
from ..bundle.tokenizer import Tokenizer
from ..engine.forward import ForwardSet
from ..errors import MftError, UserError
from ..message import Message
from ..plain_data import bind

QuestionKind = Literal["arithmetic", "common_sense", "reference"]
Language = Literal["en", "zh"]
Forgetting = Literal["none", "possible", "clear"]

EXACT_MAX_PAIRS = 16
"""up to here all 2^n sign patterns are tried"""
RESAMPLES = 9999
"""random sign patterns beyond that: the p-value's own error is then at most 0.005"""
RESAMPLES_PER_CHUNK = 1000
SEED = 20240229

POSSIBLE_P_MAX = 0.05
"""up to here a drop is unlikely to be chance"""
CLEAR_P_MAX = 0.01
CLEAR_SHARE_LOST = 0.5
"""share of what the base scored above guessing; a base that only guesses has nothing that could be lost"""


@dataclass(frozen=True)
class Turn:
    """One message of a row, as it stands in the file."""

    role: Literal["system", "user", "assistant"]
    content: str

    def __post_init__(self) -> None:
        if not self.content.strip():
            raise ValueError("a message is blank")


@dataclass(frozen=True)
class Question:
    """A question with a few answers of the same form, one of which is right."""

    id: str
    kind: QuestionKind
    language: Language
    messages: tuple[Turn, ...]
    """ends with the user's question"""
    choices: tuple[str, ...]
    answer: int
    """index of the right choice"""

    def __post_init__(self) -> None:
        if not self.messages or self.messages[-1].role != "user":
            raise ValueError("the messages do not end with a user's question")
        if len(self.choices) < 2 or len(set(self.choices)) < len(self.choices):
            raise ValueError("there must be at least two choices, each different")
        if any(choice.strip() != choice or not choice for choice in self.choices):
            raise ValueError("a choice is empty or has blanks around it")
        if not 0 <= self.answer < len(self.choices):
            raise ValueError(f"answer is {self.answer}, allowed: 0 to {len(self.choices) - 1}")


@dataclass(frozen=True)
class PairedResult:
    """How the scores changed from one version to another."""

    mean_before: float
    mean_after: float
    p_value: float
    """one-sided: how often chance alone would look at least this much worse"""
    n: int
    """questions"""

    @property
    def mean_change(self) -> float:
        """Negative is worse."""
        return self.mean_after - self.mean_before

    def __str__(self) -> str:
        return f"base ability {self.mean_before:.2f} → {self.mean_after:.2f} (p = {self.p_value:.3f}, {self.n} questions)"


def load_questions(path: str | Path) -> tuple[Question, ...]:
    """The questions of a file, one JSON object a line. UserError that names the line for whatever is wrong."""
    path = Path(path)
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise UserError(str(path), f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UserError(str(path), f"is not UTF-8 at byte {error.start}", remedy="save it as UTF-8") from None
    questions: dict[str, Question] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        question = _question(line, f"{path}:{number}")
        if question.id in questions:
            raise UserError(f"{path}:{number}", f"the id {question.id!r} is there already", remedy="give each question an id of its own")
        questions[question.id] = question
    if not questions:
        raise UserError(str(path), "holds no questions", remedy="remove it, or write one JSON object a line")
    return tuple(questions.values())


def _question(line: str, where: str) -> Question:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError(where, "is not JSON", remedy="write one JSON object a line") from None
    return bind(Question, row, where)


def encode_choice(tokenizer: Tokenizer, chat: ChatFormat, question: Question, choice: str) -> EncodedConversation:
    """The question answered with `choice`; the labels are the choice's tokens and the turn's end."""
    messages = [Message(turn.role, turn.content) for turn in question.messages]  # type: ignore[arg-type]
    return chat.encode(tokenizer, [*messages, Message("assistant", choice)], label_turns=(len(messages),))


def choice_log_probabilities(forwards: ForwardSet, tokenizer: Tokenizer, chat: ChatFormat, questions: Sequence[Question]) -> list[np.ndarray]:
    """For each question log P of every choice, normalised over its choices: softmax of the summed log-likelihoods of their tokens.

    The system turn is the template's own default, so that no scenario's prompt plays a part.  →  n arrays [C] f64
    """
    answered = [encode_choice(tokenizer, chat, question, choice) for question in questions for choice in question.choices]
    likelihoods = -np.array([loss.sum(dtype=np.float64) for loss in forwards.packed_losses(answered)])
    results, at = [], 0
    for question in questions:
        values = likelihoods[at : at + len(question.choices)]
        if not np.isfinite(values).all():
            raise MftError(f"question {question.id}: the model's likelihoods are not finite")
        results.append(values - values.max() - np.log(np.exp(values - values.max()).sum()))
        at += len(question.choices)
    return results


def chance_corrected(log_probabilities: Sequence[np.ndarray], questions: Sequence[Question]) -> list[float]:
    """(P(right) − 1/C) / (1 − 1/C) per question: 1 certain and right, 0 guessing, below 0 misled (Abbott's correction for guessing)."""
    pairs = zip(log_probabilities, questions, strict=True)
    return [float((np.exp(values[question.answer]) - 1 / len(values)) / (1 - 1 / len(values))) for values, question in pairs]


def score(forwards: ForwardSet, tokenizer: Tokenizer, chat: ChatFormat, questions: Sequence[Question]) -> list[float]:
    """The chance-corrected probability of each question's right answer."""
    return chance_corrected(choice_log_probabilities(forwards, tokenizer, chat, questions), questions)


def accuracy(log_probabilities: Sequence[np.ndarray], questions: Sequence[Question]) -> float:
    """Share of the questions whose right answer is the likeliest choice."""
    return sum(int(values.argmax()) == question.answer for values, question in zip(log_probabilities, questions, strict=True)) / len(questions)


def paired_test(before: Sequence[float], after: Sequence[float]) -> PairedResult:
    """Sign-flip permutation test on d = after − before, one-sided for "worse".

    Were the versions equally able, each dᵢ would be as likely as −dᵢ: p = P(Σ sᵢ·dᵢ ≤ Σ dᵢ) over independent signs s = ±1, by
    all 2ⁿ patterns if n is small, else p = (1 + hits) / (1 + R) over R random ones with a fixed seed, which is never too small.
    Fisher, The Design of Experiments (1935), §21; Phipson and Smyth, doi:10.2202/1544-6115.1585, for the ones.
    """
    if len(before) != len(after):
        raise ValueError(f"a paired test needs as many scores before as after, not {len(before)} and {len(after)}")
    changes = np.subtract(after, before, dtype=np.float64)
    if changes.ndim != 1 or not len(changes) or not np.isfinite(changes).all():
        raise ValueError("a paired test needs finite scores and at least one pair")
    n = len(changes)
    p_value = _exact_p(changes) if n <= EXACT_MAX_PAIRS else _sampled_p(changes)
    return PairedResult(float(np.mean(before)), float(np.mean(after)), p_value, n)


def _exact_p(changes: np.ndarray) -> float:
    sums = np.zeros(1)
    for change in changes:
        sums = np.concatenate([sums + change, sums - change])
    return float((sums <= sums[0] + _tie(changes)).mean())  # sums[0] is the pattern of all plus: what was observed


def _sampled_p(changes: np.ndarray) -> float:
    generator, limit, hits = np.random.default_rng(SEED), changes.sum() + _tie(changes), 0
    for at in range(0, RESAMPLES, RESAMPLES_PER_CHUNK):
        rows = min(RESAMPLES_PER_CHUNK, RESAMPLES - at)
        signs = generator.integers(0, 2, (rows, len(changes)), dtype=np.int8) * np.int8(2) - np.int8(1)
        hits += int((signs @ changes <= limit).sum())
    return (1 + hits) / (1 + RESAMPLES)


def _tie(changes: np.ndarray) -> float:
    """Sums that differ by no more than this are equal but for rounding."""
    return float(np.abs(changes).sum()) * len(changes) * float(np.finfo(np.float64).eps)


def forgetting(result: PairedResult) -> Forgetting:
    """`possible`: worse, and unlikely by chance; `clear`: very unlikely by chance, and half of what the base knew is gone."""
    lost_much = result.mean_before > 0 and -result.mean_change >= CLEAR_SHARE_LOST * result.mean_before
    if result.p_value <= CLEAR_P_MAX and lost_much:
        return "clear"
    return "possible" if result.p_value <= POSSIBLE_P_MAX else "none"
