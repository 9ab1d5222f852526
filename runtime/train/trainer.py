"""Run the optimizer steps of a schedule, with checkpoints, pausing and resuming.

In:  an Engine, the samples, a TrainingSchedule, the run's folder.
Out: TrainResult; the adapter's parameters in the trainer's state.
A step depends on nothing but its number and the state before it, so a resumed run equals an uninterrupted one bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..adapter.flat_vector import initialise
from ..engine.engine import Engine
from ..engine.packing import Tokens, label_count, pack
from ..engine.tensors import STATE_VECTORS
from ..errors import MftError, Paused, UserError
from ..storage import checkpoint
from .schedule import TrainingSchedule
from .step import TrainStep


@dataclass(frozen=True)
class StepReport:
    """One finished step."""

    step: int
    steps: int
    loss: float
    """mean over the step's label tokens, in nats"""
    gradient_norm: float
    tokens_per_second: float
    """of this session so far, padding not counted"""
    seconds_left: float


@dataclass
class RunRecord:
    """What is known of a run besides its vectors; goes into every checkpoint."""

    step: int = 0
    loss_first: float = 0.0
    loss_last: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


class Trainer:
    """One run over one bucket."""

    def __init__(
        self, engine: Engine, bucket: str, samples: Sequence[Tokens], schedule: TrainingSchedule, folder: Path, identity: Mapping[str, Any]
    ) -> None:
        """identity: what must be the same for a checkpoint to belong to this run (data, base, recipe, seed, steps)."""
        self.step_runner = TrainStep(engine, bucket)
        self.samples, self.schedule, self.folder = samples, schedule, folder
        self.identity = dict(identity)
        self.record = RunRecord()

    @property
    def parameters(self) -> np.ndarray:
        """The adapter's flat vector."""
        return self.step_runner.state["parameters"]

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
        for name in STATE_VECTORS:
            self.step_runner.state[name][:] = found.state[name]
        self.record = RunRecord(**found.meta["record"])
        return found.passed_over

    def save(self) -> None:
        """Write a checkpoint of the state after the last finished step."""
        state = {name: self.step_runner.state[name] for name in STATE_VECTORS}
        checkpoint.save(self.folder, state, {"identity": self.identity, "record": asdict(self.record)})

    def run(self, report: Callable[[StepReport], None], wants_pause: Callable[[], bool]) -> RunRecord:
        """Finish the schedule. Paused, after a checkpoint, when wants_pause() says so between two micro-steps."""
        begun, first = time.monotonic(), self.record
        tokens_before, seconds_before = first.tokens, first.seconds
        while self.record.step < self.schedule.steps:
            try:
                loss, norm, tokens = self._step(self.record.step + 1, wants_pause)
            except _Interrupted:
                self.save()
                raise Paused(f"paused after step {self.record.step} of {self.schedule.steps}; go on with the same command and --resume") from None
            r = self.record
            elapsed = time.monotonic() - begun
            self.record = RunRecord(r.step + 1, loss if r.step == 0 else r.loss_first, loss, r.tokens + tokens, seconds_before + elapsed)
            rate = (self.record.tokens - tokens_before) / max(elapsed, 1e-9)
            left = (self.schedule.steps - self.record.step) * elapsed / (self.record.step - first.step)
            report(StepReport(self.record.step, self.schedule.steps, loss, norm, rate, left))
            if self.record.step % self.schedule.settings.checkpoint_every_steps == 0 or self.record.step == self.schedule.steps:
                self.save()
        return self.record

    def _step(self, step: int, wants_pause: Callable[[], bool]) -> tuple[float, float, int]:
        """One optimizer step: (mean loss, gradient norm, tokens)."""
        runner = self.step_runner
        chosen = [self.samples[i] for i in self.schedule.batch(step)]
        labels = sum(label_count(sample) for sample in chosen)
        total, tokens = 0.0, 0
        runner.state["gradient"][:] = 0
        for batch in pack(chosen, runner.batch, runner.width):
            if wants_pause():
                raise _Interrupted
            total += runner.accumulate(batch, labels)
            tokens += batch.tokens
        loss = total / labels
        if not np.isfinite(loss):
            raise MftError(f"step {step}: the loss is {loss}; {runner.first_bad_layer()}; the last checkpoint is kept, try a smaller learning rate")
        norm = runner.update(self.schedule.learning_rate(step), step, self.schedule.settings.optimizer)
        return loss, norm, tokens


class _Interrupted(Exception):
    """The user wants to pause."""
