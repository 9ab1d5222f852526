"""The small products of an adapter's matrices, all fp32."""

# Shapes: M rows of the result · N its columns · R reduction length

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from ...kernels import gemm
from ...kernels.kernel_set import KernelSet
from .operator import Operator, Shape, Site, call


def matmul(a: relax.Expr, b: relax.Expr, form: gemm.Form, alpha: float = 1.0) -> relax.Call:
    """y = alpha · op(a) · op(b); see kernels.gemm.matmul for the forms nt, nn, tn  →  y [M,N]"""
    return call("mft.matmul", a, b, form=form, alpha=float(alpha))


def _sizes(shapes: Sequence[Shape], form: str) -> tuple[int, int, int]:
    """(M, N, R)"""
    a, b = shapes
    m, r = (a[1], a[0]) if form == "tn" else a
    return m, b[0] if form == "nt" else b[1], r


def _infer(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    return _sizes(shapes, attrs["form"])[:2]


def _gradient(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    a, b = call.args
    if call.attrs["form"] != "nt":
        raise NotImplementedError("only the nt form stands in a forward graph")
    alpha = float(call.attrs["alpha"])
    return [matmul(dy, b, "nn", alpha), matmul(dy, a, "tn", alpha)]


def _kernel(site: Site, kernels: KernelSet) -> str:
    form = str(site.attrs["form"])
    return kernels.named(gemm.matmul, form, *_sizes(site.shapes, form), alpha=float(site.attrs["alpha"]))


MATMUL = Operator("mft.matmul", inputs=2, infer=_infer, gradient=_gradient, kernel=_kernel)
