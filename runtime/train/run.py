"""The training phase of a job: samples in, a trained adapter out, checkpoints in between.

In:  an EngineSource, the version to train on, the data and its schedule, the run's folder.
Out: TrainedAdapter. Paused, after a checkpoint, when the user stops it.
The activations are free again when it returns.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..adapter.flat_vector import load_into, tensors_of
from ..adapter.tensors import AdapterTensors
from ..bundle.plan import Bucket
from ..engine.engine import EngineSource
from ..engine.memory import available_bytes, choose_bucket, peak_bytes
from ..errors import MftError
from ..storage.audit import AuditLog
from ..versions.record import OpenedVersion
from .progress import StepLine
from .record import WORSE_IN_A_ROW, RunRecord
from .replay import cut_to_width
from .schedule import TrainingSchedule
from .trainer import Trainer, TrainingData


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
        """data.replay: whole, it is cut to the bucket. identity: what must be the same for a checkpoint to belong to this run."""
        plan, threads, weights_bytes = self.engines.plan, self.engines.threads, on.model.size_bytes
        free, settings = available_bytes(), schedule.settings
        computed = [*data.samples, *(data.heldout if settings.early_stop else ())]
        bucket = choose_bucket(plan, weights_bytes, threads, max(len(sample.token_ids) for sample in computed), free)
        plan_bytes = peak_bytes(plan, weights_bytes, threads, bucket)
        rows = settings.replay.rows
        replay = cut_to_width(data.replay, Bucket.parse(bucket).tokens) if rows else ()
        self.say(
            f"training {schedule.samples} samples, {schedule.steps} steps of {settings.batch_samples}{f' and {rows} of replay' if rows else ''}, "
            f"bucket {bucket}, {threads} threads; "
            f"the plan needs {plan_bytes / 2**20:,.0f} MB, free: {'unknown' if free is None else f'{free / 2**20:,.0f} MB'}"
        )
        with self.engines.open(on.model) as engine:
            trainer = Trainer(engine, bucket, replace(data, replay=replay), schedule, self.folder, identity)
            self._begin(trainer, on.adapter, resume)
            record = self._steps(trainer)
            self._say_what_is_taken(record, schedule.steps)
            return TrainedAdapter(record, tensors_of(plan.adapter, trainer.trained), plan_bytes)

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
        line = StepLine(trainer.schedule.settings.replay.loss)
        with pause_wishes() as wishes:
            try:
                record = trainer.run(line.show, lambda: bool(wishes))
            except MftError as error:
                self.audit.append("stopped", step=trainer.record.step, reason=type(error).__name__)
                raise
            finally:
                line.end()
        self.audit.append(
            "trained", steps=record.step, taken_step=record.taken_step, loss_first=record.loss_first, loss_last=record.loss_last,
            heldout_loss=None if record.best is None else record.best.loss, tokens=record.tokens,
        )  # fmt: skip
        return record

    def _say_what_is_taken(self, record: RunRecord, steps: int) -> None:
        """When it is not the last step."""
        if record.step < steps:
            self.say(f"stopped after step {record.step} of {steps}: the held-out loss has not fallen for {WORSE_IN_A_ROW} epochs")
        if record.best is not None and record.taken_step < record.step:
            last = record.heldout[-1].loss
            self.say(f"taken: step {record.best.step}, whose held-out loss was the lowest: {record.best.loss:.3f}; after the last step {last:.3f}")


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
