"""An opened bundle as engine tests use it: adapter values in, losses, gradients and answers out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mobilefinetuner.runtime.adapter.flat_vector import view
from mobilefinetuner.runtime.bundle.plan import Plan
from mobilefinetuner.runtime.engine.decode import Decoder
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.engine.packing import pack
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.train.step import AdamW, TrainStep

from tests.oracles.engine_case import BETAS, EPSILON, LEARNING_RATES, MAX_GRAD_NORM, WEIGHT_DECAY, Pairs, Sample, course_batch

OPTIMIZER = AdamW(*BETAS, EPSILON, WEIGHT_DECAY, MAX_GRAD_NORM, 0.0)


def load_plan(bundle: Path) -> Plan:
    return Plan.from_json(json.loads((bundle / "plan.json").read_text(encoding="utf-8")))


@dataclass
class EngineTrial:
    """One engine at a time is open; `reopen` puts other weights or threads into its place."""

    bundle: Path
    plan: Plan
    engine: Engine
    steps: dict[str, TrainStep] = field(default_factory=dict)

    @classmethod
    def open(cls, bundle: Path, threads: int) -> EngineTrial:
        plan = load_plan(bundle)
        return cls(bundle, plan, Engine(plan, bundle / "kernels.so", GgufFile.open(bundle / "model.gguf"), threads))

    def close(self) -> None:
        self.engine.close()
        self.steps.clear()

    def reopen(self, weights: Path | None = None, threads: int = 2) -> None:
        self.close()
        self.engine = Engine(self.plan, self.bundle / "kernels.so", GgufFile.open(weights or self.bundle / "model.gguf"), threads)

    def step(self, bucket: str) -> TrainStep:
        """The training step of a bucket, with zeroed state apart from the parameters it had."""
        if bucket not in self.steps:
            self.steps[bucket] = TrainStep(self.engine, bucket)
        step = self.steps[bucket]
        for name in ("gradient", "first_moment", "second_moment"):
            step.state[name][:] = 0
        return step

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """[N, K] of every adapted projection."""
        names = dict.fromkeys(t.name.weight for t in self.plan.adapter.tensors)
        return {name: self.engine.weights.tensors[name].shape for name in names}

    def assign(self, step: TrainStep, pairs: Pairs) -> None:
        """Give the adapter these values."""
        step.state["parameters"][:] = 0
        for index, tensor in enumerate(self.plan.adapter.tensors):
            view(step.state["parameters"], self.plan.adapter, index)[:] = pairs[tensor.name.weight]["AB".index(tensor.name.matrix)]

    def gradient(self, step: TrainStep, samples: Sequence[Sample]) -> tuple[float, Mapping[str, np.ndarray]]:
        """Mean loss over the labels, and the gradient of every matrix by name."""
        batches = pack(samples, step.batch, step.width)
        labels = sum(b.labels for b in batches)
        loss = sum(step.accumulate(b, labels) for b in batches) / labels
        return loss, self.gradients_of(step)

    def gradients_of(self, step: TrainStep) -> Mapping[str, np.ndarray]:
        """The accumulated gradient of every matrix by name."""
        return {str(t.name): view(step.state["gradient"], self.plan.adapter, i) for i, t in enumerate(self.plan.adapter.tensors)}

    def train(self, step: TrainStep, course: list[Sample], steps: int) -> list[float]:
        """The loss before each of `steps` optimizer steps."""
        losses = []
        for index in range(steps):
            losses.append(self.gradient(step, course_batch(course, index))[0])
            step.update(LEARNING_RATES[self.plan.adapter.kind], index + 1, OPTIMIZER)
        return losses

    def answers(self, prompts: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[int]]:
        """Greedy continuation of each prompt by so many tokens."""
        decoder = Decoder(self.engine)
        return [list(decoder.generate(prompt, length, ())) for prompt, length in zip(prompts, lengths, strict=True)]
