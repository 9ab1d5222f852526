"""All operators, and how Relax learns of them.

In:  the records.
Out: OPERATORS by name; `register_operators`, to be called before the first expression is built.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.op.base import register_gradient

from . import activation, add, attention, embedding, groups, linear, loss, matmul, norm, rope
from .operator import Gradient, Infer, Operator, Shape, Without, shape_of

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        linear.LINEAR, linear.LINEAR_T, matmul.MATMUL, add.ADD,
        norm.RMS_NORM, norm.RMS_NORM_GRAD,
        rope.ROPE,
        attention.ATTENTION, attention.ATTENTION_GRAD, attention.SUM_HEADS, attention.DECODE_ATTENTION,
        activation.SWIGLU, activation.SWIGLU_GRAD,
        groups.GROUP_SUM, groups.GROUP_SPREAD,
        embedding.GATHER,
        loss.SOFTMAX_LOSS, loss.DISTILL_LOSS, loss.SEED,
    )
}  # fmt: skip


@functools.cache
def register_operators() -> None:
    """Make the operators known to Relax, with their types and gradients; once in a process."""
    for operator in OPERATORS.values():
        if not isinstance(operator.infer, Without):
            _register(operator, operator.infer)


def _register(operator: Operator, infer: Infer) -> None:
    tvm_ffi.get_global_func("ir.RegisterOp")(operator.name, f"MobileFineTuner operator {operator.name}")
    op = tvm.ir.Op.get(operator.name)
    op.set_num_inputs(operator.inputs)

    def infer_type(call: relax.Call, _builder: Any) -> relax.Type:
        result = infer([shape_of(arg) for arg in call.args], call.attrs)
        if result and isinstance(result[0], tuple):
            return relax.TupleType([_tensor(shape) for shape in result])
        return _tensor(result)

    op.set_attr("FInferType", infer_type)
    op.set_attr("FPurity", True)
    # Only a warning-free printout depends on it.
    op.set_attr("TScriptPrinterName", operator.name)
    if not isinstance(operator.gradient, Without):
        _register_gradient(operator.name, operator.gradient)


def _register_gradient(name: str, gradient: Gradient) -> None:
    register_gradient(name, lambda _var, call, output_grad, _ctx: gradient(call, output_grad))


def _tensor(shape: Shape) -> relax.TensorType:
    return relax.TensorType(shape, "float32")
