"""The scenario's rules, applied to a batch of conversations.

In:  conversations in the order of the input.
Out: for each a Verdict: kept (perhaps with turns taken out or redacted) or dropped, with every decision and its evidence.
Rules look at each conversation in one fixed order and the first that objects names the reason, so counts never overlap.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Iterable, Sequence

import numpy as np

from ..message import Conversation, Message
from .batch import SAMPLE_ONE_IN, SHINGLE_CHARS, FoldedBatch, TextBatch
from .duplicates import ExactDuplicates, NearDuplicates, exact_keys, minhash
from .found import excerpt
from .languages import expected_classes
from .redact import redact
from .scenario import PatternRule, Scenario
from .words import WordFinder
from .readers.shapes import settle

_ROLE_MARKS = {"user": 1, "assistant": 2, "system": 3, "tool": 4}
_LINK = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_LINK_WORDS = ("http://", "https://", "www.")
_REDACT_DIGITS = 7
_LONG_TURN_CHARS = 400


@dataclass(frozen=True)
class Decision:
    """One rule's finding on one conversation."""

    rule: str
    action: str
    """dropped | turn_removed | redacted"""
    detail: str
    excerpt: str


@dataclass
class Verdict:
    """What became of one conversation."""

    conversation: Conversation | None
    """None: dropped"""
    decisions: list[Decision] = field(default_factory=list)
    key: int = 0
    """64-bit hash of the folded text, for duplicates and for the held-out choice"""

    def drop(self, rule: str, detail: str, text: str) -> None:
        """Record the first objection; later rules do not see the conversation."""
        self.conversation = None
        self.decisions.append(Decision(rule, "dropped", detail, excerpt(text)))


