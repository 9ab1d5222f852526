"""One row at a time: the matrix-vector product of decoding and the row gather of the embedding.

In:  sizes and a GGUF block type.
Out: TIR functions (inputs..., y).
The product reads every block once and never unpacks it to memory: decoding is bound by memory bandwidth.
"""

# Shapes: N output width · K input width · G = K/32 blocks per row · T tokens · V vocabulary · D model width

from __future__ import annotations

from tvm.script import tirx as T

from .block_types import BLOCK, HALF_BLOCK, BlockType
from .isa import largest_divisor
from .kernel_set import template
from .lanes import add_lanes, fill

ROWS_PER_TASK = 64


@template("matvec")
def frozen_matvec(n: int, k: int, block: BlockType):
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
                row = T.meta_var(task * rows + i)
                partial = T.alloc_buffer((HALF_BLOCK,), "float32", scope="local")
                total = T.alloc_buffer((1,), "float32", scope="local")
                total[0] = T.float32(0)
                fill(partial, HALF_BLOCK, 0)
                # Quants times inputs lane by lane; the minimum of a block needs only the sum of its inputs.
                for g in range(groups):
                    for e in T.vectorized(HALF_BLOCK):
                        lower = T.meta_var(block.quant(w, row, g, 0, e) * x[0, g * BLOCK + e])
                        upper = T.meta_var(block.quant(w, row, g, 1, e) * x[0, g * BLOCK + HALF_BLOCK + e])
                        partial[e] += block.scale(w, row, g) * (lower + upper)
                    total[0] += block.minimum(w, row, g) * sums[g]
                add_lanes(total, partial, HALF_BLOCK)
                y[0, row] = total[0]

    return func


@template("gather")
def gather_rows(t: int, vocabulary: int, d: int, block: BlockType):
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
                        row = T.meta_var(ids[i])
                        weight = T.meta_var(block.quant(w, row, g, upper, e) * block.scale(w, row, g) + block.minimum(w, row, g))
                        y[i, g * BLOCK + upper * HALF_BLOCK + e] = weight

    return func
