"""The operators that a transformer block is written in, with their types and gradients, as Relax operators.

In:  Relax expressions.
Out: calls of `mft.*` operators that relax.transform.Gradient differentiates and lower.py turns into kernel calls.
Every operator is one kernel, and the set is closed under differentiation. Relax's own operators would differentiate too, into
some 170 small ones that patterns would then have to find together again; here nothing is ever taken apart.
"""

# Shapes: M = B·T rows (tokens) · D model width · N, K output and input width · H query heads · KV key-value heads · d head width

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.op.base import register_gradient
from tvm.relax.op.grad import no_grad

Shape = tuple[int, ...]
Infer = Callable[[Sequence[Shape], Mapping[str, Any]], "Shape | tuple[Shape, ...]"]
Gradient = Callable[[relax.Call, relax.Expr], "list[relax.Expr]"]


def shape_of(expr: relax.Expr) -> Shape:
    """Static shape of a tensor expression."""
    return tuple(int(extent) for extent in expr.ty.shape)


def _tensor(shape: Shape) -> relax.TensorType:
    return relax.TensorType(shape, "float32")


def _register(name: str, n_inputs: int, infer: Infer, gradient: Gradient | None) -> None:
    tvm_ffi.get_global_func("ir.RegisterOp")(name, f"MobileFineTuner operator {name}")
    op = tvm.ir.Op.get(name)
    op.set_num_inputs(n_inputs)

    def infer_type(call: relax.Call, _builder: Any) -> relax.Type:
        result = infer([shape_of(arg) for arg in call.args], call.attrs)
        if result and isinstance(result[0], tuple):
            return relax.TupleType([_tensor(shape) for shape in result])
        return _tensor(result)

    op.set_attr("FInferType", infer_type)
    op.set_attr("FPurity", True)
    # Only a warning-free printout depends on it.
    op.set_attr("TScriptPrinterName", name)
    if gradient is not None:
        register_gradient(name, lambda _var, call, output_grad, _ctx: gradient(call, output_grad))


def _call(name: str, *args: relax.Expr, **attrs: Any) -> relax.Call:
    return relax.Call(tvm.ir.Op.get(name), list(args), tvm.ir.make_node("ir.DictAttrs", **attrs))


def linear(x: relax.Expr, w: relax.Expr) -> relax.Call:
    """y = x · wᵀ with a frozen w

    x [M,K] · w [N,K]  →  y [M,N]
    """
    return _call("mft.linear", x, w)


def linear_t(dy: relax.Expr, w: relax.Expr) -> relax.Call:
    """dx = dy · w with a frozen w

    dy [M,N] · w [N,K]  →  dx [M,K]
    """
    return _call("mft.linear_t", dy, w)


def matmul(a: relax.Expr, b: relax.Expr, form: str, alpha: float = 1.0) -> relax.Call:
    """y = alpha · op(a) · op(b); see kernels.gemm.matmul for the forms nt, nn, tn  →  y [M,N]"""
    return _call("mft.matmul", a, b, form=form, alpha=float(alpha))


def rms_norm(x: relax.Expr, w: relax.Expr, epsilon: float) -> relax.Call:
    """x [M,D] · w [D]  →  y [M,D]"""
    return _call("mft.rms_norm", x, w, epsilon=float(epsilon))


def rope(x: relax.Expr, cos: relax.Expr, sin: relax.Expr, batch: int, inverse: bool = False) -> relax.Call:
    """x [M,H·d] · cos [T,d/2] · sin [T,d/2]  →  y [M,H·d]"""
    return _call("mft.rope", x, cos, sin, batch=batch, inverse=int(inverse))


def attention(q: relax.Expr, k: relax.Expr, v: relax.Expr, start: relax.Expr, width: int) -> relax.Call:
    """q [M,H·d] · k [M,KV·d] · v [M,KV·d] · start [B,T] i32  →  o [M,H·d]"""
    return _call("mft.attention", q, k, v, start, width=width)


def decode_attention(q: relax.Expr, keys: relax.Expr, values: relax.Expr, position: relax.Expr, width: int) -> relax.Call:
    """q [1,H·d] · keys [C,KV·d] · values [C,KV·d] · position [1] i32  →  o [1,H·d]"""
    return _call("mft.decode_attention", q, keys, values, position, width=width)


def swiglu(gate: relax.Expr, up: relax.Expr) -> relax.Call:
    """gate [M,F] · up [M,F]  →  y [M,F]"""
    return _call("mft.swiglu", gate, up)


def group_sum(x: relax.Expr, size: int) -> relax.Call:
    """x [M,K]  →  y [M,K/size]"""
    return _call("mft.group_sum", x, size=size)


