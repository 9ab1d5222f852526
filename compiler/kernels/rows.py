"""Kernels that work row by row or element by element: RMSNorm, rotary positions, SwiGLU, sums over groups, and their gradients.

In:  sizes.
Out: TIR functions (inputs..., outputs...), all fp32.
"""

# Shapes: M rows (tokens) · D row width · B batch · T tokens · H heads · d head width · G = D/32 groups

from __future__ import annotations

from tvm.script import tirx as T

from .expressions import sigmoid
from .isa import Isa, lanes_for, largest_divisor
from .kernel_set import template
from .lanes import add_lanes, fill, lane_sum

ROWS_PER_TASK = 32
VECTORS_PER_TASK = 1024
GROUP_LANES = 16
"""values of a group that are added side by side; a group is a multiple of it"""


@template("rms_norm")
def rms_norm(m: int, d: int, epsilon: float = 1e-5, *, isa: Isa):
    """y = x · w / sqrt(mean(x²) + ε)    (arXiv 1910.07467)

    x [M,D] · w [D]  →  y [M,D]
    """
    lanes = lanes_for(d, isa)
    rows = largest_divisor(m, ROWS_PER_TASK)
    square = _row_sum(d, lanes, lambda buffers, i, j: buffers[0][i, j] * buffers[0][i, j])

    @T.prim_func
    def func(x: T.Buffer((m, d), "float32"), w: T.Buffer((d,), "float32"), y: T.Buffer((m, d), "float32")):
        for task in T.parallel(m // rows):
            for row in range(rows):
                i = T.meta_var(task * rows + row)
                r = T.alloc_buffer((1,), "float32", scope="local")
                square([x], i, r)
                r[0] = T.float32(1) / T.sqrt(r[0] * T.float32(1.0 / d) + T.float32(epsilon))
                for part in range(d // lanes):
                    for lane in T.vectorized(lanes):
                        j = T.meta_var(part * lanes + lane)
                        y[i, j] = x[i, j] * r[0] * w[j]

    return func


@template("rms_norm_grad")
def rms_norm_grad(m: int, d: int, epsilon: float = 1e-5, *, isa: Isa):
    """dx = r · (dy · w) − x · r³ / D · Σ dy · w · x with r = 1 / sqrt(mean(x²) + ε)

    dy [M,D] · x [M,D] · w [D]  →  dx [M,D]
    """
    lanes = lanes_for(d, isa)
    rows = largest_divisor(m, ROWS_PER_TASK)
    square = _row_sum(d, lanes, lambda buffers, i, j: buffers[0][i, j] * buffers[0][i, j])
    weighted = _row_sum(d, lanes, lambda buffers, i, j: buffers[0][i, j] * buffers[1][i, j] * buffers[2][j])

    @T.prim_func
    def func(dy: T.Buffer((m, d), "float32"), x: T.Buffer((m, d), "float32"), w: T.Buffer((d,), "float32"), dx: T.Buffer((m, d), "float32")):
        for task in T.parallel(m // rows):
            for row in range(rows):
                i = T.meta_var(task * rows + row)
                r = T.alloc_buffer((1,), "float32", scope="local")
                s = T.alloc_buffer((1,), "float32", scope="local")
                # 1. r, as in the forward direction.
                square([x], i, r)
                r[0] = T.float32(1) / T.sqrt(r[0] * T.float32(1.0 / d) + T.float32(epsilon))
                # 2. What every x of the row gets a share of, because it is part of the mean.
                weighted([dy, x, w], i, s)
                s[0] = s[0] * r[0] * r[0] * r[0] * T.float32(1.0 / d)
                # 3. The gradient.
                for part in range(d // lanes):
                    for lane in T.vectorized(lanes):
                        j = T.meta_var(part * lanes + lane)
                        dx[i, j] = dy[i, j] * w[j] * r[0] - x[i, j] * s[0]

    return func


def _row_sum(d: int, lanes: int, term):
    """Inline piece sum(buffers, i, out): out[0] = Σ over j < d of term(buffers, i, j), one partial sum per lane."""

    @T.inline
    def row_sum(buffers, i, out):
        partial = T.alloc_buffer((lanes,), "float32", scope="local")
        fill(partial, lanes, 0)
        for part in range(d // lanes):
            for lane in T.vectorized(lanes):
                partial[lane] += term(buffers, i, part * lanes + lane)
        out[0] = T.float32(0)
        add_lanes(out, partial, lanes)

    return row_sum


@template("rope")
def rope(b: int, t: int, heads: int, width: int, inverse: bool = False):
    """Rotate neighbouring pairs (x[2c], x[2c+1]) by the angle of their position    (arXiv 2104.09864, GGUF's order for llama)

    x [B,T,H·d] · cos [T,d/2] · sin [T,d/2]  →  y [B,T,H·d]; `inverse` turns the other way, which is the gradient.
    """
    sign = -1.0 if inverse else 1.0

    @T.prim_func
    def func(
        x: T.Buffer((b, t, heads, width // 2, 2), "float32"),
        cos: T.Buffer((t, width // 2), "float32"),
        sin: T.Buffer((t, width // 2), "float32"),
        y: T.Buffer((b, t, heads, width // 2, 2), "float32"),
    ):
        for row in T.parallel(b * t):
            sample = T.meta_var(row // t)
            token = T.meta_var(row % t)
            for h in range(heads):
                for c in range(width // 2):
                    first = T.meta_var(x[sample, token, h, c, 0])
                    second = T.meta_var(x[sample, token, h, c, 1])
                    y[sample, token, h, c, 0] = first * cos[token, c] - second * sin[token, c] * T.float32(sign)
                    y[sample, token, h, c, 1] = first * sin[token, c] * T.float32(sign) + second * cos[token, c]

    return func


def _elementwise(size: int, isa: Isa):
    """(elements per task, lanes) for a flat loop of `size` elements."""
    lanes = lanes_for(size, isa)
    return largest_divisor(size // lanes, VECTORS_PER_TASK) * lanes, lanes


@template("add")
def add(size: int, *, isa: Isa):
    """y = a + b

    a [size] · b [size]  →  y [size]
    """
    chunk, lanes = _elementwise(size, isa)

    @T.prim_func
    def func(a: T.Buffer((size,), "float32"), b: T.Buffer((size,), "float32"), y: T.Buffer((size,), "float32")):
        for task in T.parallel(size // chunk):
            for part in range(chunk // lanes):
                for lane in T.vectorized(lanes):
                    at = T.meta_var(task * chunk + part * lanes + lane)
                    y[at] = a[at] + b[at]

    return func


@template("swiglu")
def swiglu(size: int, *, isa: Isa):
    """y = gate · sigmoid(gate) · up    (arXiv 2002.05202)

    gate [size] · up [size]  →  y [size]
    """
    chunk, lanes = _elementwise(size, isa)

    @T.prim_func
    def func(gate: T.Buffer((size,), "float32"), up: T.Buffer((size,), "float32"), y: T.Buffer((size,), "float32")):
        for task in T.parallel(size // chunk):
            for part in range(chunk // lanes):
                for lane in T.vectorized(lanes):
                    at = T.meta_var(task * chunk + part * lanes + lane)
                    y[at] = gate[at] * sigmoid(gate[at]) * up[at]

    return func


@template("swiglu_grad")
def swiglu_grad(size: int, *, isa: Isa):
    """dgate = dy · up · s · (1 + gate · (1 − s)), dup = dy · gate · s with s = sigmoid(gate)

    dy [size] · gate [size] · up [size]  →  dgate [size] · dup [size]
    """
    chunk, lanes = _elementwise(size, isa)

    @T.prim_func
    def func(
        dy: T.Buffer((size,), "float32"),
        gate: T.Buffer((size,), "float32"),
        up: T.Buffer((size,), "float32"),
        dgate: T.Buffer((size,), "float32"),
        dup: T.Buffer((size,), "float32"),
    ):
        for task in T.parallel(size // chunk):
            for part in range(chunk // lanes):
                s = T.alloc_buffer((lanes,), "float32", scope="local")
                for lane in T.vectorized(lanes):
                    s[lane] = sigmoid(gate[task * chunk + part * lanes + lane])
                for lane in T.vectorized(lanes):
                    at = T.meta_var(task * chunk + part * lanes + lane)
                    dgate[at] = dy[at] * up[at] * s[lane] * (T.float32(1) + gate[at] * (T.float32(1) - s[lane]))
                for lane in T.vectorized(lanes):
                    at = T.meta_var(task * chunk + part * lanes + lane)
                    dup[at] = dy[at] * gate[at] * s[lane]

    return func


@template("group_sum")
def group_sum(m: int, groups: int, size: int):
    """y[m, g] = Σ over e < size of x[m, g, e]

    x [M,G,size]  →  y [M,G]
    """

    @T.prim_func
    def func(x: T.Buffer((m, groups, size), "float32"), y: T.Buffer((m, groups), "float32")):
        for i in T.parallel(m):
            for g in range(groups):
                partial = T.alloc_buffer((GROUP_LANES,), "float32", scope="local")
                for lane in T.vectorized(GROUP_LANES):
                    partial[lane] = x[i, g, lane]
                for part in range(size // GROUP_LANES - 1):
                    for lane in T.vectorized(GROUP_LANES):
                        partial[lane] += x[i, g, GROUP_LANES + part * GROUP_LANES + lane]
                lane_sum(partial, GROUP_LANES)
                y[i, g] = partial[0]

    return func


@template("group_spread")
def group_spread(m: int, groups: int, size: int):
    """y[m, g, e] = x[m, g], the gradient of group_sum

    x [M,G]  →  y [M,G,size]
    """

    @T.prim_func
    def func(x: T.Buffer((m, groups), "float32"), y: T.Buffer((m, groups, size), "float32")):
        for i in T.parallel(m):
            for g in range(groups):
                for e in T.vectorized(size):
                    y[i, g, e] = x[i, g]

    return func


@template("sum_heads")
def sum_heads(m: int, kv_heads: int, share: int, width: int):
    """y[m, k] = Σ over the `share` query heads that read key-value head k of x[m, k, ·]

    x [M,KV,share,d]  →  y [M,KV,d]
    """

    @T.prim_func
    def func(x: T.Buffer((m, kv_heads, share, width), "float32"), y: T.Buffer((m, kv_heads, width), "float32")):
        for i in T.parallel(m):
            for k in range(kv_heads):
                for e in T.vectorized(width):
                    y[i, k, e] = x[i, k, 0, e]
                for s in range(share - 1):
                    for e in T.vectorized(width):
                        y[i, k, e] += x[i, k, s + 1, e]

    return func