class RuleEngine:
    """All rules of one ingest run; duplicates are remembered from batch to batch."""

    def __init__(self, scenario: Scenario, control_tokens: Iterable[str], spool_dir: Path) -> None:
        self._rules, self._scenario = scenario.rules, scenario
        self._control = sorted(token for token in control_tokens if token)
        self._expected = expected_classes(scenario.languages)
        self._patterns = [(rule, re.compile(rule.regex, re.IGNORECASE)) for rule in scenario.rules.patterns]
        self._words = WordFinder((*self._control, *_LINK_WORDS, *(word for rule in scenario.rules.patterns for word in rule.contains)))
        self._exact = ExactDuplicates()
        self._near = NearDuplicates(scenario.rules.near_duplicate_similarity, spool_dir)
        self.letters: Counter[str] = Counter()
        """letters read, by script"""

    def close(self) -> None:
        self._near.close()

    def apply(self, conversations: Sequence[Conversation], records: Sequence[int]) -> list[Verdict]:
        """Judge a batch; `records` are the conversations' numbers in the whole input, for naming duplicates."""
        verdicts = [Verdict(conversation) for conversation in conversations]
        turns = _Turns(conversations, self._words)
        self._count_letters(turns.batch)
        self._unsafe(turns, verdicts)
        removed = self._removed_turns(turns, verdicts)
        if removed:
            self._take_out(conversations, removed, verdicts)
        self._content(turns, removed, verdicts)
        if self._rules.redact:
            self._redact(turns, verdicts)
        self._duplicates(turns, verdicts, np.asarray(records, np.int64))
        return verdicts

    def _count_letters(self, batch: TextBatch) -> None:
        self.letters.update(batch.letters_by_script())

    def _unsafe(self, turns: _Turns, verdicts: list[Verdict]) -> None:
        """Texts that would be read as control tokens, or that are no Unicode text at all."""
        batch = turns.batch
        for token in self._control:
            exact = [at for at in turns.words.get(token.lower(), ()) if batch.joined.startswith(token, at)]
            for turn in batch.turns_at(exact):
                turns.drop(verdicts, turn, "control_token", f"holds {token!r}, which the model reads as a control token")
        if batch.has_surrogate:
            for position in np.flatnonzero((batch.codes >= 0xD800) & (batch.codes <= 0xDFFF)).tolist():
                turns.drop(verdicts, batch.turn_at(position), "broken_unicode", "holds half of a surrogate pair")

    def _removed_turns(self, turns: _Turns, verdicts: list[Verdict]) -> dict[int, tuple[str, str]]:
        """Turns that say nothing: blank, notices, placeholders, links alone -> (rule, detail)."""
        removed: dict[int, tuple[str, str]] = {}
        for turn in np.flatnonzero(turns.batch.visible == 0).tolist():
            if turns.roles[turn] != "system":
                removed[turn] = ("blank", "has no visible character")
        for rule, expression in self._patterns:
            if rule.action == "turn":
                for turn, detail in self._matches(turns, rule, expression):
                    removed.setdefault(turn, (rule.name, detail))
        if self._rules.drop_link_only:
            for turn in turns.with_words(_LINK_WORDS):
                if turns.roles[turn] != "system" and not _LINK.sub("", turns.texts[turn]).strip(" \t\r\n,;|·-"):
                    removed.setdefault(turn, ("link_only", "is nothing but links"))
        return removed

    def _take_out(self, conversations: Sequence[Conversation], removed: dict[int, tuple[str, str]], verdicts: list[Verdict]) -> None:
        turn = 0
        for conversation, verdict in zip(conversations, verdicts):
            numbers = range(turn, turn + len(conversation.messages))
            turn += len(conversation.messages)
            gone = [number for number in numbers if number in removed]
            if not gone or verdict.conversation is None:
                continue
            left = [message for number, message in zip(numbers, conversation.messages) if number not in removed]
            last_answer = [number for number in gone if conversation.messages[number - numbers[0]].role == "assistant"]
            if last_answer and not any(message.role == "assistant" for message in left):
                rule, detail = removed[last_answer[0]]
                verdict.drop(rule, f"the answer {detail}", conversation.messages[last_answer[0] - numbers[0]].text)
                continue
            verdict.conversation = replace(conversation, messages=settle(left))
            for number in gone:
                rule, detail = removed[number]
                text = conversation.messages[number - numbers[0]].text
                verdict.decisions.append(Decision(rule, "turn_removed", f"turn {number - numbers[0] + 1} {detail}", excerpt(text)))

    def _matches(self, turns: _Turns, rule: PatternRule, expression: re.Pattern) -> Iterable[tuple[int, str]]:
        """(turn, detail) for each turn the pattern rule applies to."""
        for turn in turns.with_words(rule.contains) if rule.contains else range(len(turns.texts)):
            if turns.roles[turn] in ("system", "tool") or rule.applies_to not in ("any", turns.roles[turn]):
                continue
            found = [match.group() for match in expression.finditer(turns.texts[turn])]
            if len(found) >= rule.min_matches:
                yield turn, f"matches {rule.name} ({', '.join(sorted({excerpt(piece)[:40] for piece in found}))})"

    def _content(self, turns: _Turns, removed: dict[int, tuple[str, str]], verdicts: list[Verdict]) -> None:
        """What drops whole conversations: no answer, advertising, length, repetition, language, echo."""
        has_answer = np.bincount(turns.owner[turns.is_answer], minlength=len(verdicts))
        for number in np.flatnonzero(has_answer == 0).tolist():
            if verdicts[number].conversation is not None:
                verdicts[number].drop("no_assistant_turn", "nobody answers in it", turns.opening(number))
        for rule, expression in self._patterns:
            if rule.action == "record":
                for turn, detail in self._matches(turns, rule, expression):
                    turns.drop(verdicts, turn, rule.name, detail)
        self._lengths(turns, removed, verdicts)
        self._repetition(turns, verdicts)
        self._language(turns, verdicts)
        if self._rules.drop_echo:
            for turn in range(1, len(turns.texts)):
                if turns.roles[turn] == "assistant" and turns.roles[turn - 1] == "user" and turns.owner[turn] == turns.owner[turn - 1]:
                    if _bare(turns.texts[turn]) == _bare(turns.texts[turn - 1]) and _bare(turns.texts[turn]):
                        turns.drop(verdicts, turn, "echo", "the answer only repeats the question")

    def _lengths(self, turns: _Turns, removed: dict[int, tuple[str, str]], verdicts: list[Verdict]) -> None:
        rules, batch = self._rules, turns.batch
        least = np.where(turns.is_note, rules.min_note_chars, rules.min_answer_chars)
        for turn in np.flatnonzero(turns.is_answer & (batch.visible < least)).tolist():
            if turn not in removed:
                turns.drop(verdicts, turn, "too_short", f"has {batch.visible[turn]} visible characters, at least {least[turn]} are wanted")
        for turn in np.flatnonzero(turns.is_answer & ~turns.is_note & (batch.lengths > rules.max_answer_chars)).tolist():
            turns.drop(verdicts, turn, "too_long", f"has {batch.lengths[turn]} characters, at most {rules.max_answer_chars} are wanted")

    def _repetition(self, turns: _Turns, verdicts: list[Verdict]) -> None:
        for turn, character in turns.batch.turns_with_run(self._rules.max_character_run).items():
            if turns.is_answer[turn]:
                turns.drop(verdicts, turn, "repeated_characters",
                           f"{character!r} stands more than {self._rules.max_character_run} times in a row")
        if self._rules.max_repeated_ngram_share >= 1:
            return
        for turn in turns.suspected_repeats(self._rules.max_repeated_ngram_share, self._rules.repeated_ngram_min_chars):
            text = turns.texts[turn]
            if not turns.is_answer[turn]:
                continue
            share = repeated_share(text)
            if share > self._rules.max_repeated_ngram_share:
                turns.drop(verdicts, turn, "repeated_text", f"{share:.0%} of it repeats itself")

    def _language(self, turns: _Turns, verdicts: list[Verdict]) -> None:
        """Share of expected letters in all answers of a conversation together."""
        batch, count = turns.batch, len(verdicts)
        letters = np.bincount(turns.owner, batch.letters * turns.is_answer, count)
        expected = np.bincount(turns.owner, batch.count(self._expected) * turns.is_answer, count)
        for number in np.flatnonzero((letters >= self._rules.language_min_letters) & (expected < self._rules.min_language_share * letters)):
            if verdicts[number].conversation is not None:
                share = expected[number] / letters[number]
                verdicts[number].drop("other_language", f"{share:.0%} of its letters are of {', '.join(self._scenario.languages)}",
                                      turns.answer(int(number)))

    def _redact(self, turns: _Turns, verdicts: list[Verdict]) -> None:
        suspects = set(turns.owner[turns.batch.digits >= _REDACT_DIGITS].tolist())
        if "@" in turns.batch.joined:
            suspects |= {turns.owner[turn] for turn, text in enumerate(turns.texts) if "@" in text}
        for number in sorted(suspects):
            conversation = verdicts[number].conversation
            if conversation is None:
                continue
            total: Counter[str] = Counter()
            messages = []
            for message in conversation.messages:
                text, counts = redact(message.text, self._rules.redact)
                total.update(counts)
                messages.append(Message(message.role, text, message.metadata) if counts else message)
            if total:
                found = ", ".join(f"{count} {kind}" for kind, count in sorted(total.items()))
                # No excerpt: the decision must not keep what the placeholder has just hidden. Nor must the raw record.
                verdicts[number].decisions.append(Decision("redacted", "redacted", found, ""))
                metadata = {key: value for key, value in conversation.metadata.items() if key not in ("raw", "pair")}
                verdicts[number].conversation = Conversation(tuple(messages), metadata)

    def _duplicates(self, turns: _Turns, verdicts: list[Verdict], records: np.ndarray) -> None:
        folded = turns.folded
        bounds = folded.turn_bounds[turns.first_turn]
        alive = [number for number, verdict in enumerate(verdicts) if verdict.conversation is not None]
        codes, limits = folded.codes16, bounds.tolist()
        texts = [codes[limits[number]:limits[number + 1]] for number in alive]
        keys = exact_keys(texts)
        for number, key in zip(alive, keys.tolist()):
            verdicts[number].key = key
        if self._rules.duplicates == "off" or not alive:
            return
        for number, twin in zip(alive, self._exact.check(keys, records[alive])):
            if twin is not None:
                verdicts[number].drop("duplicate", f"is the same as record {twin + 1}", turns.opening(number))
        if self._rules.duplicates == "near":
            self._near_duplicates(turns, verdicts, bounds, records)

    def _near_duplicates(self, turns: _Turns, verdicts: list[Verdict], bounds: np.ndarray, records: np.ndarray) -> None:
        folded = turns.folded
        is_usable = np.diff(bounds) >= self._rules.near_duplicate_min_chars
        is_usable &= np.fromiter((verdict.conversation is not None for verdict in verdicts), bool, len(verdicts))
        # A shingle belongs to the conversation it begins in, unless it reaches into the next.
        owner = np.repeat(np.arange(len(verdicts)), np.diff(np.searchsorted(folded.sampled, bounds)))
        is_inside = is_usable[owner] & (folded.sampled <= bounds[owner + 1] - SHINGLE_CHARS)
        counts = np.bincount(owner[is_inside], minlength=len(verdicts))
        chosen = np.flatnonzero(counts).tolist()
        if not chosen:
            return
        stretches = np.concatenate([[0], np.cumsum(counts[chosen])])
        codes, limits = folded.codes16, bounds.tolist()
        texts = [codes[limits[number]:limits[number + 1]] for number in chosen]
        twins = self._near.check(texts, records[chosen].tolist(), minhash(folded.shingles[folded.sampled[is_inside]], stretches))
        for number, twin in zip(chosen, twins):
            if twin is not None:
                verdicts[number].drop("near_duplicate", f"is {twin.similarity:.0%} the same as record {twin.record + 1}", turns.opening(number))


