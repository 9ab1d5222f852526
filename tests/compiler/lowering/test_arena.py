"""The memory plan of an entry's temporaries."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.compiler.lowering.arena import Lifetime, plan_arena
from mobilefinetuner.runtime.bundle.plan import ALIGNMENT, aligned

LIFETIMES = st.lists(
    st.builds(lambda n_bytes, first, length: Lifetime(n_bytes, first, first + length), st.integers(1, 5000), st.integers(0, 30), st.integers(1, 20)),
    max_size=40,
)


def live_at(lifetimes: list[Lifetime], call: int) -> list[int]:
    return [i for i, t in enumerate(lifetimes) if t.first <= call < t.end]


@given(LIFETIMES)
def test_two_live_tensors_never_share_bytes(lifetimes):
    plan = plan_arena(lifetimes)
    for call in range(51):
        places = sorted((plan.offsets[i], lifetimes[i].n_bytes) for i in live_at(lifetimes, call))
        assert all(offset + size <= following for (offset, size), (following, _) in itertools.pairwise(places))


@given(LIFETIMES)
def test_every_tensor_is_aligned_and_inside_the_arena(lifetimes):
    plan = plan_arena(lifetimes)
    assert all(offset % ALIGNMENT == 0 and offset + t.n_bytes <= plan.n_bytes for offset, t in zip(plan.offsets, lifetimes, strict=True))


@given(LIFETIMES)
def test_the_arena_is_no_smaller_than_what_lives_at_once_and_no_larger_than_everything(lifetimes):
    peak = max((sum(aligned(lifetimes[i].n_bytes) for i in live_at(lifetimes, call)) for call in range(51)), default=0)
    assert peak <= plan_arena(lifetimes).n_bytes <= sum(aligned(t.n_bytes) for t in lifetimes)


def test_a_chain_of_equal_tensors_takes_the_room_of_two():
    assert plan_arena([Lifetime(640, i, i + 2) for i in range(10)]).n_bytes == 2 * 640


def test_tensors_that_touch_in_time_may_share_bytes():
    assert plan_arena([Lifetime(100, 0, 3), Lifetime(100, 3, 5)]).offsets == (0, 0)
