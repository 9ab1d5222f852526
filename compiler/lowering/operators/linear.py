"""Products with the frozen weights, which are GGUF blocks once they are lowered."""

# Shapes: M rows (tokens) · K input width · N output width

from __future__ import annotations

from tvm import relax
from tvm.relax.op.grad import no_grad

from ...kernels import gemm, gemv
from ...kernels.kernel_set import KernelSet
from .operator import Operator, Site, Without, call


def linear(x: relax.Expr, w: relax.Expr) -> relax.Call:
    """y = x · wᵀ with a frozen w

    x [M,K] · w [N,K]  →  y [M,N]
    """
    return call("mft.linear", x, w)


def linear_t(dy: relax.Expr, w: relax.Expr) -> relax.Call:
    """dx = dy · w with a frozen w

    dy [M,N] · w [N,K]  →  dx [M,K]
    """
    return call("mft.linear_t", dy, w)


def _linear_gradient(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    w = call.args[1]
    return [linear_t(dy, w), no_grad(w)]


def _linear_kernel(site: Site, kernels: KernelSet) -> str:
    (m, k), (n, _) = site.shapes
    if m == 1:
        return kernels.named(gemv.frozen_matvec, n, k, site.block)
    return kernels.named(gemm.frozen_matmul, m, n, k, site.block)


def _linear_t_kernel(site: Site, kernels: KernelSet) -> str:
    (m, n), (_, k) = site.shapes
    return kernels.named(gemm.frozen_matmul_t, m, n, k, site.block)


LINEAR = Operator(
    "mft.linear",
    inputs=2,
    infer=lambda shapes, _: (shapes[0][0], shapes[1][0]),
    gradient=_linear_gradient,
    kernel=_linear_kernel,
)

LINEAR_T = Operator(
    "mft.linear_t",
    inputs=2,
    infer=lambda shapes, _: (shapes[0][0], shapes[1][1]),
    gradient=Without("it is part of a gradient, and nothing is differentiated twice"),
    kernel=_linear_t_kernel,
)
