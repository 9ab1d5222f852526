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
from .isa import Isa
from .strips import COLUMNS, MASKED, STRIP, Strips
from .tile import named


def attention(name: str, b: int, t: int, heads: int, kv_heads: int, width: int, isa: Isa):
    """o[i] = Σ over j of softmax(q[i] · k[j] / √d) · v[j]    (arXiv 1706.03762)

    q [B,T,H,d] · k [B,T,KV,d] · v [B,T,KV,d] · start [B,T] i32  →  o [B,T,H,d]
    """
    strips = Strips(t, heads, kv_heads, width, isa)

    @T.prim_func
    def func(
        q: T.Buffer((b, t, heads, width), "float32"),
        k: T.Buffer((b, t, kv_heads, width), "float32"),
        v: T.Buffer((b, t, kv_heads, width), "float32"),
        start: T.Buffer((b, t), "int32"),
        o: T.Buffer((b, t, heads, width), "float32"),
    ):
        for task in T.parallel(b * heads):
            k_t = T.alloc_buffer((width, t), "float32", scope="local")
            p = T.alloc_buffer((STRIP, t), "float32", scope="local")
            strips.transpose(k, task, k_t)
            for s in range(t // STRIP):
                first = T.meta_var(start[task // heads, s * STRIP] // COLUMNS)
                last = T.meta_var((s * STRIP + STRIP + COLUMNS - 1) // COLUMNS)
                strips.scores(q, task, s, k_t, p, first, last)
                strips.softmax(p, start, task // heads, s, first, last)
                strips.weigh(p, v, task, s, o, first, last)

    return named(func, name)


def attention_grad(name: str, b: int, t: int, heads: int, kv_heads: int, width: int, isa: Isa):
    """With P the attention weights: dV = Pᵀ·dO, dP = dO·Vᵀ, dS = P ∘ (dP − rowsum(P ∘ dP)) / √d, dQ = dS·K, dK = dSᵀ·Q

    do [B,T,H,d] · q [B,T,H,d] · k [B,T,KV,d] · v [B,T,KV,d] · start [B,T] i32  →  dq, dk, dv [B,T,H,d]
    dk and dv stand per query head; sum_heads brings them to KV heads.
    """
    strips = Strips(t, heads, kv_heads, width, isa)

    @T.prim_func
    def func(
        do: T.Buffer((b, t, heads, width), "float32"),
        q: T.Buffer((b, t, heads, width), "float32"),
        k: T.Buffer((b, t, kv_heads, width), "float32"),
        v: T.Buffer((b, t, kv_heads, width), "float32"),
        start: T.Buffer((b, t), "int32"),
        dq: T.Buffer((b, t, heads, width), "float32"),
        dk: T.Buffer((b, t, heads, width), "float32"),
        dv: T.Buffer((b, t, heads, width), "float32"),
    ):
        for task in T.parallel(b * heads):
            k_t = T.alloc_buffer((width, t), "float32", scope="local")
            v_t = T.alloc_buffer((width, t), "float32", scope="local")
            p = T.alloc_buffer((STRIP, t), "float32", scope="local")
            ds = T.alloc_buffer((STRIP, t), "float32", scope="local")
            strips.transpose(k, task, k_t)
            strips.transpose(v, task, v_t)
            for j in range(t):
                for c in T.vectorized(width):
                    dk[task // heads, j, task % heads, c] = T.float32(0)
                for c in T.vectorized(width):
                    dv[task // heads, j, task % heads, c] = T.float32(0)
            for s in range(t // STRIP):
                first = T.meta_var(start[task // heads, s * STRIP] // COLUMNS)
                last = T.meta_var((s * STRIP + STRIP + COLUMNS - 1) // COLUMNS)
                strips.scores(q, task, s, k_t, p, first, last)
                strips.softmax(p, start, task // heads, s, first, last)
                strips.scores(do, task, s, v_t, ds, first, last)
                strips.scatter(p, do, task, s, dv, first, last)
                strips.score_gradient(p, ds, first, last)
                strips.scatter(ds, q, task, s, dk, first, last)
                strips.weigh(ds, k, task, s, dq, first, last)

    return named(func, name)


def decode_attention(name: str, context: int, heads: int, kv_heads: int, width: int):
    """Attention of one new token over the cache; its own key and value are in row position[0] already

    q [1,H,d] · keys [C,KV,d] · values [C,KV,d] · position [1] i32  →  o [1,H,d]
    """
    share = heads // kv_heads
    scale = width**-0.5

    @T.prim_func
    def func(
        q: T.Buffer((1, heads, width), "float32"),
        keys: T.Buffer((context, kv_heads, width), "float32"),
        values: T.Buffer((context, kv_heads, width), "float32"),
        position: T.Buffer((1,), "int32"),
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
