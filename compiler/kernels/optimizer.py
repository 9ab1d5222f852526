"""AdamW on the flat adapter vector, and the norm that gradient clipping needs.

In:  the vector's length.
Out: TIR functions.
"""

# Shapes: P adapter parameters, a multiple of 64

from __future__ import annotations

from tvm.script import tirx as T

from .isa import Isa, largest_divisor
from .tile import named

HYPERPARAMETERS = (
    "learning_rate",
    "beta1",
    "beta2",
    "epsilon",
    "weight_decay",
    "bias_correction1",
    "bias_correction2",
    "gradient_scale",
    "max_update",
)
"""order of the scalars in the `hyper` vector of adamw_step"""
HYPER_COUNT = len(HYPERPARAMETERS)
PARTIALS = 64


def adamw_step(name: str, size: int, isa: Isa):
    """m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², u = lr · ((m/c₁) / (√(v/c₂) + ε) + decay · w), w ← w − clip(u, ±max_update)    (arXiv 1711.05101)

    w, m, v [P] (read and overwritten) · g [P] · hyper [9] in the order of HYPERPARAMETERS; g is multiplied by gradient_scale first.
    """
    lanes = isa.lanes
    chunk = largest_divisor(size // lanes, 4096) * lanes

    @T.prim_func
    def func(
        w: T.Buffer((size,), "float32"),
        m: T.Buffer((size,), "float32"),
        v: T.Buffer((size,), "float32"),
        g: T.Buffer((size,), "float32"),
        hyper: T.Buffer((HYPER_COUNT,), "float32"),
    ):
        for task in T.parallel(size // chunk):
            for i in range(chunk // lanes):
                update = T.alloc_buffer((lanes,), "float32", scope="local")
                for e in T.vectorized(lanes):
                    m[task * chunk + i * lanes + e] = hyper[1] * m[task * chunk + i * lanes + e] + (T.float32(1) - hyper[1]) * (
                        g[task * chunk + i * lanes + e] * hyper[7]
                    )
                for e in T.vectorized(lanes):
                    v[task * chunk + i * lanes + e] = hyper[2] * v[task * chunk + i * lanes + e] + (T.float32(1) - hyper[2]) * (
                        g[task * chunk + i * lanes + e] * hyper[7] * (g[task * chunk + i * lanes + e] * hyper[7])
                    )
                for e in T.vectorized(lanes):
                    update[e] = hyper[0] * (
                        (m[task * chunk + i * lanes + e] / hyper[5]) / (T.sqrt(v[task * chunk + i * lanes + e] / hyper[6]) + hyper[3])
                        + hyper[4] * w[task * chunk + i * lanes + e]
                    )
                for e in T.vectorized(lanes):
                    w[task * chunk + i * lanes + e] -= T.max(T.min(update[e], hyper[8]), T.float32(0) - hyper[8])

    return named(func, name)


def sum_squares(name: str, size: int, isa: Isa):
    """total[0] = Σ g², added up in one fixed order

    g [P]  →  total [1]
    """

    @T.prim_func
    def func(g: T.Buffer((size,), "float32"), total: T.Buffer((1,), "float32")):
        acc = T.alloc_buffer((PARTIALS,), "float32", scope="local")
        for e in T.vectorized(PARTIALS):
            acc[e] = T.float32(0)
        for i in range(size // PARTIALS):
            for e in T.vectorized(PARTIALS):
                acc[e] += g[i * PARTIALS + e] * g[i * PARTIALS + e]
        total[0] = T.float32(0)
        for e in range(PARTIALS):
            total[0] += acc[e]

    return named(func, name)
