"""Training that keeps to the base: the divergence, its gradient, and which replay rows a step sees.

"The same" means a relative error of 1e-5, the reordering of fp32 sums; PyTorch's gradient agrees to 1e-4.
"""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.runtime.engine.packing import pack
from mobilefinetuner.runtime.train.replay import ReplaySettings, replay_rows
from mobilefinetuner.runtime.train.schedule import TrainingSchedule, TrainSettings
from mobilefinetuner.runtime.train.step import AdamW

from tests.oracles.engine_case import Sample, adapter_pairs, exact_relative_error, padded
from tests.runtime.train.test_step import sample, started

SAME, TORCH = 1e-5, 1e-4


def whole(length: int, seed: int = 0) -> Sample:
    """A sample whose every token has a say."""
    return Sample(sample(length, seed).token_ids, np.ones(length, np.uint8))


def test_an_adapter_that_does_nothing_is_as_far_as_nothing_from_the_base(tiny):
    step, batch = tiny.step("1x32"), pack([whole(30)], 1, 32)[0]
    step.state["parameters"][:] = 0
    assert step.distill(batch, batch.labels) == 0
    assert np.abs(step.state["gradient"]).max() < 1e-8


def test_the_divergence_is_the_one_of_the_two_distributions_over_the_vocabulary(tiny):
    """Against the losses of every possible next token, asked for one at a time: log p(token) of base and tuned."""
    step, row = started(tiny, tiny.step("1x32")), whole(4)
    batch = pack([row], 1, 32)[0]
    found = step.distill(batch, batch.labels)
    step.state["gradient"][:] = 0
    tuned = log_probabilities(step, row)
    step.state["parameters"][:] = 0
    base = log_probabilities(step, row)
    assert found == pytest.approx((np.exp(base) * (base - tuned)).sum(), rel=1e-4)
    assert found > 1e-4


def log_probabilities(step, row: Sample) -> np.ndarray:
    """[positions, V] f64"""
    out = []
    for token in range(512):
        losses = []
        for position in range(1, len(row.token_ids)):
            ids = row.token_ids[: position + 1].copy()
            ids[-1] = token
            batch = pack([Sample(ids, (np.arange(len(ids)) == position).astype(np.uint8))], 1, 32)[0]
            losses.append(-step.accumulate(batch, 1))
        out.append(losses)
    return np.array(out).T


def test_the_gradient_predicts_how_the_divergence_changes(tiny):
    """Central difference along the gradient; the tolerance of 1 % is fp32's noise in the losses."""
    step, batch = started(tiny, tiny.step("1x32")), pack([whole(30)], 1, 32)[0]
    step.distill(batch, batch.labels)
    gradient, middle = step.state["gradient"].copy(), step.state["parameters"].copy()
    direction = gradient / np.linalg.norm(gradient)
    losses = []
    for side in (1, -1):
        step.state["parameters"][:] = middle + side * np.float32(0.02) * direction
        losses.append(step.distill(batch, batch.labels) / batch.labels)
    assert (losses[0] - losses[1]) / 0.04 == pytest.approx(np.linalg.norm(gradient), rel=1e-2)


def test_two_rows_at_once_are_as_one_after_the_other(tiny):
    rows = [whole(30, 1), whole(9, 2)]
    results = []
    for bucket in ("2x32", "1x32"):
        step = started(tiny, tiny.step(bucket))
        batches = pack(rows, step.batch, step.width)
        labels = sum(batch.labels for batch in batches)
        results.append((sum(step.distill(batch, labels) for batch in batches), step.state["gradient"].copy()))
    assert results[0][0] == pytest.approx(results[1][0], rel=SAME)
    assert exact_relative_error(results[0][1], results[1][1]) < SAME


def test_a_weight_scales_the_gradient_and_not_the_loss(tiny):
    results = []
    for weight in (1.0, 3.0):
        step, batch = started(tiny, tiny.step("1x32")), pack([whole(30)], 1, 32)[0]
        results.append((step.distill(batch, batch.labels, weight), step.state["gradient"].copy()))
    assert results[0][0] == results[1][0]
    assert exact_relative_error(results[1][1], 3 * results[0][1]) < SAME


@pytest.mark.oracle
def test_pytorch_has_the_same_divergence_and_gradient(tiny, tiny_model_path):
    """transformers and PEFT on the dequantized weights; the base is the same model with its adapter disabled."""
    torch = pytest.importorskip("torch")
    from tests.oracles.torch_model import PeftModel

    pairs = {name: (a[:4], np.ascontiguousarray(b[:, :4])) for name, (a, b) in adapter_pairs("grouped", tiny.shapes, started=True).items()}
    rows = [whole(30, 1), whole(21, 2)]
    step = started(tiny, tiny.step("2x32"))
    batch = pack(rows, 2, 32)[0]
    ours = step.distill(batch, batch.labels) / batch.labels
    matrices = tiny.gradients_of(step)
    theirs = PeftModel(tiny_model_path, "grouped", tiny.plan.adapter.scale, pairs)
    ids, attention, labels = (torch.tensor(part) for part in padded(rows))
    counted = (labels != -100)[:, 1:]
    logits = theirs.model(input_ids=ids, attention_mask=attention).logits[:, :-1][counted]
    with torch.no_grad(), theirs.model.disable_adapter():
        base = theirs.model(input_ids=ids, attention_mask=attention).logits[:, :-1][counted]
    loss = torch.nn.functional.kl_div(logits.log_softmax(-1), base.log_softmax(-1), log_target=True, reduction="batchmean")
    loss.backward()
    assert ours == pytest.approx(loss.item(), rel=1e-4)
    for name, (a, b) in theirs.gradients().items():
        for found, wanted in ((matrices[f"{name}:A"], a), (matrices[f"{name}:B"], b)):
            assert exact_relative_error(found, wanted) < TORCH, name


def schedule(share: float, batch: int = 8, seed: int = 0) -> TrainingSchedule:
    replay = ReplaySettings(replay_rows(batch, share), "kl", 1.0)
    return TrainingSchedule(TrainSettings(1e-3, 0.1, "linear", batch, 3, seed, 10, AdamW(0.9, 0.999, 1e-8, 0.0, 1.0, 0.0), replay, False), 20, 9)


@pytest.mark.parametrize(("share", "rows"), [(0.0, 0), (0.2, 2), (0.5, 8), (0.9, 72)])
def test_the_share_is_of_all_rows_of_a_step(share, rows):
    assert len(schedule(share).replay_batch(1, 50)) == rows


def test_every_replay_row_is_seen_once_before_any_is_seen_again():
    seen = [row for step in range(1, 6) for row in schedule(0.2).replay_batch(step, 5)]
    assert sorted(seen[:5]) == sorted(seen[5:10]) == [0, 1, 2, 3, 4]


def test_the_replay_of_a_step_is_a_function_of_seed_and_step():
    one, other = schedule(0.2), schedule(0.2, seed=1)
    assert one.replay_batch(7, 50) == schedule(0.2).replay_batch(7, 50)
    assert [one.replay_batch(step, 50) for step in range(1, 9)] != [other.replay_batch(step, 50) for step in range(1, 9)]
