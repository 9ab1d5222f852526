"""The training phase of a job: samples in, a trained adapter out, checkpoints in between.

In:  an EngineSource, the version to train on, the data and its schedule, the run's folder.
Out: TrainedAdapter. Paused, after a checkpoint, when the user stops it.
The activations are free again when it returns.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..adapter.flat_vector import load_into, tensors_of
from ..adapter.tensors import AdapterTensors
from ..bundle.plan import Bucket
from ..engine.engine import EngineSource
from ..engine.memory import available_bytes, choose_bucket, peak_bytes
from ..engine.packing import Tokens
from ..errors import MftError
from ..storage.audit import AuditLog
from ..versions.record import OpenedVersion
from .progress import StepLine
from .replay import cut_to_width
from .schedule import TrainingSchedule
from .trainer import RunRecord, Trainer


@dataclass(frozen=True)
class TrainingData:
    """What a run learns from."""

    samples: Sequence[Tokens]
    """the owner's"""
    replay: Sequence[Tokens]
    """what the base itself says, whole: they are cut to the bucket; empty when the schedule has no replay"""


@dataclass(frozen=True)
class TrainedAdapter:
    """What the training phase leaves."""

    record: RunRecord
    adapter: AdapterTensors
    plan_bytes: int
    """peak that the memory plan foresees for the bucket it ran in"""


@dataclass(frozen=True)
class TrainingRun:
    """Where a run computes, keeps its checkpoints, and reports to."""

    engines: EngineSource
    folder: Path
    audit: AuditLog
    say: Callable[[str], None]

    def train(self, on: OpenedVersion, data: TrainingData, schedule: TrainingSchedule, identity: Mapping[str, Any], resume: bool) -> TrainedAdapter:
        """identity: what must be the same for a checkpoint to belong to this run."""
        plan, threads, weights_bytes = self.engines.plan, self.engines.threads, on.model.size_bytes
        free = available_bytes()
        bucket = choose_bucket(plan, weights_bytes, threads, max(len(sample.token_ids) for sample in data.samples), free)
        plan_bytes = peak_bytes(plan, weights_bytes, threads, bucket)
        replay_rows = schedule.settings.replay.rows
        replay = cut_to_width(data.replay, Bucket.parse(bucket).tokens) if replay_rows else ()
        self.say(
            f"training {schedule.samples} samples, {schedule.steps} steps of {schedule.settings.batch_samples}"
            f"{f' and {replay_rows} of replay' if replay_rows else ''}, bucket {bucket}, {threads} threads; "
            f"the plan needs {plan_bytes / 2**20:,.0f} MB, free: {'unknown' if free is None else f'{free / 2**20:,.0f} MB'}"
        )
        with self.engines.open(on.model) as engine:
            trainer = Trainer(engine, bucket, data.samples, schedule, self.folder, identity, replay)
            self._begin(trainer, on.adapter, resume)
            record = self._steps(trainer)
            return TrainedAdapter(record, tensors_of(plan.adapter, trainer.parameters), plan_bytes)

    def _begin(self, trainer: Trainer, mounted: AdapterTensors | None, resume: bool) -> None:
        """Start values are drawn, or those of the adapter that the parent has mounted: it is trained on."""
        if resume:
            for notice in trainer.resume():
                self.say(f"note: {notice}")
            self.say(f"going on after step {trainer.record.step}")
        else:
            trainer.begin()
            if mounted is not None:
                load_into(self.engines.plan.adapter, trainer.parameters, mounted)
        self.audit.append("training", **trainer.identity, from_step=trainer.record.step)

    def _steps(self, trainer: Trainer) -> RunRecord:
        """All steps, with Ctrl-C and SIGTERM as wishes to pause."""
        line = StepLine()
        with pause_wishes() as wishes:
            try:
                record = trainer.run(line.show, lambda: bool(wishes))
            except MftError as error:
                self.audit.append("stopped", step=trainer.record.step, reason=type(error).__name__)
                raise
        self.audit.append("trained", steps=record.step, loss_first=record.loss_first, loss_last=record.loss_last, tokens=record.tokens)
        return record


@contextlib.contextmanager
def pause_wishes() -> Iterator[list[int]]:
    """A list that a first SIGINT or SIGTERM adds to; a second one ends the process as usual."""
    wishes: list[int] = []

    def wish(number: int, _frame: object) -> None:
        if wishes:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        wishes.append(number)

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wishes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
