"""The loss at the end of the model and what decoding needs of the logits.

In:  sizes.
Out: TIR functions.
softmax_loss turns the logits of one chunk into their gradient where they stand, so a chunk is all that ever exists.
"""

# Shapes: C rows of one chunk · V vocabulary

from __future__ import annotations

from tvm.script import tirx as T

from .expressions import exp, log
from .isa import Isa, lanes_for
from .tile import named


def softmax_loss(name: str, c: int, v: int, isa: Isa):
    """loss[i] = log Σ e^logits[i] − logits[i, target], logits ← scale · (softmax(logits) − onehot(target)); a row with target < 0 gives 0

    logits [C,V] f32 (read and overwritten) · targets [C] i32 · scale [1] f32  →  loss [C] f32, not scaled
    """
    lanes = lanes_for(v, isa)

    @T.prim_func
    def func(
        logits: T.Buffer((c, v), "float32"), targets: T.Buffer((c,), "int32"), scale: T.Buffer((1,), "float32"), loss: T.Buffer((c,), "float32")
    ):
        for i in T.parallel(c):
            top = T.alloc_buffer((lanes,), "float32", scope="local")
            total = T.alloc_buffer((lanes,), "float32", scope="local")
            picked = T.alloc_buffer((1,), "float32", scope="local")
            picked[0] = logits[i, T.max(targets[i], 0)]
            for e in T.vectorized(lanes):
                top[e] = logits[i, e]
            for jv in range(v // lanes):
                for e in T.vectorized(lanes):
                    top[e] = T.max(top[e], logits[i, jv * lanes + e])
            for e in T.unroll(lanes - 1):
                top[0] = T.max(top[0], top[e + 1])
            for e in T.vectorized(lanes):
                total[e] = T.float32(0)
            for jv in range(v // lanes):
                for e in T.vectorized(lanes):
                    logits[i, jv * lanes + e] = exp(logits[i, jv * lanes + e] - top[0])
                for e in T.vectorized(lanes):
                    total[e] += logits[i, jv * lanes + e]
            for e in T.unroll(lanes - 1):
                total[0] += total[e + 1]
            loss[i] = T.Select(targets[i] >= 0, log(total[0]) + top[0] - picked[0], T.float32(0))
            total[0] = T.Select(targets[i] >= 0, scale[0] / total[0], T.float32(0))
            for jv in range(v // lanes):
                for e in T.vectorized(lanes):
                    logits[i, jv * lanes + e] *= total[0]
            if targets[i] >= 0:
                logits[i, targets[i]] -= scale[0]

    return named(func, name)
