"""How a run trains: settings, learning rate, data order. All of it a function of the step number, so that it can be resumed.

In:  the recipe's train section, the number of samples.
Out: the learning rate and the samples of any step, the same however often the run was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .replay import ReplaySettings, replay_rows
from .step import AdamW

REPLAY_ORDER = 1
"""sets the shuffles of the replay apart from those of the owner's data"""


@dataclass(frozen=True)
class TrainSettings:
    """The recipe's train section as the trainer needs it; the meanings are the recipe's."""

    learning_rate: float
    warmup_share: float
    schedule: Literal["linear", "cosine", "constant"]
    batch_samples: int
    epochs: int
    seed: int
    checkpoint_every_steps: int
    optimizer: AdamW
    replay: ReplaySettings
    early_stop: bool

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any], epochs: int | None, seed: int | None) -> TrainSettings:
        """epochs and seed: what the user asked for instead of the recipe's."""
        train = recipe["train"]
        own_epochs = recipe["scenario"].get("epochs")
        optimizer = AdamW(*(train[name] for name in ("beta1", "beta2", "epsilon", "weight_decay", "max_grad_norm", "max_update")))
        replay = ReplaySettings(replay_rows(train["batch_samples"], train["replay_share"]), train["replay_loss"], train["replay_weight"])
        return cls(
            train["learning_rate"], train["warmup_share"], train["schedule"], train["batch_samples"],
            epochs or own_epochs or train["epochs"], train["seed"] if seed is None else seed, train["checkpoint_every_steps"], optimizer, replay,
            train["early_stop"],
        )  # fmt: skip


@dataclass(frozen=True)
class TrainingSchedule:
    """The whole run: how many steps, and what each of them does."""

    settings: TrainSettings
    samples: int
    steps: int

    @classmethod
    def of(cls, settings: TrainSettings, samples: int, steps: int | None) -> TrainingSchedule:
        """steps: the user's own number of optimizer steps; None: all epochs."""
        return cls(settings, samples, steps or settings.epochs * math.ceil(samples / settings.batch_samples))

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.samples / self.settings.batch_samples)

    def learning_rate(self, step: int) -> float:
        """Of step 1..steps: a linear rise over the warm-up, then the schedule's way down.

        It would reach 0 one step after the last, so that no step is without effect; after the warm-up the rates are those of transformers.
        """
        s = self.settings
        warmup = round(s.warmup_share * self.steps)
        if step <= warmup:
            return s.learning_rate * step / warmup
        if s.schedule == "constant":
            return s.learning_rate
        left = 1.0 - (step - 1 - warmup) / max(1, self.steps - warmup)
        return s.learning_rate * (left if s.schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * left))

    def batch(self, step: int) -> list[int]:
        """Sample numbers of step 1..steps: each epoch is its own shuffle, its last batch may be short."""
        epoch, at = divmod(step - 1, self.steps_per_epoch)
        order = np.random.default_rng([self.settings.seed, epoch]).permutation(self.samples)
        size = self.settings.batch_samples
        return order[at * size : (at + 1) * size].tolist()

    def replay_batch(self, step: int, samples: int) -> list[int]:
        """Which of so many replay samples step 1..steps sees: one shuffle after the other, cut into equal parts."""
        rows = self.settings.replay.rows
        return [self._replay_at(place, samples) for place in range((step - 1) * rows, step * rows)]

    def _replay_at(self, place: int, samples: int) -> int:
        lap, at = divmod(place, samples)
        return int(np.random.default_rng([self.settings.seed, lap, REPLAY_ORDER]).permutation(samples)[at])
