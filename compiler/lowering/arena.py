"""Plan where every temporary tensor of an entry lives.

In:  sizes and lifetimes (call indices, half-open).
Out: a byte offset per tensor and the bytes needed in all.
Offsets are multiples of the alignment because generated kernels load aligned rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.bundle.plan import aligned


@dataclass(frozen=True)
class Lifetime:
    """One temporary tensor: alive from the call `first` that writes it up to, not including, `end`."""

    n_bytes: int
    first: int
    end: int


@dataclass(frozen=True)
class ArenaPlan:
    """offsets[i] belongs to the i-th lifetime."""

    offsets: tuple[int, ...]
    n_bytes: int


def plan_arena(lifetimes: Sequence[Lifetime]) -> ArenaPlan:
    """Offsets such that tensors that are alive together never share bytes.

    Greedy by size: the largest tensor first, each at the lowest gap that is free for its whole life (arXiv 2001.03288, §5.2).
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].n_bytes, lifetimes[i].first, i)):
        tensor = lifetimes[index]
        neighbours = sorted((offsets[o], lifetimes[o].n_bytes) for o in placed if _overlap(tensor, lifetimes[o]))
        position = 0
        for offset, size in neighbours:
            if position + aligned(tensor.n_bytes) <= offset:
                break
            position = max(position, aligned(offset + size))
        offsets[index] = position
        placed.append(index)
        total = max(total, position + aligned(tensor.n_bytes))
    return ArenaPlan(tuple(offsets), total)


def _overlap(a: Lifetime, b: Lifetime) -> bool:
    return a.first < b.end and b.first < a.end
