"""Causal attention over packed samples, forward and gradient, a strip of query rows at a time.

In:  sizes; q, k, v in token order, keys and values shared by groups of heads.
Out: TIR functions (inputs..., outputs...), all fp32.
Row i sees the columns start[i] <= j <= i, where start[i] is the first token of the sample that token i belongs to. A strip of
STRIP x T scores exists at a time, never T x T; the gradient computes the strip again instead of keeping it.
"""

# Shapes: B batch · T tokens · H query heads · KV key-value heads · d head width

from __future__ import annotations

from tvm.script import tirx as T

from .expressions import exp
from .isa import Isa, largest_divisor
from .tile import named, register_tile

STRIP = 16
"""query rows whose scores are kept at once; T is a multiple of it"""
COLUMNS = 32
"""score columns are computed in multiples of it; T is a multiple of it"""
MASKED = -1e30


def attention(name: str, b: int, t: int, heads: int, kv_heads: int, width: int, isa: Isa):
    """o[i] = Σ over j of softmax(q[i] · k[j] / √d) · v[j]    (arXiv 1706.03762)

    q [B,T,H,d] · k [B,T,KV,d] · v [B,T,KV,d] · start [B,T] i32  →  o [B,T,H,d]
    """
    share = heads // kv_heads
    rows, out_columns = largest_divisor(STRIP, isa.tile_rows), largest_divisor(width, isa.tile_columns, isa.lanes)
    score_tile = register_tile(rows, min(isa.tile_columns, COLUMNS), isa.lanes)
    output_tile = register_tile(rows, out_columns, isa.lanes)
    softmax = _strip_softmax(width**-0.5, isa.lanes)

    @T.prim_func
    def func(
        q: T.Buffer((b, t, heads, width), "float32"), k: T.Buffer((b, t, kv_heads, width), "float32"),
        v: T.Buffer((b, t, kv_heads, width), "float32"), start: T.Buffer((b, t), "int32"),
        o: T.Buffer((b, t, heads, width), "float32"),
    ):
        for task in T.parallel(b * heads):
            k_t = T.alloc_buffer((width, t), "float32", scope="local")
            p = T.alloc_buffer((STRIP, t), "float32", scope="local")
            for j in range(t):
                for c in range(width):
                    k_t[c, j] = k[task // heads, j, task % heads // share, c]
            for s in range(t // STRIP):
                first = T.meta_var(start[task // heads, s * STRIP] // COLUMNS)
                last = T.meta_var((s * STRIP + STRIP + COLUMNS - 1) // COLUMNS)
                for jo in range((last - first) * (COLUMNS // isa.tile_columns)):
                    for i in range(STRIP // rows):
                        score_tile(
                            lambda i, c: q[task // heads, s * STRIP + i, task % heads, c], lambda c, j: k_t[c, j],
                            lambda i, j, x: T.buffer_store(p, x, [i, j]),
                            i * rows, 0, width, first * COLUMNS + jo * isa.tile_columns,
                        )
                softmax(p, start, task // heads, s, first, last)
                for i in range(STRIP // rows):
                    for c in range(width // out_columns):
                        output_tile(
                            lambda i, j: p[i, j], lambda j, c: v[task // heads, j, task % heads // share, c],
                            lambda i, c, x: T.buffer_store(o, x, [task // heads, s * STRIP + i, task % heads, c]),
                            i * rows, first * COLUMNS, (last - first) * COLUMNS, c * out_columns,
                        )

    return named(func, name)


def attention_grad(name: str, b: int, t: int, heads: int, kv_heads: int, width: int, isa: Isa):
    """With P the attention weights: dV = Pᵀ·dO, dP = dO·Vᵀ, dS = P ∘ (dP − rowsum(P ∘ dP)) / √d, dQ = dS·K, dK = dSᵀ·Q

    do [B,T,H,d] · q [B,T,H,d] · k [B,T,KV,d] · v [B,T,KV,d] · start [B,T] i32  →  dq, dk, dv [B,T,H,d]
    dk and dv stand per query head; sum_heads brings them to KV heads.
    """
    share = heads // kv_heads
    rows, out_columns = largest_divisor(STRIP, isa.tile_rows), largest_divisor(width, isa.tile_columns, isa.lanes)
    score_tile = register_tile(rows, min(isa.tile_columns, COLUMNS), isa.lanes)
    output_tile = register_tile(rows, out_columns, isa.lanes)
    softmax = _strip_softmax(width**-0.5, isa.lanes)
    score_gradient = _strip_score_gradient(width**-0.5, isa.lanes)

    @T.inline
    def scores(x, task, s, packed, strip, first, last):
        for jo in range((last - first) * (COLUMNS // isa.tile_columns)):
            for i in range(STRIP // rows):
                score_tile(
                    lambda i, c: x[task // heads, s * STRIP + i, task % heads, c], lambda c, j: packed[c, j],
                    lambda i, j, value: T.buffer_store(strip, value, [i, j]),
                    i * rows, 0, width, first * COLUMNS + jo * isa.tile_columns,
                )

    @T.inline
    def scatter(strip, x, task, s, out, first, last):
        """out[j] += Σ over the strip's rows i of strip[i, j] · x[i]"""
        for j in range((last - first) * (COLUMNS // rows)):
            for c in range(width // out_columns):
                output_tile(
                    lambda j, i: strip[i, j], lambda i, c: x[task // heads, s * STRIP + i, task % heads, c],
                    lambda j, c, value: T.buffer_store(
                        out, out[task // heads, j, task % heads, c] + value, [task // heads, j, task % heads, c]
                    ),
                    first * COLUMNS + j * rows, 0, STRIP, c * out_columns,
                )

    @T.prim_func
    def func(
        do: T.Buffer((b, t, heads, width), "float32"), q: T.Buffer((b, t, heads, width), "float32"),
        k: T.Buffer((b, t, kv_heads, width), "float32"), v: T.Buffer((b, t, kv_heads, width), "float32"),
        start: T.Buffer((b, t), "int32"),
        dq: T.Buffer((b, t, heads, width), "float32"), dk: T.Buffer((b, t, heads, width), "float32"),
        dv: T.Buffer((b, t, heads, width), "float32"),
    ):
        for task in T.parallel(b * heads):
            k_t = T.alloc_buffer((width, t), "float32", scope="local")
            v_t = T.alloc_buffer((width, t), "float32", scope="local")
            p = T.alloc_buffer((STRIP, t), "float32", scope="local")
            ds = T.alloc_buffer((STRIP, t), "float32", scope="local")
            for j in range(t):
                for c in range(width):
                    k_t[c, j] = k[task // heads, j, task % heads // share, c]
                    v_t[c, j] = v[task // heads, j, task % heads // share, c]
                for c in T.vectorized(width):
                    dk[task // heads, j, task % heads, c] = T.float32(0)
                for c in T.vectorized(width):
                    dv[task // heads, j, task % heads, c] = T.float32(0)
            for s in range(t // STRIP):
                first = T.meta_var(start[task // heads, s * STRIP] // COLUMNS)
                last = T.meta_var((s * STRIP + STRIP + COLUMNS - 1) // COLUMNS)
                scores(q, task, s, k_t, p, first, last)
                softmax(p, start, task // heads, s, first, last)
                scores(do, task, s, v_t, ds, first, last)
                scatter(p, do, task, s, dv, first, last)
                score_gradient(p, ds, first, last)
                scatter(ds, q, task, s, dk, first, last)
                for i in range(STRIP // rows):
                    for c in range(width // out_columns):
                        output_tile(
                            lambda i, j: ds[i, j], lambda j, c: k[task // heads, j, task % heads // share, c],
                            lambda i, c, x: T.buffer_store(dq, x, [task // heads, s * STRIP + i, task % heads, c]),
                            i * rows, first * COLUMNS, (last - first) * COLUMNS, c * out_columns,
                        )

    return named(func, name)


def _strip_softmax(scale: float, lanes: int):
    """Inline piece softmax(p, start, b, s, first, last): rows of raw scores become weights that sum to 1; hidden columns become 0."""

    @T.inline
    def softmax(p, start, b, s, first, last):
        for i in range(STRIP):
            top = T.alloc_buffer((lanes,), "float32", scope="local")
            total = T.alloc_buffer((lanes,), "float32", scope="local")
            for e in T.vectorized(lanes):
                top[e] = T.float32(MASKED)
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    p[i, first * COLUMNS + jv * lanes + e] = T.Select(
                        T.And(first * COLUMNS + jv * lanes + e >= start[b, s * STRIP + i], first * COLUMNS + jv * lanes + e <= s * STRIP + i),
                        p[i, first * COLUMNS + jv * lanes + e] * T.float32(scale),
                        T.float32(MASKED),
                    )
                for e in T.vectorized(lanes):
                    top[e] = T.max(top[e], p[i, first * COLUMNS + jv * lanes + e])
            for e in T.unroll(lanes - 1):
                top[0] = T.max(top[0], top[e + 1])
            for e in T.vectorized(lanes):
                total[e] = T.float32(0)
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    p[i, first * COLUMNS + jv * lanes + e] = T.Select(
                        p[i, first * COLUMNS + jv * lanes + e] > T.float32(0.5 * MASKED),
                        exp(p[i, first * COLUMNS + jv * lanes + e] - top[0]),
                        T.float32(0),
                    )
                for e in T.vectorized(lanes):
                    total[e] += p[i, first * COLUMNS + jv * lanes + e]
            for e in T.unroll(lanes - 1):
                total[0] += total[e + 1]
            total[0] = T.float32(1) / total[0]
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    p[i, first * COLUMNS + jv * lanes + e] *= total[0]

    return softmax


def _strip_score_gradient(scale: float, lanes: int):
    """Inline piece score_gradient(p, ds, first, last): ds, holding dP, becomes p ∘ (dP − Σ p ∘ dP) · scale."""

    @T.inline
    def score_gradient(p, ds, first, last):
        for i in range(STRIP):
            total = T.alloc_buffer((lanes,), "float32", scope="local")
            for e in T.vectorized(lanes):
                total[e] = T.float32(0)
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    total[e] += p[i, first * COLUMNS + jv * lanes + e] * ds[i, first * COLUMNS + jv * lanes + e]
            for e in T.unroll(lanes - 1):
                total[0] += total[e + 1]
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    ds[i, first * COLUMNS + jv * lanes + e] = (
                        p[i, first * COLUMNS + jv * lanes + e] * (ds[i, first * COLUMNS + jv * lanes + e] - total[0]) * T.float32(scale)
                    )

    return score_gradient


def decode_attention(name: str, context: int, heads: int, kv_heads: int, width: int):
    """Attention of one new token over the cache; its own key and value are in row position[0] already

    q [1,H,d] · keys [C,KV,d] · values [C,KV,d] · position [1] i32  →  o [1,H,d]
    """
    share = heads // kv_heads
    scale = width**-0.5

    @T.prim_func
    def func(
        q: T.Buffer((1, heads, width), "float32"), keys: T.Buffer((context, kv_heads, width), "float32"),
        values: T.Buffer((context, kv_heads, width), "float32"), position: T.Buffer((1,), "int32"),
        o: T.Buffer((1, heads, width), "float32"),
    ):
        for h in T.parallel(heads):
            p = T.alloc_buffer((context,), "float32", scope="local")
            top = T.alloc_buffer((1,), "float32", scope="local")
            total = T.alloc_buffer((1,), "float32", scope="local")
            acc = T.alloc_buffer((width,), "float32", scope="local")
            top[0] = T.float32(MASKED)
            for j in range(position[0] + 1):
                for c in T.vectorized(width):
                    acc[c] = q[0, h, c] * keys[j, h // share, c]
                p[j] = T.float32(0)
                for c in range(width):
                    p[j] += acc[c]
                p[j] *= T.float32(scale)
                top[0] = T.max(top[0], p[j])
            total[0] = T.float32(0)
            for c in T.vectorized(width):
                acc[c] = T.float32(0)
            for j in range(position[0] + 1):
                p[j] = exp(p[j] - top[0])
                total[0] += p[j]
                for c in T.vectorized(width):
                    acc[c] += p[j] * values[j, h // share, c]
            for c in T.vectorized(width):
                o[0, h, c] = acc[c] / total[0]

    return named(func, name)
