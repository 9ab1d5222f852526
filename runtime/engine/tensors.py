"""Which memory the phases of the runtime take, tensor by tensor: the one list that allocation and the memory plan share.

In:  the plan, a bucket.
Out: TensorSpecs, each with the part of the memory formula it belongs to; TensorMemory lays them out in one block.
"""

# Shapes: B micro-batch · T tokens · M = B·T · D model width · L layers · C label rows per head call · P adapter parameters · X context rows

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..bundle.plan import MOUNTED, Bucket, Dtype, Hyperparameters, Plan, aligned, n_bytes
from .kernel_library import aligned_bytes

Part = Literal["adapter", "optimizer", "activations", "scratch"]
TRAINING_ENTRIES = ("block_forward", "block_base", "block_vjp", "head_loss", "head_score", "head_distill", "embed")
BEST = "best_parameters"
"""those with the lowest held-out loss so far"""
STATE_VECTORS = ("parameters", "first_moment", "second_moment", BEST)
"""what a checkpoint keeps of a run, at most: each as long as the adapter"""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a phase."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    part: Part

    @property
    def n_bytes(self) -> int:
        """With padding to the alignment."""
        return aligned(n_bytes(self.shape, self.dtype))


class TensorMemory:
    """One block of memory with a named view per tensor. Untouched pages cost nothing."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.n_bytes = sum(spec.n_bytes for spec in specs)
        self._memory = aligned_bytes(self.n_bytes)
        self._views: dict[str, np.ndarray] = {}
        offset = 0
        for spec in specs:
            size = n_bytes(spec.shape, spec.dtype)
            self._views[spec.name] = self._memory[offset : offset + size].view(spec.dtype).reshape(spec.shape)
            offset += spec.n_bytes

    def __getitem__(self, name: str) -> np.ndarray:
        return self._views[name]

    def address(self, name: str) -> int:
        """Where the tensor starts."""
        return self._views[name].ctypes.data


def adapter_tensors(plan: Plan) -> list[TensorSpec]:
    """The adapter's parameters, what AdamW keeps beside them, and the best ones so far."""
    size = (plan.adapter.size,)
    return [
        *mounted_tensors(plan),
        TensorSpec("gradient", size, "float32", "optimizer"),
        TensorSpec("first_moment", size, "float32", "optimizer"),
        TensorSpec("second_moment", size, "float32", "optimizer"),
        TensorSpec(BEST, size, "float32", "optimizer"),
        TensorSpec("hyper", (len(Hyperparameters._fields),), "float32", "optimizer"),
        TensorSpec("norm", (1,), "float32", "optimizer"),
    ]


def mounted_tensors(plan: Plan) -> list[TensorSpec]:
    """The adapter's parameters alone, for inference."""
    return [TensorSpec("parameters", (plan.adapter.size,), "float32", "adapter")]


def training_tensors(plan: Plan, bucket: str) -> list[TensorSpec]:
    """Inputs, block-boundary activations and scratch of one micro-step."""
    shape, model = Bucket.parse(bucket), plan.model
    m = shape.rows
    layer_size = layer_elements(plan)
    entries = [e for e in plan.entries if e.bucket in ("", bucket) and e.name in TRAINING_ENTRIES]
    return [
        TensorSpec("ids", (m,), "int32", "activations"),
        TensorSpec("start", shape, "int32", "activations"),
        TensorSpec("hidden", (model.layers + 1, m, model.d_model), "float32", "activations"),
        TensorSpec("d_hidden", (2, m, model.d_model), "float32", "activations"),
        TensorSpec("layer_gradient", (layer_size,), "float32", "activations"),
        *_head_tensors(plan),
        *(_teacher_tensors(plan, m) if distills(plan) else []),
        TensorSpec("scratch", (max(e.scratch_bytes for e in entries),), "uint8", "scratch"),
    ]


def distills(plan: Plan) -> bool:
    """Whether the bundle can train towards the base's own distribution."""
    return any(entry.name == "head_distill" for entry in plan.entries)


def _teacher_tensors(plan: Plan, m: int) -> list[TensorSpec]:
    """The base's hidden states after its last block, and those of one head call."""
    return [
        TensorSpec("base_hidden", (m, plan.model.d_model), "float32", "activations"),
        TensorSpec("teacher_x", (plan.model.head_chunk_tokens, plan.model.d_model), "float32", "activations"),
    ]


def scoring_tensors(plan: Plan, bucket: str) -> list[TensorSpec]:
    """Inputs, one hidden state and scratch of a forward pass without gradients."""
    shape, model = Bucket.parse(bucket), plan.model
    m = shape.rows
    width = model.kv_heads * model.head_dim
    entries = [e for e in plan.entries if e.bucket in ("", bucket) and e.name.removesuffix(MOUNTED) in ("block_prefill", "head_score", "embed")]
    return [
        TensorSpec("ids", (m,), "int32", "activations"),
        TensorSpec("start", shape, "int32", "activations"),
        TensorSpec("hidden", (2, m, model.d_model), "float32", "activations"),
        TensorSpec("keys", (m, width), "float32", "activations"),
        TensorSpec("values", (m, width), "float32", "activations"),
        *_head_tensors(plan),
        TensorSpec("scratch", (max(e.scratch_bytes for e in entries),), "uint8", "scratch"),
    ]


def decoding_tensors(plan: Plan) -> list[TensorSpec]:
    """The key-value cache and one token's activations."""
    model = plan.model
    width = model.kv_heads * model.head_dim
    entries = [e for e in plan.entries if e.name.removesuffix(MOUNTED) in ("block_decode_qkv", "block_decode", "logits", "embed")]
    return [
        TensorSpec("cache", (model.layers, 2, model.context_tokens, width), "float32", "activations"),
        TensorSpec("id", (1,), "int32", "activations"),
        TensorSpec("position", (1,), "int32", "activations"),
        TensorSpec("cos", (1, model.head_dim // 2), "float32", "activations"),
        TensorSpec("sin", (1, model.head_dim // 2), "float32", "activations"),
        TensorSpec("x", (2, model.d_model), "float32", "activations"),
        TensorSpec("q", (model.heads * model.head_dim,), "float32", "activations"),
        TensorSpec("key", (width,), "float32", "activations"),
        TensorSpec("value", (width,), "float32", "activations"),
        TensorSpec("logits", (model.vocab,), "float32", "activations"),
        TensorSpec("scratch", (max(e.scratch_bytes for e in entries),), "uint8", "scratch"),
    ]


def layer_elements(plan: Plan) -> int:
    """Adapter elements of one layer."""
    return next((t.offset for t in plan.adapter.tensors if t.name.layer == 1), plan.adapter.size)


def _head_tensors(plan: Plan) -> list[TensorSpec]:
    chunk = plan.model.head_chunk_tokens
    return [
        TensorSpec("head_x", (chunk, plan.model.d_model), "float32", "activations"),
        TensorSpec("head_dx", (chunk, plan.model.d_model), "float32", "activations"),
        TensorSpec("targets", (chunk,), "int32", "activations"),
        TensorSpec("scale", (chunk,), "float32", "activations"),
        TensorSpec("loss", (chunk,), "float32", "activations"),
    ]
