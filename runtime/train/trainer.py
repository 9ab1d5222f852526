"""Run the optimizer steps of a schedule, with checkpoints, pausing and resuming.

In:  an Engine, the samples and the replay, a TrainingSchedule, the run's folder.
Out: RunRecord; the adapter's parameters in the trainer's state.
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
from ..engine.packing import PackedBatch, Tokens, label_count, pack
from ..engine.tensors import STATE_VECTORS
from ..errors import MftError, Paused, UserError
from ..storage import checkpoint
from .schedule import TrainingSchedule
from .step import TrainStep

Learn = Callable[[PackedBatch, int, float], float]
"""adds a micro-batch's gradient: (batch, labels of the step, weight) → summed loss"""


@dataclass(frozen=True)
class StepReport:
    """One finished step."""

    step: int
    steps: int
    loss: float
    """mean over the step's label tokens, in nats"""
    replay_loss: float | None
    """mean over the step's replay positions, in nats: with loss kl how far the model has moved from its base; None without replay"""
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
        self,
        engine: Engine,
        bucket: str,
        samples: Sequence[Tokens],
        schedule: TrainingSchedule,
        folder: Path,
        identity: Mapping[str, Any],
        replay: Sequence[Tokens] = (),
    ) -> None:
        """identity: what must be the same for a checkpoint to belong to this run (data, base, recipe, seed, steps)."""
        self.step_runner = TrainStep(engine, bucket)
        self.samples, self.schedule, self.folder, self.replay = samples, schedule, folder, replay
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
                loss, replay_loss, norm, tokens = self._step(self.record.step + 1, wants_pause)
            except _Interrupted:
                self.save()
                raise Paused(f"paused after step {self.record.step} of {self.schedule.steps}; go on with the same command and --resume") from None
            r = self.record
            elapsed = time.monotonic() - begun
            self.record = RunRecord(r.step + 1, loss if r.step == 0 else r.loss_first, loss, r.tokens + tokens, seconds_before + elapsed)
            rate = (self.record.tokens - tokens_before) / max(elapsed, 1e-9)
            left = (self.schedule.steps - self.record.step) * elapsed / (self.record.step - first.step)
            report(StepReport(self.record.step, self.schedule.steps, loss, replay_loss, norm, rate, left))
            if self.record.step % self.schedule.settings.checkpoint_every_steps == 0 or self.record.step == self.schedule.steps:
                self.save()
        return self.record

    def _step(self, step: int, wants_pause: Callable[[], bool]) -> tuple[float, float | None, float, int]:
        """One optimizer step: (mean loss, mean loss of the replay, gradient norm, tokens)."""
        runner, settings = self.step_runner, self.schedule.settings
        runner.state["gradient"][:] = 0
        loss, tokens = self._accumulate(step, [self.samples[i] for i in self.schedule.batch(step)], runner.accumulate, 1.0, wants_pause)
        replay_loss = None
        if settings.replay.rows:
            chosen = [self.replay[i] for i in self.schedule.replay_batch(step, len(self.replay))]
            learn = runner.distill if settings.replay.loss == "kl" else runner.accumulate
            replay_loss, more = self._accumulate(step, chosen, learn, settings.replay.weight, wants_pause)
            tokens += more
        norm = runner.update(self.schedule.learning_rate(step), step, settings.optimizer)
        return loss, replay_loss, norm, tokens

    def _accumulate(self, step: int, chosen: Sequence[Tokens], learn: Learn, weight: float, wants_pause: Callable[[], bool]) -> tuple[float, int]:
        """Add the gradient of weight × mean loss over these samples: (mean loss, tokens)."""
        runner = self.step_runner
        labels = sum(label_count(sample) for sample in chosen)
        total, tokens = 0.0, 0
        for batch in pack(chosen, runner.batch, runner.width):
            if wants_pause():
                raise _Interrupted
            total += learn(batch, labels, weight)
            tokens += batch.tokens
        loss = total / labels
        if not np.isfinite(loss):
            raise MftError(f"step {step}: the loss is {loss}; {runner.first_bad_layer()}; the last checkpoint is kept, try a smaller learning rate")
        return loss, tokens


class _Interrupted(Exception):
    """The user wants to pause."""
