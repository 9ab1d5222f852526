"""Sums over neighbouring inputs, which a grouped adapter's A sees, and their gradient."""

# Shapes: M rows (tokens) · K input width

from __future__ import annotations

from tvm import relax

from ...kernels import rows
from ...kernels.kernel_set import KernelSet
from .operator import Operator, Site, Without, call


def group_sum(x: relax.Expr, size: int) -> relax.Call:
    """x [M,K]  →  y [M,K/size]"""
    return call("mft.group_sum", x, size=size)


def group_spread(x: relax.Expr, size: int) -> relax.Call:
    """x [M,K/size]  →  y [M,K], each value `size` times"""
    return call("mft.group_spread", x, size=size)


def _group_sum_kernel(site: Site, kernels: KernelSet) -> str:
    (m, width), size = site.shapes[0], site.number("size")
    return kernels.named(rows.group_sum, m, width // size, size)


GROUP_SUM = Operator(
    "mft.group_sum",
    inputs=1,
    infer=lambda shapes, attrs: (shapes[0][0], shapes[0][1] // int(attrs["size"])),
    gradient=lambda call, dy: [group_spread(dy, int(call.attrs["size"]))],
    kernel=_group_sum_kernel,
)

GROUP_SPREAD = Operator(
    "mft.group_spread",
    inputs=1,
    infer=lambda shapes, attrs: (shapes[0][0], shapes[0][1] * int(attrs["size"])),
    gradient=Without("it is a gradient, and nothing is differentiated twice"),
    kernel=lambda site, kernels: kernels.named(rows.group_spread, *site.shapes[0], site.number("size")),
)
