"""Rows of the embedding, which is GGUF blocks once it is lowered."""

# Shapes: M tokens · V vocabulary · D model width

from __future__ import annotations

from tvm import relax

from ...kernels import gemv
from ...kernels.kernel_set import KernelSet
from .operator import Operator, Site, Without, call


def gather(ids: relax.Expr, w: relax.Expr) -> relax.Call:
    """ids [M] i32 · w [V,D]  →  y [M,D]"""
    return call("mft.gather", ids, w)


def _kernel(site: Site, kernels: KernelSet) -> str:
    (m,), (vocabulary, d) = site.shapes
    return kernels.named(gemv.gather_rows, m, vocabulary, d, site.block)


GATHER = Operator(
    "mft.gather",
    inputs=2,
    infer=lambda shapes, _: (shapes[0][0], shapes[1][1]),
    gradient=Without("the embedding is frozen and token numbers have no gradient"),
    kernel=_kernel,
)
