"""Samples into buckets: nothing lost, nothing twice, labels shifted once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.engine.packing import NO_TARGET, label_count, pack, rows_first_fit

WIDTH = 16


@dataclass(frozen=True)
class Sample:
    token_ids: np.ndarray
    label_mask: np.ndarray


def sample(ids: list[int], mask: list[int]) -> Sample:
    return Sample(np.array(ids, np.int32), np.array(mask, np.uint8))


@st.composite
def samples(draw) -> list[Sample]:
    """Samples whose tokens are all different, so that each can be found again."""
    lengths = draw(st.lists(st.integers(1, WIDTH), min_size=1, max_size=20))
    bounds = np.cumsum([1, *lengths]).tolist()
    return [sample(list(range(a, b)), draw(st.lists(st.integers(0, 1), min_size=b - a, max_size=b - a))) for a, b in itertools.pairwise(bounds)]


@given(samples(), st.integers(1, 3))
def test_every_token_is_in_exactly_one_place_in_order(items, batch):
    placed = {}
    for packed in pack(items, batch, WIDTH):
        assert packed.ids.shape == (batch * WIDTH,) and packed.start.shape == (batch, WIDTH)
        assert packed.tokens == np.count_nonzero(packed.ids)
        starts = packed.start + WIDTH * np.arange(batch)[:, None]
        for position, first in enumerate(starts.reshape(-1)):
            placed.setdefault(packed.ids[first], []).append(packed.ids[position])
    placed.pop(0, None)
    assert placed == {s.token_ids[0]: list(s.token_ids) for s in items}


@given(samples(), st.integers(1, 3))
def test_the_target_of_a_position_is_its_labelled_successor_and_nothing_else(items, batch):
    wanted = {s.token_ids[i]: s.token_ids[i + 1] for s in items for i in range(len(s.token_ids) - 1) if s.label_mask[i + 1]}
    found = {}
    for packed in pack(items, batch, WIDTH):
        found |= {int(i): int(t) for i, t in zip(packed.ids, packed.targets) if t != NO_TARGET}
        assert packed.labels == np.count_nonzero(packed.targets != NO_TARGET)
    assert found == wanted
    assert len(found) == sum(label_count(s) for s in items)


@given(samples())
def test_attention_looks_neither_into_another_sample_nor_out_of_order(items):
    for packed in pack(items, 2, WIDTH):
        assert (np.diff(packed.start, axis=1) >= 0).all()
        assert (packed.start <= np.arange(WIDTH)).all()


@given(st.lists(st.integers(1, WIDTH), max_size=30))
def test_no_row_is_overfull_and_no_two_rows_could_be_one(lengths):
    rows = rows_first_fit(lengths, WIDTH)
    used = sorted(sum(lengths[i] for i in row) for row in rows)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(total <= WIDTH for total in used)
    assert len(used) < 2 or used[0] + used[1] > WIDTH


def test_the_first_token_of_a_sample_cannot_be_predicted():
    packed = pack([sample([5, 6, 7], [1, 0, 1])], 1, 4)[0]
    assert packed.targets.tolist() == [NO_TARGET, 7, NO_TARGET, NO_TARGET]
    assert label_count(sample([5, 6, 7], [1, 0, 1])) == 1


def test_padding_sees_only_itself_and_predicts_nothing():
    packed = pack([sample([5, 6], [1, 1])], 2, 4)[0]
    assert packed.start.tolist() == [[0, 0, 2, 3], [0, 1, 2, 3]]
    assert packed.ids.tolist() == [5, 6, 0, 0, 0, 0, 0, 0]
