"""One optimizer step on the adapter: forward, loss, backward, accumulate, clip, AdamW.

In:  PackedBatches of one bucket: with targets to predict, or with positions to stay close to the base at.
Out: the adapter's parameters, changed in place; losses in nats.
Only the hidden states between blocks are kept (activation checkpointing); block_vjp computes a block's inside again. The base
is the same weights without the adapter: one more forward pass, no second copy.
"""

# Shapes: M rows of the bucket · D model width · L layers · C label rows per head call

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bundle.plan import Bucket, Hyperparameters
from ..engine.engine import Engine
from ..engine.head import score_rows
from ..engine.kernel_library import Program
from ..engine.packing import PackedBatch
from ..engine.tensors import TensorMemory, adapter_tensors, distills, layer_elements, training_tensors
from ..errors import MftError


@dataclass(frozen=True)
class AdamW:
    """Settings of the optimizer; the formula is in the kernel adamw_step."""

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    max_grad_norm: float
    """global norm above which the gradient is scaled down; 0: no clipping"""
    max_update: float
    """largest absolute change of one parameter in one step; 0: no limit"""


class TrainStep:
    """The programs of one bucket over one block of memory. `state` may be shared by the steps of several buckets."""

    def __init__(self, engine: Engine, bucket: str, state: TensorMemory | None = None) -> None:
        self.engine, self.bucket = engine, bucket
        self.batch, self.width = Bucket.parse(bucket)
        plan = engine.plan
        self.state = state or TensorMemory(adapter_tensors(plan))
        self.memory = TensorMemory(training_tensors(plan, bucket))
        self._layer_size = layer_elements(plan)
        scratch = self.memory.address("scratch")
        shared = {"start": self.memory.address("start")}
        adapters = [engine.adapter_addresses(layer, self.state, "parameters") for layer in range(plan.model.layers)]
        gradients = self._gradient_addresses()
        forward = [{**shared, **adapters[i], "x": self._hidden(i), "y": self._hidden(i + 1)} for i in range(plan.model.layers)]
        backward = [
            {**shared, **adapters[i], **gradients, "x": self._hidden(i), "dy": self._d_hidden(i + 1), "dx": self._d_hidden(i)}
            for i in range(plan.model.layers)
        ]
        self._forward = engine.block_programs("block_forward", bucket, forward, scratch)
        self._backward = engine.block_programs("block_vjp", bucket, backward, scratch)
        self._embed = engine.program(plan.entry("embed", bucket), {"ids": self.memory.address("ids"), "y": self._hidden(0)}, scratch)
        head = {name: self.memory.address(name) for name in ("targets", "scale", "loss")}
        head |= {"x": self.memory.address("head_x"), "dx": self.memory.address("head_dx")}
        self._head_loss = engine.program(plan.entry("head_loss"), head, scratch)
        self._head_score = engine.program(plan.entry("head_score"), head, scratch)
        self._base: list[Program] = []
        if distills(plan):
            self._base = engine.block_programs("block_base", bucket, self._base_operands(shared), scratch)
            self._head_distill = engine.program(plan.entry("head_distill"), {**head, "teacher_x": self.memory.address("teacher_x")}, scratch)
        update = {"w": "parameters", "m": "first_moment", "v": "second_moment", "g": "gradient", "hyper": "hyper", "total": "norm"}
        addresses = {name: self.state.address(tensor) for name, tensor in update.items()}
        self._adamw = engine.program(plan.entry("adamw_step"), addresses, 0)
        self._sum_squares = engine.program(plan.entry("sum_squares"), addresses, 0)

    def _hidden(self, index: int) -> int:
        return self.memory["hidden"][index].ctypes.data

    def _d_hidden(self, index: int) -> int:
        return self.memory["d_hidden"][index % 2].ctypes.data

    def _base_operands(self, shared: dict[str, int]) -> list[dict[str, int]]:
        """The base's hidden states alternate in d_hidden, which nobody needs before the way back; the last ones stay in base_hidden."""
        layers = self.engine.plan.model.layers
        places = [self._hidden(0), *(self._d_hidden(i) for i in range(1, layers)), self.memory.address("base_hidden")]
        return [{**shared, "x": places[i], "y": places[i + 1]} for i in range(layers)]

    def _gradient_addresses(self) -> dict[str, int]:
        """Where block_vjp leaves a layer's gradients: in layer_gradient, laid out as one layer of the flat vector."""
        base = self.memory.address("layer_gradient") - self.state.address("parameters")
        first = self.engine.adapter_addresses(0, self.state, "parameters", prefix="d")
        return {name: base + address for name, address in first.items()}

    def forward(self, batch: PackedBatch) -> None:
        """Fill hidden[0..L] for this micro-batch."""
        self._load(batch)
        for program in self._forward:
            program.run()

    def _load(self, batch: PackedBatch) -> None:
        """Fill hidden[0]."""
        self.memory["ids"][:] = batch.ids
        self.memory["start"][:] = batch.start
        self._embed.run()

    def accumulate(self, batch: PackedBatch, labels_in_step: int, weight: float = 1.0) -> float:
        """Add the micro-batch's share of the step's mean-loss gradient, times weight, to `gradient`; returns its summed loss in nats.

        labels_in_step: label tokens of the whole accumulated batch, by which the sum is divided.
        """
        self.forward(batch)
        self.memory["scale"][:] = weight / labels_in_step
        losses = score_rows(self._head_loss, self.memory, self.memory["hidden"][-1], batch.targets, self._d_top())
        self._backpropagate()
        return _total(losses)

    def score(self, batch: PackedBatch) -> float:
        """The micro-batch's summed loss in nats; nothing is accumulated."""
        self.forward(batch)
        return _total(score_rows(self._head_score, self.memory, self.memory["hidden"][-1], batch.targets))

    def distill(self, batch: PackedBatch, positions_in_step: int, weight: float = 1.0) -> float:
        """As accumulate(), with KL(base ‖ tuned) over the vocabulary at every position that has a target; which token it is does not matter.

        Only for a plan that distills.
        """
        self._load(batch)
        for program in (*self._base, *self._forward):
            program.run()
        self.memory["scale"][:] = weight / positions_in_step
        losses = score_rows(self._head_distill, self.memory, self.memory["hidden"][-1], batch.targets, self._d_top(), self.memory["base_hidden"])
        self._backpropagate()
        return _total(losses)

    def _d_top(self) -> np.ndarray:
        """The gradient with respect to the last block's output, zeroed  →  [M,D] f32"""
        d_top = self.memory["d_hidden"][len(self._forward) % 2]
        d_top[:] = 0
        return d_top

    def _backpropagate(self) -> None:
        """From d_top through all blocks; their matrices' gradients are added to `gradient`."""
        for layer in range(len(self._backward) - 1, -1, -1):
            self._backward[layer].run()
            at = layer * self._layer_size
            self.state["gradient"][at : at + self._layer_size] += self.memory["layer_gradient"]

    def input_gradient(self) -> np.ndarray:
        """Gradient with respect to the embeddings after accumulate()  →  [M,D] f32"""
        return self.memory["d_hidden"][0]

    def gradient_norm(self) -> float:
        """Global L2 norm of the accumulated gradient."""
        self._sum_squares.run()
        return float(np.sqrt(self.state["norm"][0]))

    def update(self, learning_rate: float, step: int, optimizer: AdamW) -> float:
        """AdamW step number `step` (from 1) on the accumulated gradient, which is then zeroed; returns its norm before clipping."""
        norm = self.gradient_norm()
        if not np.isfinite(norm):
            raise MftError(f"step {step}: the gradient's norm is {norm}; {self.first_bad_layer()}")
        clip = optimizer.max_grad_norm
        scale = clip / norm if clip and norm > clip else 1.0
        self.state["hyper"][:] = Hyperparameters(
            learning_rate=learning_rate, beta1=optimizer.beta1, beta2=optimizer.beta2, epsilon=optimizer.epsilon,
            weight_decay=optimizer.weight_decay, bias_correction1=1.0 - optimizer.beta1**step, bias_correction2=1.0 - optimizer.beta2**step,
            gradient_scale=scale, max_update=optimizer.max_update or float(np.finfo(np.float32).max),
        )  # fmt: skip
        self._adamw.run()
        self.state["gradient"][:] = 0
        return norm

    def first_bad_layer(self) -> str:
        """Where the first NaN or Inf of the last forward pass stands, in words."""
        for index, hidden in enumerate(self.memory["hidden"]):
            if not np.isfinite(hidden).all():
                return "the embedding is not finite" if index == 0 else f"the first bad values left block {index - 1}"
        return "all block outputs are finite, so it arose in the head or on the way back"


def _total(losses: np.ndarray) -> float:
    return float(losses.sum(dtype=np.float64))
