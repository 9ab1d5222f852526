"""Causal attention over packed samples, its gradient, and the form that decodes one token."""

# Shapes: B batch · T tokens · M = B·T rows · C rows of the cache · H query heads · KV key-value heads · d head width

from __future__ import annotations

from tvm import relax
from tvm.relax.op.grad import no_grad

from ...kernels import attention as templates
from ...kernels import rows
from ...kernels.kernel_set import KernelSet
from .operator import Operator, Site, Without, call, same_as_first, shape_of


def attention(q: relax.Expr, k: relax.Expr, v: relax.Expr, start: relax.Expr, width: int) -> relax.Call:
    """q [M,H·d] · k [M,KV·d] · v [M,KV·d] · start [B,T] i32  →  o [M,H·d]"""
    return call("mft.attention", q, k, v, start, width=width)


def attention_grad(do: relax.Expr, q: relax.Expr, k: relax.Expr, v: relax.Expr, start: relax.Expr, width: int) -> relax.Call:
    """do [M,H·d] · q [M,H·d] · k [M,KV·d] · v [M,KV·d] · start [B,T] i32  →  (dq, dk, dv) [M,H·d], dk and dv per query head"""
    return call("mft.attention_grad", do, q, k, v, start, width=width)


def sum_heads(x: relax.Expr, kv_width: int, width: int) -> relax.Call:
    """x [M,H·d]  →  y [M,KV·d], the sum over the query heads that share a key-value head"""
    return call("mft.sum_heads", x, kv_width=kv_width, width=width)


def decode_attention(q: relax.Expr, keys: relax.Expr, values: relax.Expr, position: relax.Expr, width: int) -> relax.Call:
    """q [1,H·d] · keys [C,KV·d] · values [C,KV·d] · position [1] i32  →  o [1,H·d]"""
    return call("mft.decode_attention", q, keys, values, position, width=width)


def _gradient(call: relax.Call, do: relax.Expr) -> list[relax.Expr]:
    q, k, v, start = call.args
    width = int(call.attrs["width"])
    parts = attention_grad(do, q, k, v, start, width)
    dk, dv = (sum_heads(relax.TupleGetItem(parts, index), shape_of(k)[1], width) for index in (1, 2))
    return [relax.TupleGetItem(parts, 0), dk, dv, no_grad(start)]


def _sizes(site: Site) -> tuple[int, int, int, int, int]:
    """(B, T, H, KV, d); the last arguments are q, k, v and start"""
    q, k, _, start = site.shapes[-4:]
    width = site.number("width")
    return *start, q[1] // width, k[1] // width, width


def _decode_kernel(site: Site, kernels: KernelSet) -> str:
    q, (context, kv_width), _, _ = site.shapes
    width = site.number("width")
    return kernels.named(templates.decode_attention, context, q[1] // width, kv_width // width, width)


def _sum_heads_kernel(site: Site, kernels: KernelSet) -> str:
    m, total = site.shapes[0]
    width, kv_width = site.number("width"), site.number("kv_width")
    return kernels.named(rows.sum_heads, m, kv_width // width, total // kv_width, width)


ATTENTION = Operator(
    "mft.attention",
    inputs=4,
    infer=same_as_first,
    gradient=_gradient,
    kernel=lambda site, kernels: kernels.named(templates.attention, *_sizes(site)),
)

ATTENTION_GRAD = Operator(
    "mft.attention_grad",
    inputs=5,
    infer=lambda shapes, _: (shapes[1], shapes[1], shapes[1]),
    gradient=Without("it is a gradient, and nothing is differentiated twice"),
    kernel=lambda site, kernels: kernels.named(templates.attention_grad, *_sizes(site)),
)

SUM_HEADS = Operator(
    "mft.sum_heads",
    inputs=1,
    infer=lambda shapes, attrs: (shapes[0][0], int(attrs["kv_width"])),
    gradient=Without("it is part of a gradient, and nothing is differentiated twice"),
    kernel=_sum_heads_kernel,
)

DECODE_ATTENTION = Operator(
    "mft.decode_attention",
    inputs=4,
    infer=same_as_first,
    gradient=Without("nothing is trained while decoding"),
    kernel=_decode_kernel,
)
