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
from .kernel_set import template
from .lanes import fill
from .strips import COLUMNS, MASKED, STRIP, Strips


@template("attention")
def attention(b: int, t: int, heads: int, kv_heads: int, width: int, *, isa: Isa):
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
            sample = T.meta_var(task // heads)
            k_t = T.alloc_buffer((width, t), "float32", scope="local")
            p = T.alloc_buffer((STRIP, t), "float32", scope="local")
            strips.transpose(k, task, k_t)
            for s in range(t // STRIP):
                first = T.meta_var(start[sample, s * STRIP] // COLUMNS)
                last = T.meta_var((s * STRIP + STRIP + COLUMNS - 1) // COLUMNS)
                strips.scores(q, task, s, k_t, p, first, last)
                strips.softmax(p, start, sample, s, first, last)
                strips.weigh(p, v, task, s, o, first, last)

    return func


@template("attention_grad")
def attention_grad(b: int, t: int, heads: int, kv_heads: int, width: int, *, isa: Isa):
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
            sample, head = T.meta_var(task // heads), T.meta_var(task % heads)
            k_t = T.alloc_buffer((width, t), "float32", scope="local")
            v_t = T.alloc_buffer((width, t), "float32", scope="local")
            p = T.alloc_buffer((STRIP, t), "float32", scope="local")
            ds = T.alloc_buffer((STRIP, t), "float32", scope="local")
            strips.transpose(k, task, k_t)
            strips.transpose(v, task, v_t)
            for j in range(t):
                for c in T.vectorized(width):
                    dk[sample, j, head, c] = T.float32(0)
                for c in T.vectorized(width):
                    dv[sample, j, head, c] = T.float32(0)
            for s in range(t // STRIP):
                first = T.meta_var(start[sample, s * STRIP] // COLUMNS)
                last = T.meta_var((s * STRIP + STRIP + COLUMNS - 1) // COLUMNS)
                # 1. The strip's attention weights P, once more.
                strips.scores(q, task, s, k_t, p, first, last)
                strips.softmax(p, start, sample, s, first, last)
                # 2. dP, and what P itself gives dV.
                strips.scores(do, task, s, v_t, ds, first, last)
                strips.scatter(p, do, task, s, dv, first, last)
                # 3. dS in place of dP, and what it gives dK and dQ.
                strips.score_gradient(p, ds, first, last)
                strips.scatter(ds, q, task, s, dk, first, last)
                strips.weigh(ds, k, task, s, dq, first, last)

    return func


@template("decode_attention")
def decode_attention(context: int, heads: int, kv_heads: int, width: int):
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
            kv_head = T.meta_var(h // share)
            p = T.alloc_buffer((context,), "float32", scope="local")
            top = T.alloc_buffer((1,), "float32", scope="local")
            total = T.alloc_buffer((1,), "float32", scope="local")
            acc = T.alloc_buffer((width,), "float32", scope="local")
            # 1. The scores of all rows so far, and the largest.
            top[0] = T.float32(MASKED)
            for j in range(position[0] + 1):
                for c in T.vectorized(width):
                    acc[c] = q[0, h, c] * keys[j, kv_head, c]
                p[j] = T.float32(0)
                for c in range(width):
                    p[j] += acc[c]
                p[j] *= T.float32(scale)
                top[0] = T.max(top[0], p[j])
            # 2. The values, weighted by the exponentials, and the exponentials' sum.
            total[0] = T.float32(0)
            fill(acc, width, 0)
            for j in range(position[0] + 1):
                p[j] = exp(p[j] - top[0])
                total[0] += p[j]
                for c in T.vectorized(width):
                    acc[c] += p[j] * values[j, kv_head, c]
            for c in T.vectorized(width):
                o[0, h, c] = acc[c] / total[0]

    return func
