"""Whole runs on the tiny model: measuring, stopping early, pausing and resuming. "The same" means the same bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mobilefinetuner.runtime.engine.tensors import BEST
from mobilefinetuner.runtime.errors import Paused
from mobilefinetuner.runtime.storage import checkpoint
from mobilefinetuner.runtime.train.record import RunRecord
from mobilefinetuner.runtime.train.replay import ReplaySettings
from mobilefinetuner.runtime.train.schedule import TrainingSchedule, TrainSettings
from mobilefinetuner.runtime.train.step import AdamW
from mobilefinetuner.runtime.train.trainer import StepReport, Trainer, TrainingData

from tests.oracles.engine_case import Sample
from tests.runtime.train.test_step import sample
from tests.support.engine_trial import EngineTrial

SETTINGS = TrainSettings(
    learning_rate=3e-2, warmup_share=0.0, schedule="constant", batch_samples=2, epochs=8, seed=3, checkpoint_every_steps=3,
    optimizer=AdamW(0.9, 0.999, 1e-8, 0.0, 1.0, 0.0), replay=ReplaySettings(1, "kl", 1.0), early_stop=True,
)  # fmt: skip
SAMPLES = [sample(30, seed) for seed in range(4)]
STRANGERS = [sample(28, seed) for seed in (50, 51, 52)]
"""random tokens that nothing which is learned from SAMPLES helps to predict"""
REPLAY = [Sample(sample(20, seed).token_ids, np.ones(20, np.uint8)) for seed in (70, 71, 72)]
IDENTITY = {"data": "these"}


def trainer(tiny: EngineTrial, folder: Path, heldout=(), **changes) -> Trainer:
    settings = dataclasses.replace(SETTINGS, **changes)
    schedule = TrainingSchedule.of(settings, len(SAMPLES), None)
    return Trainer(tiny.engine, "2x32", TrainingData(SAMPLES, REPLAY, heldout), schedule, folder, IDENTITY)


def finished(run: Trainer, wants_pause: Callable[[], bool] = lambda: False) -> tuple[RunRecord, list[StepReport]]:
    reports: list[StepReport] = []
    return run.run(reports.append, wants_pause), reports


def without_seconds(record: RunRecord) -> RunRecord:
    return dataclasses.replace(record, seconds=0.0)


def test_a_run_whose_heldout_loss_rises_stops_and_takes_the_epoch_where_it_was_lowest(tiny, tmp_path):
    run = trainer(tiny, tmp_path / "a", STRANGERS)
    run.begin()
    record, reports = finished(run)
    losses = [m.loss for m in record.heldout]
    assert [m.step for m in record.heldout] == [2, 4, 6] and losses[0] < min(losses[1:])
    assert (record.step, record.taken_step) == (6, 2) and len(reports) == 6
    short = trainer(tiny, tmp_path / "b", STRANGERS, epochs=1)
    short.begin()
    finished(short)
    np.testing.assert_array_equal(run.trained, short.trained)
    assert not np.array_equal(run.trained, run.parameters)


def test_a_run_whose_heldout_loss_falls_goes_to_its_end_and_takes_the_last_epoch(tiny, tmp_path):
    run = trainer(tiny, tmp_path, SAMPLES, learning_rate=3e-3, epochs=4)
    run.begin()
    record, reports = finished(run)
    assert record.step == record.taken_step == reports[-1].step == 8
    np.testing.assert_array_equal(run.trained, run.parameters)


def test_the_heldout_loss_is_the_mean_over_its_label_tokens(tiny, tmp_path):
    """Against the training pass's own loss; 1e-6 for the order of the sums."""
    run = trainer(tiny, tmp_path, STRANGERS, epochs=1)
    run.begin()
    record, _ = finished(run)
    wanted, _ = tiny.gradient(run.step_runner, STRANGERS)
    assert record.heldout[0].loss == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("changes", [{"heldout": STRANGERS, "early_stop": False}, {}], ids=["switched off", "no held-out samples"])
def test_without_measurements_a_run_goes_to_its_end_and_takes_the_last_step(tiny, tmp_path, changes):
    run = trainer(tiny, tmp_path, **changes)
    run.begin()
    record, reports = finished(run)
    assert record.heldout == () and record.step == record.taken_step == 16
    assert all(report.heldout_loss is None for report in reports)
    assert BEST not in checkpoint.load_newest(tmp_path).state
    np.testing.assert_array_equal(run.trained, run.parameters)


def test_measuring_changes_nothing_that_is_trained(tiny, tmp_path):
    trained = []
    for name, heldout in (("measured", STRANGERS), ("not measured", ())):
        run = trainer(tiny, tmp_path / name, heldout, epochs=2)
        run.begin()
        finished(run)
        trained.append(run.parameters.copy())
    np.testing.assert_array_equal(*trained)


@pytest.mark.parametrize("pause_at", [*range(1, 9), 11, 12, 17, 18])
def test_a_run_that_was_paused_between_any_two_micro_steps_ends_as_one_that_was_not(tiny, tmp_path, pause_at):
    """An epoch asks 6 times: per step once for the samples and once for the replay, and twice for the held-out samples."""
    whole = trainer(tiny, tmp_path / "whole", STRANGERS)
    whole.begin()
    wanted, _ = finished(whole)
    asked = iter(range(1, 1000))
    stopped = trainer(tiny, tmp_path / "stopped", STRANGERS)
    stopped.begin()
    with pytest.raises(Paused):
        finished(stopped, lambda: next(asked) == pause_at)
    resumed = trainer(tiny, tmp_path / "stopped", STRANGERS)
    resumed.resume()
    record, _ = finished(resumed)
    assert without_seconds(record) == without_seconds(wanted)
    for name in ("parameters", "first_moment", "second_moment", BEST):
        np.testing.assert_array_equal(resumed.step_runner.state[name], whole.step_runner.state[name])


def test_a_run_that_ended_early_is_resumed_to_the_same_end(tiny, tmp_path):
    run = trainer(tiny, tmp_path, STRANGERS)
    run.begin()
    wanted, _ = finished(run)
    again = trainer(tiny, tmp_path, STRANGERS)
    again.resume()
    record, reports = finished(again)
    assert record == wanted and not reports
    np.testing.assert_array_equal(again.trained, run.trained)
