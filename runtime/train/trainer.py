"""Run the optimizer steps of a schedule, with checkpoints, pausing and resuming.

In:  an Engine, TrainingData, a TrainingSchedule, the run's folder.
Out: RunRecord; the adapter's parameters in the trainer's state.
A step, and a measurement after it, depends on nothing but its number and the state before it, so a resumed run equals an
uninterrupted one bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..adapter.flat_vector import initialise
from ..engine.engine import Engine
from ..engine.packing import PackedBatch, Tokens, label_count, pack
from ..engine.tensors import BEST, STATE_VECTORS
from ..errors import MftError, Paused, UserError
from ..storage import checkpoint
from .record import RunRecord
from .schedule import TrainingSchedule
from .step import TrainStep

Learn = Callable[[PackedBatch, int, float], float]
"""adds a micro-batch's gradient: (batch, labels of the step, weight) → summed loss"""


@dataclass(frozen=True)
class TrainingData:
    """What a run learns from and is measured on."""

    samples: Sequence[Tokens]
    """the owner's"""
    replay: Sequence[Tokens] = ()
    """what the base itself says; empty when the schedule has no replay"""
    heldout: Sequence[Tokens] = ()
    """the owner's that are not trained on; empty: nothing is measured"""


@dataclass(frozen=True)
class StepReport:
    """One finished step."""

    step: int
    steps: int
    loss: float
    """mean over the step's label tokens, in nats"""
    replay_loss: float | None
    """mean over the step's replay positions, in nats: with loss kl how far the model has moved from its base; None without replay"""
    heldout_loss: float | None
    """of the newest measurement: mean over the held-out label tokens, in nats; None before the first"""
    gradient_norm: float
    tokens_per_second: float
    """of this session so far, padding not counted"""
    seconds_left: float


