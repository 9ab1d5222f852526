"""The same update in another form: grouped as classic LoRA and back, several adapters as one.

In:  AdapterTensors.
Out: AdapterTensors whose ΔW are the same numbers.
A grouped A is a classic A that repeats each column 32 times, so both directions are exact. Updates add up by putting their
ranks side by side: Σ sᵢ·Bᵢ·Aᵢ = [s₁B₁ s₂B₂ …]·[A₁; A₂; …].
"""

# Shapes: N rows · K row elements · R adapter rank
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..gguf.types import BLOCK_ELEMENTS
from .tensors import AdapterTensors


def as_lora(adapter: AdapterTensors) -> AdapterTensors:
    """A classic LoRA of one rank for all tensors: A [R,K], B [N,R]; smaller ranks are filled up with zeros."""
    rank = max(a.shape[0] for a, _ in adapter.pairs.values())
    width = BLOCK_ELEMENTS if adapter.kind == "grouped" else 1
    pairs = {}
    for name, (a, b) in adapter.pairs.items():
        missing = rank - a.shape[0]
        pairs[name] = np.pad(np.repeat(a, width, axis=1), ((0, missing), (0, 0))), np.pad(b, ((0, 0), (0, missing)))
    return AdapterTensors("lora", adapter.scale, pairs)


def as_grouped(adapter: AdapterTensors) -> AdapterTensors | None:
    """The grouped adapter with exactly this update; None when there is none, because columns of a group differ."""
    if adapter.kind == "grouped":
        return adapter
    pairs = {}
    for name, (a, b) in adapter.pairs.items():
        if a.shape[1] % BLOCK_ELEMENTS:
            return None
        groups = a.reshape(a.shape[0], -1, BLOCK_ELEMENTS)
        if (groups != groups[..., :1]).any():
            return None
        pairs[name] = np.ascontiguousarray(groups[..., 0]), b
    return AdapterTensors("grouped", adapter.scale, pairs)


def summed(adapters: Sequence[AdapterTensors]) -> AdapterTensors:
    """One adapter that does what these do together; grouped if all of them are, else classic."""
    if len(adapters) == 1:
        return adapters[0]
    kind = "grouped" if all(adapter.kind == "grouped" for adapter in adapters) else "lora"
    parts = [adapter if kind == "grouped" else as_lora(adapter) for adapter in adapters]
    pairs = {}
    for name in dict.fromkeys(name for part in parts for name in part.pairs):
        found = [(part.scale, *part.pairs[name]) for part in parts if name in part.pairs]
        a = np.concatenate([a for _, a, _ in found], axis=0)
        b = np.concatenate([np.float32(scale) * b for scale, _, b in found], axis=1)
        pairs[name] = a, b
    return AdapterTensors(kind, 1.0, pairs)
