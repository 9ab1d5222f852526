"""Matrix products: activations times frozen GGUF weights, and the small fp32 products of the adapters.

In:  sizes and a GGUF block type.
Out: TIR functions (inputs..., y).
A panel of 32 columns is unpacked once into fp32 and multiplied with all rows, so unpacking costs a share of about 1/rows.
"""

# Shapes: M rows (tokens) · N output width · K input width · R reduction length · G = K/32 blocks per row

from __future__ import annotations

from typing import Literal

from tvm.script import tirx as T

from .block_types import BLOCK, HALF_BLOCK, BlockType
from .isa import PANEL_COLUMNS, Isa, lanes_for, largest_divisor
from .kernel_set import template
from .tile import register_tile

PANEL_ROWS = 1536
"""Longest stretch of the reduction that is unpacked at once: 192 KiB of fp32, which a second-level cache holds."""

Form = Literal["nt", "nn", "tn"]


@template("matmul")
def frozen_matmul(m: int, n: int, k: int, block: BlockType, *, isa: Isa):
    """y = x · deq(w)ᵀ

    x [M,K] f32 · w [N,G,bytes] u8  →  y [M,N] f32
    """
    depth = largest_divisor(k, PANEL_ROWS, BLOCK)
    unpack = _unpack_transposed(block, isa.lanes)
    multiply = _all_rows(m, depth, k // depth, isa)

    @T.prim_func
    def func(x: T.Buffer((m, k), "float32"), w: T.Buffer((n, k // BLOCK, block.bytes), "uint8"), y: T.Buffer((m, n), "float32")):
        for p in T.parallel(n // PANEL_COLUMNS):
            panel = T.alloc_buffer((depth, PANEL_COLUMNS), "float32", scope="local")
            for part in range(k // depth):
                for g in range(depth // BLOCK):
                    unpack(w, panel, p * PANEL_COLUMNS, part * (depth // BLOCK) + g, g * BLOCK)
                multiply(x, panel, y, part, p * PANEL_COLUMNS)

    return func


@template("matmul_t")
def frozen_matmul_t(m: int, n: int, k: int, block: BlockType, *, isa: Isa):
    """dx = dy · deq(w), the gradient of frozen_matmul

    dy [M,N] f32 · w [N,G,bytes] u8  →  dx [M,K] f32
    """
    depth = largest_divisor(n, PANEL_ROWS)
    unpack = _unpack_straight(block, min(isa.lanes, HALF_BLOCK))
    multiply = _all_rows(m, depth, n // depth, isa)

    @T.prim_func
    def func(dy: T.Buffer((m, n), "float32"), w: T.Buffer((n, k // BLOCK, block.bytes), "uint8"), dx: T.Buffer((m, k), "float32")):
        for p in T.parallel(k // PANEL_COLUMNS):
            panel = T.alloc_buffer((depth, PANEL_COLUMNS), "float32", scope="local")
            for part in range(n // depth):
                for r in range(depth):
                    unpack(w, panel, part * depth + r, p, r)
                multiply(dy, panel, dx, part, p * PANEL_COLUMNS)

    return func


@template("matmul")
def matmul(form: Form, m: int, n: int, r: int, alpha: float = 1.0, *, isa: Isa):
    """y = alpha · op(a) · op(b), all fp32; each letter of `form` says whether an operand is stored as it is used (n) or transposed (t)

    nt: a [M,R] · b [N,R] · nn: a [M,R] · b [R,N] · tn: a [R,M] · b [R,N]  →  y [M,N]
    """
    rows = largest_divisor(m, isa.tile_rows)
    lanes = lanes_for(n, isa)
    columns = largest_divisor(n, isa.tile_columns, lanes)
    tile = register_tile(rows, columns, lanes)
    transposed = form == "tn"
    if form == "nt":
        return _matmul_packed(m, n, r, alpha, rows, columns, tile)

    @T.prim_func
    def func(a: T.Buffer((r, m) if transposed else (m, r), "float32"), b: T.Buffer((r, n), "float32"), y: T.Buffer((m, n), "float32")):
        for i in T.parallel(m // rows):
            for j in range(n // columns):
                tile(
                    lambda i, r: a[r, i] if transposed else a[i, r],
                    lambda r, j: b[r, j],
                    lambda i, j, v: T.buffer_store(y, v * T.float32(alpha), [i, j]),
                    i * rows,
                    0,
                    r,
                    j * columns,
                )

    return func


def _matmul_packed(m: int, n: int, r: int, alpha: float, rows: int, columns: int, tile):
    """The nt form: b is transposed first, so that a vector holds neighbouring columns of y."""

    @T.prim_func
    def func(a: T.Buffer((m, r), "float32"), b: T.Buffer((n, r), "float32"), y: T.Buffer((m, n), "float32")):
        packed = T.alloc_buffer((r, n), "float32", scope="global")
        for i in range(r):
            for j in range(n):
                packed[i, j] = b[j, i]
        for i in T.parallel(m // rows):
            for j in range(n // columns):
                tile(
                    lambda i, r: a[i, r],
                    lambda r, j: packed[r, j],
                    lambda i, j, v: T.buffer_store(y, v * T.float32(alpha), [i, j]),
                    i * rows,
                    0,
                    r,
                    j * columns,
                )

    return func


def _all_rows(m: int, depth: int, parts: int, isa: Isa):
    """Inline piece multiply(x, panel, y, part, column): y[:, column:+32] (+)= x[:, part·depth:+depth] · panel; the first part overwrites."""
    rows, columns = largest_divisor(m, isa.tile_rows), isa.tile_columns
    tile = register_tile(rows, columns, isa.lanes, isa.tile_steps if depth % isa.tile_steps == 0 else 1)

    @T.inline
    def sweep(x, panel, y, part, column, put):
        for i in range(m // rows):
            for j in range(PANEL_COLUMNS // columns):
                tile(
                    lambda i, r: x[i, part * depth + r],
                    lambda r, j: panel[r, j],
                    lambda i, j, v: put(y, i, column + j, v),
                    i * rows,
                    0,
                    depth,
                    j * columns,
                )

    def write(y, i, j, v):
        T.buffer_store(y, v, [i, j])

    def add(y, i, j, v):
        T.buffer_store(y, y[i, j] + v, [i, j])

    @T.inline
    def only_part(x, panel, y, part, column):
        sweep(x, panel, y, part, column, write)

    @T.inline
    def any_part(x, panel, y, part, column):
        if part == 0:
            sweep(x, panel, y, part, column, write)
        else:
            sweep(x, panel, y, part, column, add)

    return only_part if parts == 1 else any_part


def _unpack_transposed(block: BlockType, lanes: int):
    """Inline piece unpack(w, panel, row, g, at): panel[at + e, j] = weight e of block [row + j, g]; vectors run across rows of w."""

    @T.inline
    def unpack(w, panel, row, g, at):
        scale = T.alloc_buffer((PANEL_COLUMNS,), "float32", scope="local")
        minimum = T.alloc_buffer((PANEL_COLUMNS,), "float32", scope="local")
        for j in T.unroll(PANEL_COLUMNS):
            scale[j] = block.scale(w, row + j, g)
            minimum[j] = block.minimum(w, row + j, g)
        for e in range(HALF_BLOCK):
            for upper in T.unroll(2):
                for part in T.unroll(PANEL_COLUMNS // lanes):
                    for lane in T.vectorized(lanes):
                        j = T.meta_var(part * lanes + lane)
                        quant = T.meta_var(block.quant(w, row + part * lanes + lane, g, upper, e, across_rows=True))
                        panel[at + HALF_BLOCK * upper + e, j] = quant * scale[j] + minimum[j]

    return unpack


def _unpack_straight(block: BlockType, lanes: int):
    """Inline piece unpack(w, panel, n, g, at): panel[at, e] = weight e of block [n, g]; vectors run along the block."""

    @T.inline
    def unpack(w, panel, n, g, at):
        for upper in T.unroll(2):
            for part in T.unroll(HALF_BLOCK // lanes):
                for lane in T.vectorized(lanes):
                    quant = T.meta_var(block.quant(w, n, g, upper, part * lanes + lane))
                    panel[at, HALF_BLOCK * upper + part * lanes + lane] = quant * block.scale(w, n, g) + block.minimum(w, n, g)

    return unpack
