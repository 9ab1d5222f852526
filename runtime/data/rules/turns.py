"""The turns of many conversations side by side, and what the rules have decided about each.

In:  a batch of conversations.
Out: Turns: texts, roles, owners and counts in arrays; Outcome for each conversation.
An objection costs the answer it concerns, not the whole conversation: one advertisement in a long chat leaves the rest to be
learned. Only when nothing is left to learn is the conversation dropped, and the last objection is its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...message import Conversation, Message
from ..records import excerpt, join_turns
from ..text.words import WordFinder
from .batch import SAMPLE_ONE_IN, FoldedBatch, TextBatch

_ROLE_MARKS = {"user": 1, "assistant": 2, "system": 3, "tool": 4}
_LONG_TURN_CHARS = 400


@dataclass(frozen=True)
class Decision:
    """One rule's finding on one conversation."""

    rule: str
    action: str
    """dropped | turn_removed | turn_not_learned | redacted"""
    detail: str
    excerpt: str


@dataclass(slots=True)
class Outcome:
    """What became of one conversation."""

    conversation: Conversation | None
    """None: dropped"""
    decisions: tuple[Decision, ...] = ()
    key: int = 0
    """64-bit hash of the folded text, for duplicates and for the held-out choice"""

    def drop(self, rule: str, detail: str, text: str) -> None:
        """Record the first objection; later rules do not see the conversation."""
        self.conversation = None
        self.add(Decision(rule, "dropped", detail, excerpt(text)))

    def add(self, decision: Decision) -> None:
        self.decisions = (*self.decisions, decision)


