"""The sum of two tensors: Relax's own operator, because relax.transform.Gradient adds up gradients with it."""

from __future__ import annotations

from tvm import relax

from ...kernels import rows
from .operator import Operator, Without, elements

add = relax.op.add
"""a + b, of the same shape"""

ADD = Operator(
    "relax.add",
    inputs=2,
    infer=Without("Relax has a rule"),
    gradient=Without("Relax has a gradient"),
    kernel=lambda site, kernels: kernels.named(rows.add, elements(site.shapes[0])),
)
