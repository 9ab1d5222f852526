"""The scenario's rules, applied to a batch of conversations.

In:  conversations in the order of the input.
Out: for each a Outcome: kept (perhaps with turns taken out, not learned or redacted) or dropped, with every decision and its evidence.
Rules look in one fixed order, and a conversation is dropped once, for one reason, so counts never overlap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ...message import Conversation, Message
from ..records import excerpt
from ..scenario import Scenario
from ..text.languages import SCRIPTS, expected_classes
from ..text.redact import redact
from ..text.words import WordFinder
from .batch import SHINGLE_CHARS
from .duplicates import ExactDuplicates, FoldedTexts, NearDuplicates, exact_keys, minhash
from .turns import Decision, Outcome, Turns

_LINK = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_LINK_WORDS = ("http://", "https://", "www.")
_REDACT_DIGITS = 7


class RuleEngine:
    """All rules of one ingest run; duplicates are remembered from batch to batch."""

    def __init__(self, scenario: Scenario, control_tokens: Iterable[str], spool_dir: Path) -> None:
        self._rules, self._scenario = scenario.rules, scenario
        self._control = sorted(token for token in control_tokens if token)
        self._expected = frozenset(expected_classes(scenario.languages))
        self._patterns = [(rule, re.compile(rule.regex, re.IGNORECASE)) for rule in scenario.rules.patterns]
        self._words = WordFinder((*self._control, *_LINK_WORDS, *(word for rule in scenario.rules.patterns for word in rule.contains)))
        self._exact = ExactDuplicates()
        self._near = NearDuplicates(scenario.rules.near_duplicate_similarity, spool_dir)
        self.letters: Counter[str] = Counter()
        """letters read, by script"""

    def close(self) -> None:
        self._near.close()

    def apply(self, conversations: Sequence[Conversation], records: Sequence[int]) -> list[Outcome]:
        """Judge a batch; `records` are the conversations' numbers in the whole input, for naming duplicates."""
        turns = Turns(conversations, self._words)
        self.letters.update(turns.batch.letters_by_script)
        self._unsafe(turns)
        for number in turns.without_answer():
            if turns.is_alive(number):
                turns.outcomes[number].drop("no_assistant_turn", "nobody answers in it", turns.opening(number))
        self._silent(turns)
        self._patterns_found(turns, "unlearn")
        self._lengths(turns)
        self._repetition(turns)
        self._echoes(turns)
        self._language(turns)
        turns.settle()
        if self._rules.redact:
            self._redact(turns)
        self._duplicates(turns, np.asarray(records, np.int64))
        return turns.outcomes

    def _unsafe(self, turns: Turns) -> None:
        """Texts that would be read as control tokens, or that are not valid Unicode."""
        batch = turns.batch
        for token in self._control:
            exact = [at for at in turns.words.get(token.lower(), ()) if batch.joined.startswith(token, at)]
            for turn in batch.turns_at(exact):
                turns.drop(turn, "control_token", f"contains {token!r}, which the model reads as a control token")
        if batch.has_surrogate:
            for position in np.flatnonzero((batch.codes >= 0xD800) & (batch.codes <= 0xDFFF)).tolist():
                turns.drop(batch.turn_at(position), "broken_unicode", "contains half of a surrogate pair")

    def _silent(self, turns: Turns) -> None:
        """Take out turns that say nothing: blank, notices, placeholders, links alone."""
        for turn in np.flatnonzero(turns.batch.visible == 0).tolist():
            if turns.roles[turn] != "system":
                turns.take_out(turn, "blank", "has no visible character")
        self._patterns_found(turns, "take_out")
        if self._rules.drop_link_only:
            for turn in turns.with_words(_LINK_WORDS):
                if turns.roles[turn] != "system" and not _LINK.sub("", turns.texts[turn]).strip(" \t\r\n,;|·-"):
                    turns.take_out(turn, "link_only", "is nothing but links")

    def _patterns_found(self, turns: Turns, action: str) -> None:
        """Apply the scenario's pattern rules of one action."""
        for rule, expression in self._patterns:
            if rule.action != action:
                continue
            apply = turns.take_out if action == "take_out" else turns.unlearn
            for turn in turns.with_words(rule.contains) if rule.contains else range(len(turns.texts)):
                if turns.roles[turn] in ("system", "tool") or rule.applies_to not in ("any", turns.roles[turn]):
                    continue
                found = [match.group() for match in expression.finditer(turns.texts[turn])]
                if len(found) >= rule.min_matches:
                    apply(turn, rule.name, f"matches {rule.name} ({', '.join(sorted({excerpt(piece)[:40] for piece in found}))})")

    def _lengths(self, turns: Turns) -> None:
        rules, batch = self._rules, turns.batch
        least = np.where(turns.is_note, rules.min_note_chars, rules.min_answer_chars)
        for turn in np.flatnonzero(turns.is_answer & (batch.visible < least)).tolist():
            turns.unlearn(turn, "too_short", f"has {batch.visible[turn]} visible characters, at least {least[turn]} are needed")
        for turn in np.flatnonzero(turns.is_answer & ~turns.is_note & (batch.lengths > rules.max_answer_chars)).tolist():
            turns.unlearn(turn, "too_long", f"has {batch.lengths[turn]} characters, at most {rules.max_answer_chars} are allowed")

    def _repetition(self, turns: Turns) -> None:
        for turn, character in turns.batch.turns_with_run(self._rules.max_character_run).items():
            if turns.is_answer[turn]:
                turns.unlearn(turn, "repeated_characters", f"{character!r} occurs more than {self._rules.max_character_run} times in a row")
        most = self._rules.max_repeated_ngram_share
        if most >= 1:
            return
        for turn in turns.suspected_repeats(most, self._rules.repeated_ngram_min_chars):
            if turns.is_answer[turn] and (share := repeated_share(turns.texts[turn])) > most:
                turns.unlearn(turn, "repeated_text", f"{share:.0%} of it repeats itself")

    def _echoes(self, turns: Turns) -> None:
        """Answers that only say the question again."""
        if not self._rules.drop_echo:
            return
        for turn in range(1, len(turns.texts)):
            if turns.is_answer[turn] and turns.roles[turn - 1] == "user" and turns.owner[turn] == turns.owner[turn - 1]:
                answer = _bare(turns.texts[turn])
                if answer and answer == _bare(turns.texts[turn - 1]):
                    turns.unlearn(turn, "echo", "only repeats the question")

    def _language(self, turns: Turns) -> None:
        """Share of expected letters in all answers of a conversation together."""
        batch, count = turns.batch, len(turns.outcomes)
        if self._expected.issuperset(SCRIPTS.index(script) + 1 for script in batch.letters_by_script):
            return  # no letter of any other script is in the whole batch
        letters = np.bincount(turns.owner, batch.letters * turns.is_answer, count)
        expected = np.bincount(turns.owner, batch.count(sorted(self._expected)) * turns.is_answer, count)
        is_other = (letters >= self._rules.language_min_letters) & (expected < self._rules.min_language_share * letters)
        for number in np.flatnonzero(is_other).tolist():
            if turns.is_alive(number):
                share = expected[number] / letters[number]
                turns.outcomes[number].drop(
                    "other_language", f"{share:.0%} of its letters are of {', '.join(self._scenario.languages)}", turns.answer(number)
                )

    def _redact(self, turns: Turns) -> None:
        outcomes = turns.outcomes
        suspects = set(turns.owner[turns.batch.digits >= _REDACT_DIGITS].tolist())
        if "@" in turns.batch.joined:
            suspects |= {turns.owner[turn] for turn, text in enumerate(turns.texts) if "@" in text}
        for number in sorted(suspects):
            conversation = outcomes[number].conversation
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
                outcomes[number].add(Decision("redacted", "redacted", found, ""))
                metadata = {key: value for key, value in conversation.metadata.items() if key not in ("raw", "pair")}
                outcomes[number].conversation = Conversation(tuple(messages), metadata)

    def _duplicates(self, turns: Turns, records: np.ndarray) -> None:
        outcomes = turns.outcomes
        texts = FoldedTexts(turns.folded.codes16, turns.folded.turn_bounds[turns.first_turn])
        alive = turns.alive()
        keys = exact_keys(texts, alive.tolist())
        for number, key in zip(alive.tolist(), keys.tolist()):
            outcomes[number].key = key
        if self._rules.duplicates == "off" or not len(alive):
            return
        own = records[alive]
        first = self._exact.check(keys, own)
        for place in np.flatnonzero(first != own).tolist():
            number = int(alive[place])
            outcomes[number].drop("duplicate", f"is the same as record {first[place] + 1}", turns.opening(number))
        if self._rules.duplicates == "near":
            self._near_duplicates(turns, texts, records)

    def _near_duplicates(self, turns: Turns, texts: FoldedTexts, records: np.ndarray) -> None:
        outcomes = turns.outcomes
        folded, bounds = turns.folded, texts.bounds
        alive = turns.alive()
        last = np.full(len(outcomes), -1)
        # A shingle belongs to the conversation it begins in, unless it reaches into the next.
        last[alive] = np.where(np.diff(bounds) >= self._rules.near_duplicate_min_chars, bounds[1:] - SHINGLE_CHARS, -1)[alive]
        sampled = np.diff(np.searchsorted(folded.sampled, bounds))
        is_inside = folded.sampled <= np.repeat(last, sampled)
        counts = np.diff(np.concatenate([[0], np.cumsum(is_inside)])[np.concatenate([[0], np.cumsum(sampled)])])
        chosen = np.flatnonzero(counts)
        if not len(chosen):
            return
        stretches = np.concatenate([[0], np.cumsum(counts[chosen])])
        minima = minhash(np.compress(is_inside, folded.sampled_shingles), stretches)
        for number, twin in self._near.check(texts, chosen, records, minima).items():
            outcomes[number].drop("near_duplicate", f"is {twin.similarity:.0%} the same as record {twin.record + 1}", turns.opening(number))


def repeated_share(text: str) -> float:
    """Share of a text's 5-character pieces that stood in it before."""
    count = len(text) - SHINGLE_CHARS + 1
    return 1 - len({text[at : at + SHINGLE_CHARS] for at in range(count)}) / count if count > 0 else 0.0


def _bare(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())