class _Turns:
    """The turns of a batch of conversations side by side."""

    def __init__(self, conversations: Sequence[Conversation], words: WordFinder) -> None:
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
        self.is_answer = np.array([role == "assistant" for role in self.roles], bool)
        self.is_note = np.array([len(message.metadata) > 0 and "note" in message.metadata for message in messages], bool)
        marks = np.array([_ROLE_MARKS[role] for role in self.roles], np.uint32)
        self._marks = marks
        self._folded: FoldedBatch | None = None

    @property
    def folded(self) -> FoldedBatch:
        if self._folded is None:
            self._folded = FoldedBatch(self.batch, self._marks, self._marks == _ROLE_MARKS["system"])
        return self._folded

    def drop(self, verdicts: list[Verdict], turn: int, rule: str, detail: str) -> None:
        """Drop the conversation a turn belongs to, unless it is dropped already."""
        number = int(self.owner[turn])
        if verdicts[number].conversation is not None:
            place = turn - int(self.first_turn[number]) + 1
            verdicts[number].drop(rule, f"turn {place} {detail}", self.texts[turn])

    def with_words(self, words: Iterable[str]) -> list[int]:
        """Turns that hold one of these words, of which the finder knows all."""
        positions = [at for word in words for at in self.words.get(word.lower(), ())]
        return self.batch.turns_at(positions) if positions else []

    def opening(self, number: int) -> str:
        """The beginning of a conversation, for excerpts."""
        return " | ".join(self.texts[self.first_turn[number]:self.first_turn[number + 1]][:3])

    def answer(self, number: int) -> str:
        turns = range(int(self.first_turn[number]), int(self.first_turn[number + 1]))
        return next((self.texts[turn] for turn in turns if self.is_answer[turn]), "")

    def suspected_repeats(self, share: float, min_chars: int) -> list[int]:
        """Turns whose sampled shingles repeat at least half as much as `share`, or that are too small a sample to tell."""
        folded = self.folded
        total = np.diff(np.searchsorted(folded.sampled, folded.turn_bounds))
        turn_of = np.repeat(np.arange(len(self.texts), dtype=np.uint32), total)
        hashes = folded.shingles[folded.sampled]
        # A quarter of a long turn's sample is enough to suspect it, and so are 18 bits of a hash.
        is_used = np.repeat(self.batch.lengths < _LONG_TURN_CHARS, total) | (hashes & np.uint32(4 * SAMPLE_ONE_IN - 1) == 0)
        turn_of, hashes = turn_of[is_used], hashes[is_used]
        total = np.bincount(turn_of, minlength=len(self.texts))
        keys = np.sort(turn_of << np.uint32(18) | hashes >> np.uint32(14))
        repeats = np.bincount(keys[1:][keys[1:] == keys[:-1]] >> np.uint32(18), minlength=len(self.texts))
        return np.flatnonzero((self.batch.lengths >= min_chars) & ((total < 8) | (repeats > 0.5 * share * total))).tolist()


def repeated_share(text: str) -> float:
    """Share of a text's 5-character pieces that stood in it before."""
    count = len(text) - SHINGLE_CHARS + 1
    return 1 - len({text[at:at + SHINGLE_CHARS] for at in range(count)}) / count if count > 0 else 0.0


def _bare(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())

