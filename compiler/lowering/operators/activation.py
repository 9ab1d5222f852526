"""The feed-forward network's SwiGLU and its gradient."""

# Shapes: M rows (tokens) · F inner width

from __future__ import annotations

from tvm import relax

from ...kernels import rows
from .operator import Operator, Without, call, elements, same_as_first


def swiglu(gate: relax.Expr, up: relax.Expr) -> relax.Call:
    """gate [M,F] · up [M,F]  →  y [M,F]"""
    return call("mft.swiglu", gate, up)


def swiglu_grad(dy: relax.Expr, gate: relax.Expr, up: relax.Expr) -> relax.Call:
    """dy [M,F] · gate [M,F] · up [M,F]  →  (dgate, dup) [M,F]"""
    return call("mft.swiglu_grad", dy, gate, up)


def _gradient(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    parts = swiglu_grad(dy, *call.args)
    return [relax.TupleGetItem(parts, 0), relax.TupleGetItem(parts, 1)]


SWIGLU = Operator(
    "mft.swiglu",
    inputs=2,
    infer=same_as_first,
    gradient=_gradient,
    kernel=lambda site, kernels: kernels.named(rows.swiglu, elements(site.shapes[0])),
)

SWIGLU_GRAD = Operator(
    "mft.swiglu_grad",
    inputs=3,
    infer=lambda shapes, _: (shapes[0], shapes[0]),
    gradient=Without("it is a gradient, and nothing is differentiated twice"),
    kernel=lambda site, kernels: kernels.named(rows.swiglu_grad, elements(site.shapes[0])),
)
