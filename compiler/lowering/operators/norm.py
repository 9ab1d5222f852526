"""RMSNorm and its gradient; the norm's weight is frozen."""

# Shapes: M rows (tokens) · D model width

from __future__ import annotations

from tvm import relax
from tvm.relax.op.grad import no_grad

from ...kernels import rows
from .operator import Operator, Without, call, same_as_first


def rms_norm(x: relax.Expr, w: relax.Expr, epsilon: float) -> relax.Call:
    """x [M,D] · w [D]  →  y [M,D]"""
    return call("mft.rms_norm", x, w, epsilon=float(epsilon))


def rms_norm_grad(dy: relax.Expr, x: relax.Expr, w: relax.Expr, epsilon: float) -> relax.Call:
    """dy [M,D] · x [M,D] · w [D]  →  dx [M,D]"""
    return call("mft.rms_norm_grad", dy, x, w, epsilon=float(epsilon))


def _gradient(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    x, w = call.args
    return [rms_norm_grad(dy, x, w, call.attrs["epsilon"]), no_grad(w)]


RMS_NORM = Operator(
    "mft.rms_norm",
    inputs=2,
    infer=same_as_first,
    gradient=_gradient,
    kernel=lambda site, kernels: kernels.named(rows.rms_norm, *site.shapes[0], epsilon=float(site.attrs["epsilon"])),
)

RMS_NORM_GRAD = Operator(
    "mft.rms_norm_grad",
    inputs=3,
    infer=same_as_first,
    gradient=Without("it is a gradient, and nothing is differentiated twice"),
    kernel=lambda site, kernels: kernels.named(rows.rms_norm_grad, *site.shapes[0], epsilon=float(site.attrs["epsilon"])),
)
