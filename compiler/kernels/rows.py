"""Kernels that work row by row or element by element: RMSNorm, rotary positions, SwiGLU, sums over groups, and their gradients.

In:  sizes.
Out: TIR functions (inputs..., outputs...), all fp32.
"""

# Shapes: M rows (tokens) · D row width · B batch · T tokens · H heads · d head width · G = D/32 groups

from __future__ import annotations

from tvm.script import tirx as T

from .expressions import sigmoid
from .isa import Isa, lanes_for, largest_divisor
from .tile import named

ROWS_PER_TASK = 32


def rms_norm(name: str, m: int, d: int, epsilon: float, isa: Isa):
    """y = x · w / sqrt(mean(x²) + ε)    (arXiv 1910.07467)

    x [M,D] · w [D]  →  y [M,D]
    """
    lanes = lanes_for(d, isa)
    rows = largest_divisor(m, ROWS_PER_TASK)
    dot = _row_sum(d, lanes, lambda buffers, i, j: buffers[0][i, j] * buffers[0][i, j])

    @T.prim_func
    def func(x: T.Buffer((m, d), "float32"), w: T.Buffer((d,), "float32"), y: T.Buffer((m, d), "float32")):
        for task in T.parallel(m // rows):
            for i in range(rows):
                r = T.alloc_buffer((1,), "float32", scope="local")
                dot([x], task * rows + i, r)
                r[0] = T.float32(1) / T.sqrt(r[0] * T.float32(1.0 / d) + T.float32(epsilon))
                for jv in range(d // lanes):
                    for j in T.vectorized(lanes):
                        y[task * rows + i, jv * lanes + j] = x[task * rows + i, jv * lanes + j] * r[0] * w[jv * lanes + j]

    return named(func, name)


def rms_norm_grad(name: str, m: int, d: int, epsilon: float, isa: Isa):
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
            for i in range(rows):
                r = T.alloc_buffer((1,), "float32", scope="local")
                s = T.alloc_buffer((1,), "float32", scope="local")
                square([x], task * rows + i, r)
                r[0] = T.float32(1) / T.sqrt(r[0] * T.float32(1.0 / d) + T.float32(epsilon))
                weighted([dy, x, w], task * rows + i, s)
                s[0] = s[0] * r[0] * r[0] * r[0] * T.float32(1.0 / d)
                for jv in range(d // lanes):
                    for j in T.vectorized(lanes):
                        dx[task * rows + i, jv * lanes + j] = (
                            dy[task * rows + i, jv * lanes + j] * w[jv * lanes + j] * r[0] - x[task * rows + i, jv * lanes + j] * s[0]
                        )

    return named(func, name)


def _row_sum(d: int, lanes: int, term):
    """Inline piece sum(buffers, i, out): out[0] = Σ over j < d of term(buffers, i, j), one partial sum per lane."""

    @T.inline
    def row_sum(buffers, i, out):
        acc = T.alloc_buffer((lanes,), "float32", scope="local")
        for j in T.vectorized(lanes):
            acc[j] = T.float32(0)
        for jv in range(d // lanes):
            for j in T.vectorized(lanes):
                acc[j] += term(buffers, i, jv * lanes + j)
        out[0] = T.float32(0)
        for j in T.unroll(lanes):
            out[0] += acc[j]

    return row_sum


def rope(name: str, b: int, t: int, heads: int, width: int, inverse: bool):
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
            for h in range(heads):
                for c in range(width // 2):
                    y[row // t, row % t, h, c, 0] = x[row // t, row % t, h, c, 0] * cos[row % t, c] - x[row // t, row % t, h, c, 1] * sin[
                        row % t, c
                    ] * T.float32(sign)
                    y[row // t, row % t, h, c, 1] = (
                        x[row // t, row % t, h, c, 0] * sin[row % t, c] * T.float32(sign) + x[row // t, row % t, h, c, 1] * cos[row % t, c]
                    )

    return named(func, name)


def _elementwise(size: int, isa: Isa):
    """(elements per task, lanes) for a flat loop of `size` elements."""
    lanes = lanes_for(size, isa)
    return largest_divisor(size // lanes, 1024) * lanes, lanes


def add(name: str, size: int, isa: Isa):
    """y = a + b

    a [size] · b [size]  →  y [size]
    """
    chunk, lanes = _elementwise(size, isa)

    @T.prim_func
    def func(a: T.Buffer((size,), "float32"), b: T.Buffer((size,), "float32"), y: T.Buffer((size,), "float32")):
        for task in T.parallel(size // chunk):
            for v in range(chunk // lanes):
                for e in T.vectorized(lanes):
                    y[task * chunk + v * lanes + e] = a[task * chunk + v * lanes + e] + b[task * chunk + v * lanes + e]

    return named(func, name)


def swiglu(name: str, size: int, isa: Isa):
    """y = gate · sigmoid(gate) · up    (arXiv 2002.05202)

    gate [size] · up [size]  →  y [size]
    """
    chunk, lanes = _elementwise(size, isa)

    @T.prim_func
    def func(gate: T.Buffer((size,), "float32"), up: T.Buffer((size,), "float32"), y: T.Buffer((size,), "float32")):
        for task in T.parallel(size // chunk):
            for v in range(chunk // lanes):
                for e in T.vectorized(lanes):
                    y[task * chunk + v * lanes + e] = (
                        gate[task * chunk + v * lanes + e] * sigmoid(gate[task * chunk + v * lanes + e]) * up[task * chunk + v * lanes + e]
                    )

    return named(func, name)


def swiglu_grad(name: str, size: int, isa: Isa):
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
            for v in range(chunk // lanes):
                s = T.alloc_buffer((lanes,), "float32", scope="local")
                for e in T.vectorized(lanes):
                    s[e] = sigmoid(gate[task * chunk + v * lanes + e])
                for e in T.vectorized(lanes):
                    dgate[task * chunk + v * lanes + e] = (
                        dy[task * chunk + v * lanes + e]
                        * up[task * chunk + v * lanes + e]
                        * s[e]
                        * (T.float32(1) + gate[task * chunk + v * lanes + e] * (T.float32(1) - s[e]))
                    )
                for e in T.vectorized(lanes):
                    dup[task * chunk + v * lanes + e] = dy[task * chunk + v * lanes + e] * gate[task * chunk + v * lanes + e] * s[e]

    return named(func, name)


def group_sum(name: str, m: int, groups: int, size: int):
    """y[m, g] = Σ over e < size of x[m, g, e]

    x [M,G,size]  →  y [M,G]
    """

    @T.prim_func
    def func(x: T.Buffer((m, groups, size), "float32"), y: T.Buffer((m, groups), "float32")):
        for i in T.parallel(m):
            for g in range(groups):
                acc = T.alloc_buffer((16,), "float32", scope="local")
                for e in T.vectorized(16):
                    acc[e] = x[i, g, e]
                for v in range(size // 16 - 1):
                    for e in T.vectorized(16):
                        acc[e] += x[i, g, 16 + v * 16 + e]
                for e in T.unroll(15):
                    acc[0] += acc[e + 1]
                y[i, g] = acc[0]

    return named(func, name)


def group_spread(name: str, m: int, groups: int, size: int):
    """y[m, g, e] = x[m, g], the gradient of group_sum

    x [M,G]  →  y [M,G,size]
    """

    @T.prim_func
    def func(x: T.Buffer((m, groups), "float32"), y: T.Buffer((m, groups, size), "float32")):
        for i in T.parallel(m):
            for g in range(groups):
                for e in T.vectorized(size):
                    y[i, g, e] = x[i, g]

    return named(func, name)


def sum_heads(name: str, m: int, kv_heads: int, share: int, width: int):
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

    return named(func, name)