def gather(ids: relax.Expr, w: relax.Expr) -> relax.Call:
    """ids [M] i32 · w [V,D]  →  y [M,D]"""
    return _call("mft.gather", ids, w)


def softmax_loss(logits: relax.Expr, targets: relax.Expr, scale: relax.Expr) -> relax.Call:
    """logits [C,V] · targets [C] i32 · scale [1]  →  (loss [C], dlogits [C,V], which takes the place of logits)"""
    return _call("mft.softmax_loss", logits, targets, scale)


def seed(y: relax.Expr, dy: relax.Expr) -> relax.Call:
    """The scalar Σ y · dy whose gradient with respect to y is dy: the root that reverse mode starts from."""
    return _call("mft.seed", y, dy)


def _grad_linear(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    w = call.args[1]
    return [linear_t(dy, w), no_grad(w)]


def _grad_matmul(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    a, b = call.args
    if call.attrs["form"] != "nt":
        raise NotImplementedError("only the nt form stands in a forward graph")
    alpha = float(call.attrs["alpha"])
    return [matmul(dy, b, "nn", alpha), matmul(dy, a, "tn", alpha)]


def _grad_rms_norm(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    x, w = call.args
    return [_call("mft.rms_norm_grad", dy, x, w, epsilon=float(call.attrs["epsilon"])), no_grad(w)]


def _grad_rope(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    _, cos, sin = call.args
    return [rope(dy, cos, sin, int(call.attrs["batch"]), inverse=True), no_grad(cos), no_grad(sin)]


def _grad_attention(call: relax.Call, do: relax.Expr) -> list[relax.Expr]:
    q, k, v, start = call.args
    parts = _call("mft.attention_grad", do, q, k, v, start, width=int(call.attrs["width"]))
    kv_width = shape_of(k)[1]
    dk, dv = (_call("mft.sum_heads", relax.TupleGetItem(parts, index), kv_width=kv_width, width=int(call.attrs["width"])) for index in (1, 2))
    return [relax.TupleGetItem(parts, 0), dk, dv, no_grad(start)]


def _grad_swiglu(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    parts = _call("mft.swiglu_grad", dy, *call.args)
    return [relax.TupleGetItem(parts, 0), relax.TupleGetItem(parts, 1)]


def _grad_group_sum(call: relax.Call, dy: relax.Expr) -> list[relax.Expr]:
    return [_call("mft.group_spread", dy, size=int(call.attrs["size"]))]


def _register_all() -> None:
    same_as_first: Infer = lambda shapes, attrs: shapes[0]  # noqa: E731
    matmul_shape = {
        "nt": lambda a, b: (a[0], b[0]),
        "nn": lambda a, b: (a[0], b[1]),
        "tn": lambda a, b: (a[1], b[1]),
    }
    operators: list[tuple[str, int, Infer, Gradient | None]] = [
        ("mft.linear", 2, lambda s, a: (s[0][0], s[1][0]), _grad_linear),
        ("mft.linear_t", 2, lambda s, a: (s[0][0], s[1][1]), None),
        ("mft.matmul", 2, lambda s, a: matmul_shape[a["form"]](*s), _grad_matmul),
        ("mft.rms_norm", 2, same_as_first, _grad_rms_norm),
        ("mft.rms_norm_grad", 3, same_as_first, None),
        ("mft.rope", 3, same_as_first, _grad_rope),
        ("mft.attention", 4, same_as_first, _grad_attention),
        ("mft.attention_grad", 5, lambda s, a: (s[1], s[1], s[1]), None),
        ("mft.decode_attention", 4, same_as_first, None),
        ("mft.sum_heads", 1, lambda s, a: (s[0][0], int(a["kv_width"])), None),
        ("mft.swiglu", 2, same_as_first, _grad_swiglu),
        ("mft.swiglu_grad", 3, lambda s, a: (s[0], s[0]), None),
        ("mft.group_sum", 1, lambda s, a: (s[0][0], s[0][1] // int(a["size"])), _grad_group_sum),
        ("mft.group_spread", 1, lambda s, a: (s[0][0], s[0][1] * int(a["size"])), None),
        ("mft.gather", 2, lambda s, a: (s[0][0], s[1][1]), None),
        ("mft.softmax_loss", 3, lambda s, a: ((s[0][0],), s[0]), None),
        ("mft.seed", 2, lambda s, a: (), lambda call, _: [call.args[1], no_grad(call.args[1])]),
    ]
    for name, n_inputs, infer, gradient in operators:
        _register(name, n_inputs, infer, gradient)


_register_all()