class Trainer:
    """One run over one bucket."""

    def __init__(
        self, engine: Engine, bucket: str, data: TrainingData, schedule: TrainingSchedule, folder: Path, identity: Mapping[str, Any]
    ) -> None:
        """identity: what must be the same for a checkpoint to belong to this run (data, base, recipe, seed, steps)."""
        self.step_runner = TrainStep(engine, bucket)
        self.data, self.schedule, self.folder = data, schedule, folder
        self.identity = dict(identity)
        self.record = RunRecord()
        self._measures = schedule.settings.early_stop and any(map(label_count, data.heldout))

    @property
    def parameters(self) -> np.ndarray:
        """The adapter's flat vector after the last step."""
        return self.step_runner.state["parameters"]

    @property
    def trained(self) -> np.ndarray:
        """The flat vector that the run ends with: the best one that was measured, or that of the last step when none was."""
        return self.parameters if self.record.best is None else self.step_runner.state[BEST]

    def begin(self) -> None:
        """Start values, and no checkpoint of an older run."""
        checkpoint.discard(self.folder)
        initialise(self.step_runner.engine.plan.adapter, self.parameters, self.schedule.settings.seed)

    def resume(self) -> tuple[str, ...]:
        """Go on from the newest intact checkpoint; returns what to tell the user. UserError when there is none for this run."""
        found = checkpoint.load_newest(self.folder)
        if found is None:
            raise UserError("--resume", "there is no interrupted run in this workspace", remedy="leave --resume away to start one")
        stored = found.meta["identity"]
        different = [name for name, value in self.identity.items() if stored.get(name) != value]
        if different:
            raise UserError("--resume", f"the interrupted run has another {', '.join(different)}",
                            remedy="give the same data and options as before, or leave --resume away to start anew")  # fmt: skip
        self.record = RunRecord.from_json(found.meta["record"])
        for name in self._kept_vectors():
            self.step_runner.state[name][:] = found.state[name]
        return found.passed_over

    def save(self) -> None:
        """Write a checkpoint of the state after the last finished step."""
        state = {name: self.step_runner.state[name] for name in self._kept_vectors()}
        checkpoint.save(self.folder, state, {"identity": self.identity, "record": self.record.as_json()})

    def _kept_vectors(self) -> list[str]:
        """What a checkpoint holds: the best parameters once there are some."""
        return [name for name in STATE_VECTORS if name != BEST or self.record.best is not None]

    def run(self, report: Callable[[StepReport], None], wants_pause: Callable[[], bool]) -> RunRecord:
        """Finish the schedule, or stop early. Paused, after a checkpoint, when wants_pause() says so between two micro-steps."""
        begun, first = time.monotonic(), self.record
        try:
            self._measure_if_due(wants_pause)
            while not self._is_finished():
                loss, replay_loss, norm, tokens = self._step(self.record.step + 1, wants_pause)
                elapsed = time.monotonic() - begun
                self.record = self.record.after_step(loss, replay_loss, tokens, first.seconds + elapsed)
                self._save_if_due()
                report(self._report(first, elapsed, replay_loss, norm))
                self._measure_if_due(wants_pause)
        except _Interrupted:
            self.save()
            raise Paused(f"paused after step {self.record.step} of {self.schedule.steps}; go on with the same command and --resume") from None
        return self.record

    def _is_finished(self) -> bool:
        return self.record.step == self.schedule.steps or self.record.is_past_its_best

    def _save_if_due(self) -> None:
        step = self.record.step
        if step % self.schedule.settings.checkpoint_every_steps == 0 or step == self.schedule.steps:
            self.save()

    def _report(self, first: RunRecord, elapsed: float, replay_loss: float | None, norm: float) -> StepReport:
        """first: as the record was when this session began, `elapsed` seconds ago."""
        record, steps = self.record, self.schedule.steps
        rate = (record.tokens - first.tokens) / max(elapsed, 1e-9)
        left = (steps - record.step) * elapsed / (record.step - first.step)
        heldout_loss = record.heldout[-1].loss if record.heldout else None
        return StepReport(record.step, steps, record.loss_last, replay_loss, heldout_loss, norm, rate, left)

    def _measure_if_due(self, wants_pause: Callable[[], bool]) -> None:
        """At the end of every epoch and of the run: the held-out loss, and a copy of the parameters when it is the lowest so far."""
        step = self.record.step
        is_end = step > 0 and (step % self.schedule.steps_per_epoch == 0 or step == self.schedule.steps)
        if not self._measures or not is_end or (self.record.heldout and self.record.heldout[-1].step == step):
            return
        self.record = self.record.after_measurement(self._heldout_loss(step, wants_pause))
        if self.record.best == self.record.heldout[-1]:
            self.step_runner.state[BEST][:] = self.parameters
        if self.record.is_past_its_best:
            self.save()

    def _heldout_loss(self, step: int, wants_pause: Callable[[], bool]) -> float:
        """Mean over the label tokens of the held-out samples, in nats."""
        total, labels = 0.0, sum(map(label_count, self.data.heldout))
        for batch in pack(self.data.heldout, self.step_runner.batch, self.step_runner.width):
            if wants_pause():
                raise _Interrupted
            total += self.step_runner.score(batch)
        return self._finite(step, "held-out loss", total / labels)

    def _step(self, step: int, wants_pause: Callable[[], bool]) -> tuple[float, float | None, float, int]:
        """One optimizer step: (mean loss, mean loss of the replay, gradient norm, tokens)."""
        runner, settings, data = self.step_runner, self.schedule.settings, self.data
        runner.state["gradient"][:] = 0
        loss, tokens = self._accumulate(step, [data.samples[i] for i in self.schedule.batch(step)], runner.accumulate, 1.0, wants_pause)
        replay_loss = None
        if settings.replay.rows:
            chosen = [data.replay[i] for i in self.schedule.replay_batch(step, len(data.replay))]
            learn = runner.distill if settings.replay.loss == "kl" else runner.accumulate
            replay_loss, more = self._accumulate(step, chosen, learn, settings.replay.weight, wants_pause)
            tokens += more
        norm = runner.update(self.schedule.learning_rate(step), step, settings.optimizer)
        return loss, replay_loss, norm, tokens

    def _accumulate(self, step: int, chosen: Sequence[Tokens], learn: Learn, weight: float, wants_pause: Callable[[], bool]) -> tuple[float, int]:
        """Add the gradient of weight × mean loss over these samples: (mean loss, tokens)."""
        labels = sum(label_count(sample) for sample in chosen)
        total, tokens = 0.0, 0
        for batch in pack(chosen, self.step_runner.batch, self.step_runner.width):
            if wants_pause():
                raise _Interrupted
            total += learn(batch, labels, weight)
            tokens += batch.tokens
        return self._finite(step, "loss", total / labels), tokens

    def _finite(self, step: int, name: str, loss: float) -> float:
        if not np.isfinite(loss):
            where = self.step_runner.first_bad_layer()
            raise MftError(f"step {step}: the {name} is {loss}; {where}; the last checkpoint is kept, try a smaller learning rate")
        return loss


class _Interrupted(Exception):
    """The user wants to pause."""
