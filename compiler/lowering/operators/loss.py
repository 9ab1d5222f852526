"""Where differentiation starts: the losses, which give their own gradient, and the seed that carries a gradient into a graph."""

# Shapes: C rows that have a label · V vocabulary

from __future__ import annotations

from tvm import relax
from tvm.relax.op.grad import no_grad

from ...kernels import head
from .operator import InPlace, Operator, Without, call


def softmax_loss(logits: relax.Expr, targets: relax.Expr, scale: relax.Expr) -> relax.Call:
    """logits [C,V] · targets [C] i32 · scale [C]  →  (loss [C], dlogits [C,V], which takes the place of logits)"""
    return call("mft.softmax_loss", logits, targets, scale)


def distill_loss(logits: relax.Expr, teacher: relax.Expr, scale: relax.Expr) -> relax.Call:
    """logits, teacher [C,V] · scale [C]  →  (loss [C], dlogits [C,V], which takes the place of logits)"""
    return call("mft.distill_loss", logits, teacher, scale)


def seed(y: relax.Expr, dy: relax.Expr) -> relax.Call:
    """The scalar Σ y · dy whose gradient with respect to y is dy: the root that reverse mode starts from."""
    return call("mft.seed", y, dy)


SOFTMAX_LOSS = Operator(
    "mft.softmax_loss",
    inputs=3,
    infer=lambda shapes, _: ((shapes[0][0],), shapes[0]),
    gradient=Without("it computes the gradient of the logits itself"),
    kernel=lambda site, kernels: kernels.named(head.softmax_loss, *site.shapes[0]),
    in_place=InPlace(output=1, argument=0),
)

DISTILL_LOSS = Operator(
    "mft.distill_loss",
    inputs=3,
    infer=lambda shapes, _: ((shapes[0][0],), shapes[0]),
    gradient=Without("it computes the gradient of the logits itself"),
    kernel=lambda site, kernels: kernels.named(head.distill_loss, *site.shapes[0]),
    in_place=InPlace(output=1, argument=0),
)

SEED = Operator(
    "mft.seed",
    inputs=2,
    infer=lambda shapes, _: (),
    gradient=lambda call, _: [call.args[1], no_grad(call.args[1])],
    kernel=Without("only its gradient is left when a graph is lowered"),
)
