"""What a run remembers: its curve, its measurements, and when it is past its best. References: worked out by hand."""

from __future__ import annotations

import json

import pytest
from mobilefinetuner.runtime.train.record import CURVE_POINTS, CurvePoint, RunRecord


def after_steps(record: RunRecord, steps: int) -> RunRecord:
    """Each step's loss is its number."""
    for step in range(record.step + 1, record.step + 1 + steps):
        record = record.after_step(float(step), step / 10, 5, 2.0 * step)
    return record


def measured(*losses: float) -> RunRecord:
    """One measurement after each of so many steps."""
    record = RunRecord()
    for loss in losses:
        record = after_steps(record, 1).after_measurement(loss)
    return record


def test_a_step_adds_its_tokens_and_keeps_the_first_loss():
    record = after_steps(RunRecord(), 3)
    assert (record.step, record.loss_first, record.loss_last, record.tokens, record.seconds) == (3, 1.0, 3.0, 15, 6.0)
    assert record.curve == ((1, 1.0, 0.1), (2, 2.0, 0.2), (3, 3.0, 0.3))


def test_a_curve_has_every_step_until_it_is_full():
    assert [point.step for point in after_steps(RunRecord(), CURVE_POINTS).curve] == list(range(1, CURVE_POINTS + 1))


@pytest.mark.parametrize("steps", [CURVE_POINTS + 1, 2 * CURVE_POINTS, 7 * CURVE_POINTS + 3])
def test_a_long_curve_is_thinned_to_points_that_are_evenly_apart(steps):
    curve = after_steps(RunRecord(), steps).curve
    apart = curve[1].step - curve[0].step
    assert CURVE_POINTS / 2 <= len(curve) <= CURVE_POINTS
    assert [point.step for point in curve] == list(range(1, steps + 1, apart))


def test_a_record_that_went_through_a_checkpoint_goes_on_as_if_it_had_not():
    stored = json.loads(json.dumps(after_steps(RunRecord(), 700).after_measurement(1.5).as_json()))
    assert stored == after_steps(RunRecord(), 700).after_measurement(1.5).as_json()
    again = after_steps(RunRecord.from_json(stored), 900)
    assert again == after_steps(after_steps(RunRecord(), 700).after_measurement(1.5), 900)
    assert isinstance(again.curve[0], CurvePoint)


def test_without_measurements_the_last_step_is_taken():
    record = after_steps(RunRecord(), 4)
    assert record.best is None and record.taken_step == 4 and not record.is_past_its_best


@pytest.mark.parametrize(
    ("losses", "taken", "ends"),
    [
        pytest.param((2.0,), 1, False, id="one measurement"),
        pytest.param((2.0, 1.0, 0.5), 3, False, id="it still falls"),
        pytest.param((1.0, 2.0), 1, False, id="one worse"),
        pytest.param((1.0, 2.0, 1.5), 1, True, id="two worse in a row, though the second is better than the first"),
        pytest.param((1.0, 2.0, 0.9, 1.0), 3, False, id="a worse one between two better ones"),
        pytest.param((1.0, 1.0, 1.0), 1, True, id="no better is as bad as worse, and the earliest is taken"),
    ],
)
def test_the_lowest_heldout_loss_is_taken_and_two_that_are_no_better_end_the_run(losses, taken, ends):
    record = measured(*losses)
    assert record.taken_step == taken and record.is_past_its_best == ends
