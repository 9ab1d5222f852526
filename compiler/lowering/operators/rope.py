"""Rotary positions; turning the other way is the gradient."""

# Shapes: B batch · T tokens · M = B·T rows · H heads · d head width

from __future__ import annotations

from tvm import relax
from tvm.relax.op.grad import no_grad

from ...kernels import rows
from ...kernels.kernel_set import KernelSet
from .operator import Operator, Site, call, same_as_first


def rope(x: relax.Expr, cos: relax.Expr, sin: relax.Expr, batch: int, inverse: bool = False) -> relax.Call:
    """x [M,H·d] · cos [T,d/2] · sin [T,d/2]  →  y [M,H·d]"""
    return call("mft.rope", x, cos, sin, batch=batch, inverse=int(inverse))


def _gradient(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    _, cos, sin = call.args
    return [rope(dy, cos, sin, int(call.attrs["batch"]), inverse=True), no_grad(cos), no_grad(sin)]


def _kernel(site: Site, kernels: KernelSet) -> str:
    (m, total), (tokens, half) = site.shapes[:2]
    return kernels.named(rows.rope, m // tokens, tokens, total // (2 * half), 2 * half, inverse=bool(site.number("inverse")))


ROPE = Operator("mft.rope", inputs=3, infer=same_as_first, gradient=_gradient, kernel=_kernel)
