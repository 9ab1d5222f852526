"""Training steps on the tiny model: what must not change a result does not change it, and what must, does.

"The same bits" means equality; "the same" means a relative error of 1e-5, the reordering of fp32 sums.
"""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.runtime.engine.packing import PackedBatch, pack
from mobilefinetuner.runtime.errors import MftError
from mobilefinetuner.runtime.train.step import AdamW, TrainStep

from tests.oracles.engine_case import Sample, adapter_pairs
from tests.support.engine_trial import OPTIMIZER, EngineTrial

SAME = 1e-5


def sample(length: int, seed: int = 0) -> Sample:
    rng = np.random.RandomState(seed)
    return Sample(rng.randint(3, 512, length).astype(np.int32), (np.arange(length) >= length // 3).astype(np.uint8))


def started(tiny: EngineTrial, step: TrainStep) -> TrainStep:
    """The step with adapter values that matter (rank 4: the first half of the case's)."""
    pairs = {name: (a[:4], np.ascontiguousarray(b[:, :4])) for name, (a, b) in adapter_pairs("grouped", tiny.shapes, started=True).items()}
    tiny.assign(step, pairs)
    return step


def gradient_of(tiny: EngineTrial, bucket: str, samples: list[Sample]) -> tuple[float, np.ndarray]:
    step = started(tiny, tiny.step(bucket))
    loss, _ = tiny.gradient(step, samples)
    return loss, step.state["gradient"].copy()


def same(a: tuple[float, np.ndarray], b: tuple[float, np.ndarray]) -> None:
    assert abs(a[0] - b[0]) <= SAME * abs(b[0])
    assert np.linalg.norm(a[1] - b[1]) <= SAME * np.linalg.norm(b[1])
    assert np.linalg.norm(b[1]) > 0


def three_steps(tiny: EngineTrial) -> np.ndarray:
    step = started(tiny, tiny.step("2x32"))
    for number in range(3):
        tiny.gradient(step, [sample(30, number), sample(20, number + 10)])
        step.update(1e-2, number + 1, OPTIMIZER)
    return step.state["parameters"].copy()


def test_one_and_two_threads_train_to_the_same_bits(tiny):
    both = three_steps(tiny)
    tiny.engine.library.set_width(1)
    np.testing.assert_array_equal(three_steps(tiny), both)
    tiny.reopen(threads=1)
    np.testing.assert_array_equal(three_steps(tiny), both)


def test_micro_batches_add_up_to_the_batch(tiny):
    """Two rows at once, or one after the other: the loss is the sum over labels divided by all labels of both."""
    rows = [sample(30, 1), sample(9, 2)]
    step = started(tiny, tiny.step("1x32"))
    labels = sum(pack([row], 1, 32)[0].labels for row in rows)
    loss = sum(step.accumulate(pack([row], 1, 32)[0], labels) for row in rows) / labels
    apart = loss, step.state["gradient"].copy()
    same(apart, gradient_of(tiny, "2x32", rows))


def test_a_longer_bucket_gives_the_same_gradient(tiny):
    same(gradient_of(tiny, "1x64", [sample(30)]), gradient_of(tiny, "1x32", [sample(30)]))


def test_samples_that_share_a_row_do_not_see_each_other(tiny):
    rows = [sample(20, 1), sample(12, 2)]
    assert len(pack(rows, 1, 32)) == 1
    together = gradient_of(tiny, "1x32", rows)
    apart = [sample(20, 1), sample(32, 2)]
    assert len(pack(apart, 1, 32)) == 2
    step = started(tiny, tiny.step("1x32"))
    labels = sum(pack([row], 1, 32)[0].labels for row in rows)
    loss = sum(step.accumulate(pack([row], 1, 32)[0], labels) for row in rows) / labels
    same(together, (loss, step.state["gradient"].copy()))


def test_what_stands_in_the_padding_changes_no_bit(tiny):
    batch = pack([sample(20)], 1, 32)[0]
    other = PackedBatch(np.where(np.arange(32) < 20, batch.ids, 77).astype(np.int32), batch.start, batch.targets, batch.tokens)
    results = []
    for packed in (batch, other):
        step = started(tiny, tiny.step("1x32"))
        results.append((step.accumulate(packed, packed.labels), step.state["gradient"].copy()))
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_the_gradient_predicts_how_the_loss_changes(tiny):
    """Central difference along random directions; the tolerance of 1 % is fp32's noise in the losses."""
    _, gradient = gradient_of(tiny, "1x32", [sample(30)])
    step, batch = tiny.step("1x32"), pack([sample(30)], 1, 32)[0]
    middle = step.state["parameters"].copy()
    direction = gradient / np.linalg.norm(gradient)
    losses = []
    for side in (1, -1):
        step.state["parameters"][:] = middle + side * np.float32(0.02) * direction
        losses.append(step.accumulate(batch, batch.labels) / batch.labels)
    assert (losses[0] - losses[1]) / 0.04 == pytest.approx(np.linalg.norm(gradient), rel=1e-2)


def test_a_gradient_above_the_limit_is_scaled_down_to_it(tiny):
    step = started(tiny, tiny.step("1x32"))
    tiny.gradient(step, [sample(30)])
    gradient = step.state["gradient"].copy()
    norm = step.update(0.0, 1, AdamW(0.9, 0.999, 1e-8, 0.0, 0.5 * float(np.linalg.norm(gradient)), 0.0))
    assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
    np.testing.assert_allclose(step.state["first_moment"], 0.1 * 0.5 * gradient, rtol=1e-4, atol=1e-9)


def test_an_update_moves_no_parameter_by_more_than_its_limit(tiny):
    step = started(tiny, tiny.step("1x32"))
    before = step.state["parameters"].copy()
    tiny.gradient(step, [sample(30)])
    step.update(1.0, 1, AdamW(0.9, 0.999, 1e-8, 0.0, 0.0, 1e-3))
    moved = np.abs(step.state["parameters"] - before)
    assert 0 < moved.max() <= 1e-3 * (1 + 1e-4)


def test_an_update_leaves_a_zero_gradient_for_the_next_step(tiny):
    step = started(tiny, tiny.step("1x32"))
    tiny.gradient(step, [sample(30)])
    step.update(1e-3, 1, OPTIMIZER)
    assert not step.state["gradient"].any()


def test_a_gradient_that_is_not_finite_stops_with_the_block_where_it_arose(tiny):
    step = started(tiny, tiny.step("1x32"))
    second_layer = next(t.offset for t in tiny.plan.adapter.tensors if t.name.layer == 1)
    step.state["parameters"][second_layer:] = np.nan
    before = step.state["first_moment"].copy()
    tiny.gradient(step, [sample(30)])
    with pytest.raises(MftError, match=r"step 5.*block 1"):
        step.update(1e-3, 5, OPTIMIZER)
    np.testing.assert_array_equal(step.state["first_moment"], before)
