"""One row at a time: the matrix-vector product of decoding and the row gather of the embedding.

In:  sizes and a GGUF block type.
Out: TIR functions (inputs..., y).
The product reads every block once and never unpacks it to memory: decoding is bound by memory bandwidth.
"""

# Shapes: N output width · K input width · G = K/32 blocks per row · T tokens · V vocabulary · D model width

from __future__ import annotations

from tvm.script import tirx as T

from .block_types import BLOCK, BlockType
from .isa import largest_divisor
from .tile import named

HALF_BLOCK = 16
ROWS_PER_TASK = 64


def frozen_matvec(name: str, n: int, k: int, block: BlockType):
    """y = x · deq(w)ᵀ for a single row

    x [1,K] f32 · w [N,G,bytes] u8  →  y [1,N] f32
    """
    groups = k // BLOCK
    rows = largest_divisor(n, ROWS_PER_TASK)

    @T.prim_func
    def func(x: T.Buffer((1, k), "float32"), w: T.Buffer((n, groups, block.bytes), "uint8"), y: T.Buffer((1, n), "float32")):
        sums = T.alloc_buffer((groups,), "float32", scope="global")
        for g in range(groups):
            sums[g] = T.float32(0)
            for e in range(BLOCK):
                sums[g] += x[0, g * BLOCK + e]
        for task in T.parallel(n // rows):
            for i in range(rows):
                acc = T.alloc_buffer((HALF_BLOCK,), "float32", scope="local")
                constant = T.alloc_buffer((1,), "float32", scope="local")
                constant[0] = T.float32(0)
                for e in T.vectorized(HALF_BLOCK):
                    acc[e] = T.float32(0)
                for g in range(groups):
                    for e in T.vectorized(HALF_BLOCK):
                        acc[e] += block.scale(w, task * rows + i, g) * (
                            block.quant(w, task * rows + i, g, 0, e) * x[0, g * BLOCK + e]
                            + block.quant(w, task * rows + i, g, 1, e) * x[0, g * BLOCK + HALF_BLOCK + e]
                        )
                    constant[0] += block.minimum(w, task * rows + i, g) * sums[g]
                for e in T.unroll(HALF_BLOCK):
                    constant[0] += acc[e]
                y[0, task * rows + i] = constant[0]

    return named(func, name)


def gather_rows(name: str, t: int, vocabulary: int, d: int, block: BlockType):
    """y[t] = deq(w[ids[t]]); the caller keeps ids inside the vocabulary

    ids [T] i32 · w [V,D/32,bytes] u8  →  y [T,D] f32
    """
    groups = d // BLOCK

    @T.prim_func
    def func(ids: T.Buffer((t,), "int32"), w: T.Buffer((vocabulary, groups, block.bytes), "uint8"), y: T.Buffer((t, d), "float32")):
        for i in range(t):
            for g in range(groups):
                for upper in T.unroll(2):
                    for e in T.vectorized(HALF_BLOCK):
                        y[i, g * BLOCK + upper * HALF_BLOCK + e] = block.quant(w, ids[i], g, upper, e) * block.scale(w, ids[i], g) + block.minimum(
                            w, ids[i], g
                        )

    return named(func, name)
