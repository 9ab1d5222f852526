"""What is computed for many texts at once equals what the plain definition gives for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.rules.batch import SHINGLE_CHARS, TextBatch, fold_table
from mobilefinetuner.runtime.data.rules.duplicates import ExactDuplicates, KeyIndex, similarities
from mobilefinetuner.runtime.data.rules.rules import RuleEngine
from mobilefinetuner.runtime.data.text.languages import SCRIPTS, class_table
from mobilefinetuner.runtime.data.text.words import WordFinder
from mobilefinetuner.runtime.message import Conversation, Message

from tests.support.chatml import scenario

ODD = "aAbBzZ09 .\n你好微信加vVПривет😀\u2028\x00é"
TEXTS = st.lists(st.text(st.sampled_from(ODD), max_size=30), min_size=1, max_size=8)


def _codes(text: str) -> np.ndarray:
    folded = fold_table()[[ord(character) for character in text]] if text else np.zeros(0, np.uint32)
    return folded[folded != 0].astype(np.uint16)


def _jaccard(one: np.ndarray, other: np.ndarray) -> float:
    """By the definition: sets of 5-character pieces; 0 when the digits differ."""
    digits = [[code for code in text.tolist() if 48 <= code <= 57] for text in (one, other)]
    first, second = ({tuple(text[at : at + SHINGLE_CHARS].tolist()) for at in range(len(text) - SHINGLE_CHARS + 1)} for text in (one, other))
    return len(first & second) / max(1, len(first | second)) if digits[0] == digits[1] else 0.0


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.text(st.sampled_from("abc1你"), max_size=60), st.integers(0, 60), st.text(st.sampled_from("abc1"), max_size=3)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_similarities_of_many_pairs_are_those_of_the_sets_and_nothing_similar_is_missed(pairs: list[tuple[str, int, str]], least: float) -> None:
    ones = [_codes(text) for text, _, _ in pairs]
    others = [_codes(text[:at] + put + text[at:]) for text, at, put in pairs]
    expected = [_jaccard(one, other) for one, other in zip(ones, others)]
    assert similarities(ones, others, least) == [pytest.approx(value) if value >= least else 0.0 for value in expected]


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), min_size=1, max_size=12), max_size=8))
def test_key_index_is_a_map_and_duplicates_are_told_from_the_first_of_their_kind(batches: list[list[int]]) -> None:
    index, exact, known, record = KeyIndex(4), ExactDuplicates(), {}, 0
    for batch in batches:
        keys, records = np.array(batch, np.uint64), np.arange(record, record + len(batch))
        assert index.find(keys).tolist() == [known.get(key, -1) for key in batch]
        fresh = {key: number for key, number in zip(reversed(batch), reversed(records.tolist())) if key not in known}
        index.add(np.array(list(fresh), np.uint64), np.array(list(fresh.values()), np.int64))
        known |= fresh
        assert exact.check(keys, records).tolist() == [known[key] for key in batch]
        record += len(batch)


@settings(max_examples=150)
@given(TEXTS, st.lists(st.text(st.sampled_from("aAbBzZ09.你好微信加v"), min_size=1, max_size=6), min_size=1, max_size=5))
def test_words_are_found_wherever_they_stand_in_either_case(texts: list[str], words: list[str]) -> None:
    batch = TextBatch(texts)
    found = WordFinder(words).find(batch.joined, batch.codes)
    lowered = batch.joined.lower()
    expected = {word.lower(): [at for at in range(len(lowered)) if lowered.startswith(word.lower(), at)] for word in words}
    assert {word: sorted(places) for word, places in found.items()} == {word: places for word, places in expected.items() if places}


@settings(max_examples=100)
@given(TEXTS)
def test_letters_by_script_are_counted_one_by_one(texts: list[str]) -> None:
    counts = {
        name: sum(
            SCRIPTS[number - 1] == name
            for text in texts
            for number in class_table()[[ord(sign) for sign in text] or [10]]
            if 0 < number <= len(SCRIPTS)
        )
        for name in SCRIPTS
    }
    assert TextBatch(texts).letters_by_script == {name: count for name, count in counts.items() if count}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab c你П1"), min_size=1, max_size=40), min_size=1, max_size=12), st.data())
def test_judging_in_batches_equals_judging_one_by_one(tmp_path_factory, texts: list[str], data) -> None:
    """But for near duplicates, whose candidates may be others."""
    folder = tmp_path_factory.mktemp("spool")
    conversations = [Conversation((Message("user", "q"), Message("assistant", text)), {}) for text in texts]
    rules = {"duplicates": "exact", "max_repeated_ngram_share": 0.5, "repeated_ngram_min_chars": 20, "max_character_run": 5}

    def judged(sizes: list[int]) -> list[tuple]:
        engine, outcomes, at = RuleEngine(scenario(rules=rules), ["<|im_end|>"], Path(folder)), [], 0
        for size in sizes:
            outcomes += engine.apply(conversations[at : at + size], range(at, min(at + size, len(conversations))))
            at += size
        return [(outcome.conversation is not None, outcome.decisions, outcome.key) for outcome in outcomes]

    cut = data.draw(st.integers(1, len(texts)))
    assert judged([1] * len(texts)) == judged([cut] * (-(-len(texts) // cut)))