class Turns:
    """The turns of a batch, and what became of each."""

    def __init__(self, conversations: Sequence[Conversation], words: WordFinder) -> None:
        self._conversations = conversations
        self.outcomes = list(map(Outcome, conversations))
        messages = [message for conversation in conversations for message in conversation.messages]
        self.texts = [message.text for message in messages]
        self.roles = [message.role for message in messages]
        self.batch = TextBatch(self.texts)
        self.words = words.find(self.batch.joined, self.batch.codes)
        """positions by word: of the pattern rules, control tokens and links"""
        counts = [len(conversation.messages) for conversation in conversations]
        self.first_turn = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        """[conversations + 1]"""
        self.owner = np.repeat(np.arange(len(conversations)), counts)
        self._marks = np.fromiter(map(_ROLE_MARKS.__getitem__, self.roles), np.uint8, len(messages))
        self.is_answer = self._marks == _ROLE_MARKS["assistant"]
        noted = [turn for turn, message in enumerate(messages) if message.metadata]
        self.is_note = self._is_among(turn for turn in noted if "note" in messages[turn].metadata)
        self._is_learned = self.is_answer & ~self._is_among(turn for turn in noted if "train" in messages[turn].metadata)
        """answers that are still to be learned"""
        self._learned_left = np.bincount(self.owner[self._is_learned], minlength=len(conversations)).tolist()
        self._removed: set[int] = set()
        self._changed: set[int] = set()

    @cached_property
    def folded(self) -> FoldedBatch:
        return FoldedBatch(self.batch, self._marks, self._marks == _ROLE_MARKS["system"])

    def _is_among(self, turns: Iterable[int]) -> np.ndarray:
        """turns -> [T] bool"""
        is_among = np.zeros(len(self.texts), bool)
        is_among[list(turns)] = True
        return is_among

    def is_alive(self, number: int) -> bool:
        return self.outcomes[number].conversation is not None

    def alive(self) -> np.ndarray:
        """[k] numbers of the conversations that are not dropped"""
        return np.flatnonzero(np.fromiter((outcome.conversation is not None for outcome in self.outcomes), bool, len(self.outcomes)))

    def without_answer(self) -> list[int]:
        """Conversations in which there is nothing to learn from the start."""
        return [number for number, left in enumerate(self._learned_left) if left == 0]

    def drop(self, turn: int, rule: str, detail: str) -> None:
        """Drop the conversation a turn belongs to, unless it is dropped already."""
        number = int(self.owner[turn])
        if self.is_alive(number):
            self.outcomes[number].drop(rule, f"turn {self._place(turn)} {detail}", self.texts[turn])

    def take_out(self, turn: int, rule: str, detail: str) -> None:
        """Leave a turn out; the answers to it are left out as well when nothing else was asked."""
        if turn in self._removed:
            return
        answers = [turn] if self.is_answer[turn] else [] if self._is_asked_without(turn) else self._answers_to(turn)
        for gone in dict.fromkeys((turn, *answers)):
            self._remove(gone, turn, rule, detail)

    def _remove(self, turn: int, cause: int, rule: str, detail: str) -> None:
        if turn in self._removed:
            return
        self._removed.add(turn)
        why = detail if turn == cause else f"answers turn {self._place(cause)}, which {detail}"
        self._unlearn(turn, rule, why, "turn_removed")

    def unlearn(self, turn: int, rule: str, detail: str) -> None:
        """Do not learn an answer, or the answers to a turn that was asked; the words stay as context."""
        for answer in [turn] if self.is_answer[turn] else self._answers_to(turn):
            if self._is_learned[answer]:
                self._unlearn(answer, rule, detail if answer == turn else f"answers turn {self._place(turn)}, which {detail}", "turn_not_learned")

    def _unlearn(self, turn: int, rule: str, detail: str, action: str) -> None:
        """Record it; a conversation of which nothing is left to learn is dropped for this reason."""
        number = int(self.owner[turn])
        if not self.is_alive(number):
            return
        self._changed.add(number)
        if self._is_learned[turn]:
            self._is_learned[turn] = False
            self._learned_left[number] -= 1
            if self._learned_left[number] == 0:
                self.outcomes[number].drop(rule, f"turn {self._place(turn)} {detail}", self.texts[turn])
                return
        self.outcomes[number].add(Decision(rule, action, f"turn {self._place(turn)} {detail}", excerpt(self.texts[turn])))

    def _place(self, turn: int) -> int:
        """A turn's number in its conversation, from 1."""
        return turn - int(self.first_turn[self.owner[turn]]) + 1

    def _is_asked_without(self, turn: int) -> bool:
        """Whether the exchange has another turn that was asked and stays."""
        number = self.owner[turn]
        around = [step for step in (turn - 1, turn + 1) if 0 <= step < len(self.texts) and self.owner[step] == number]
        return any(self.roles[step] == "user" and step not in self._removed for step in around)

    def _answers_to(self, turn: int) -> list[int]:
        """The answers between this turn and the next that is asked after them."""
        answers: list[int] = []
        for step in range(turn + 1, int(self.first_turn[self.owner[turn] + 1])):
            if self.is_answer[step]:
                answers.append(step)
            elif answers and self.roles[step] == "user":
                break
        return answers

    def settle(self) -> None:
        """Write what was taken out and what is not learned into the conversations that are kept."""
        for number in sorted(self._changed):
            if not self.is_alive(number):
                continue
            messages = []
            for turn in range(int(self.first_turn[number]), int(self.first_turn[number + 1])):
                message = self._conversations[number].messages[turn - int(self.first_turn[number])]
                if turn not in self._removed:
                    is_marked = self.is_answer[turn] and not self._is_learned[turn]
                    messages.append(Message(message.role, message.text, {**message.metadata, "train": False}) if is_marked else message)
            self.outcomes[number].conversation = replace(self._conversations[number], messages=join_turns(messages))

    def with_words(self, words: Iterable[str]) -> list[int]:
        """Turns that hold one of these words, of which the finder knows all."""
        positions = [at for word in words for at in self.words.get(word.lower(), ())]
        return self.batch.turns_at(positions) if positions else []

    def opening(self, number: int) -> str:
        """The beginning of a conversation, for excerpts."""
        return " | ".join(self.texts[self.first_turn[number] : self.first_turn[number + 1]][:3])

    def answer(self, number: int) -> str:
        turns = range(int(self.first_turn[number]), int(self.first_turn[number + 1]))
        return next((self.texts[turn] for turn in turns if self.is_answer[turn]), "")

    def suspected_repeats(self, share: float, min_chars: int) -> list[int]:
        """Turns whose sampled shingles repeat at least half as much as `share`, or that are too small a sample to tell."""
        folded = self.folded
        total = np.diff(np.searchsorted(folded.sampled, folded.turn_bounds))
        hashes = folded.sampled_shingles
        is_tested = self.batch.lengths >= min_chars
        # A quarter of a long turn's sample is enough to suspect it, and so are 18 bits of a hash.
        is_used = np.repeat(is_tested & (self.batch.lengths < _LONG_TURN_CHARS), total)
        is_used |= np.repeat(is_tested, total) & (hashes & np.uint32(4 * SAMPLE_ONE_IN - 1) == 0)
        turn_of = np.compress(is_used, np.repeat(np.arange(len(self.texts), dtype=np.uint32), total))
        hashes = np.compress(is_used, hashes)
        total = np.bincount(turn_of, minlength=len(self.texts))
        keys = np.sort(turn_of << np.uint32(18) | hashes >> np.uint32(14))
        repeats = np.bincount(keys[1:][keys[1:] == keys[:-1]] >> np.uint32(18), minlength=len(self.texts))
        return np.flatnonzero(is_tested & ((total < 8) | (repeats > 0.5 * share * total))).tolist()
