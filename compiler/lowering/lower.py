"""Turn an entry's function into kernel calls with a place for every argument.

In:  EntryGraph, the GGUF types of the weights, the kernels so far.
Out: runtime.bundle.plan.Entry; kernels that are new are added to the KernelSet.
Only what the results depend on is emitted, so the parts of a recomputed forward pass that no gradient reads cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvm import relax

from ...runtime.bundle.plan import Argument, Dtype, Entry, KernelCall, Operand, n_bytes
from ..kernels.block_types import BLOCK, BLOCK_TYPES
from ..kernels.kernel_set import KernelSet
from .arena import Lifetime, plan_arena
from .graph import EntryGraph
from .operators.operator import Operator, Site, Without, shape_of
from .operators.table import OPERATORS


@dataclass(eq=False)
class _Tensor:
    """A value of the entry: an operand, or a temporary with a lifetime in call indices."""

    shape: tuple[int, ...]
    dtype: Dtype = "float32"
    operand: int | None = None
    first: int = -1
    last: int = -1


@dataclass
class _State:
    kernels: KernelSet
    weight_types: Mapping[str, str]
    operands: list[Operand] = field(default_factory=list)
    values: dict[relax.Var, list[_Tensor]] = field(default_factory=dict)
    """variable -> its tensor, or the tensors of a tuple"""
    calls: list[tuple[str, list[_Tensor]]] = field(default_factory=list)

    def tensor(self, expr: relax.Expr) -> _Tensor:
        """The tensor that an argument or result stands for."""
        if isinstance(expr, relax.TupleGetItem):
            return self.values[expr.tuple_value][int(expr.index)]
        return self.values[expr][0]


def lower(graph: EntryGraph, kernels: KernelSet, weight_types: Mapping[str, str], bucket: str = "", signature: str = "") -> Entry:
    """The entry as a list of kernel calls.

    weight_types: GGUF type of each weight matrix, by parameter name; vectors stay fp32.
    """
    state = _State(kernels, weight_types)
    for parameter in graph.parameters:
        _add_parameter(state, parameter.var, parameter.role)
    for binding in _live_bindings(graph):
        _emit(state, binding)
    for name, expr in graph.results.items():
        tensor = state.tensor(expr)
        if tensor.operand is not None:
            raise RuntimeError(f"{graph.name}: no kernel writes {name}, it is the same tensor as {state.operands[tensor.operand].name}")
        tensor.operand = len(state.operands)
        role = "gradient" if ":" in name else "output"
        state.operands.append(Operand(name, role, tensor.shape, tensor.dtype))
    return _place(state, graph.name, bucket, signature)


def _add_parameter(state: _State, var: relax.Var, role: str) -> None:
    shape, dtype = shape_of(var), str(var.ty.dtype)
    if role == "weight" and len(shape) == 2:
        block = BLOCK_TYPES.get(state.weight_types[var.name])
        # An unknown type is refused where a kernel is asked for, with the list of types that have one.
        shape, dtype = (shape[0], shape[1] // BLOCK, block.bytes if block else 0), "uint8"
    state.values[var] = [_Tensor(shape, dtype, operand=len(state.operands))]
    state.operands.append(Operand(var.name, role, shape, dtype))


def _sources(value: relax.Expr) -> list[relax.Var]:
    """The variables that the right side of a binding reads."""
    if isinstance(value, relax.Call):
        return [v for arg in value.args for v in _sources(arg)]
    if isinstance(value, relax.TupleGetItem):
        return _sources(value.tuple_value)
    return [value] if isinstance(value, relax.Var) else []


def _live_bindings(graph: EntryGraph) -> list[relax.VarBinding]:
    """The bindings that the results depend on, in order."""
    needed = {v for expr in graph.results.values() for v in _sources(expr)}
    live: list[relax.VarBinding] = []
    bindings = [b for block in graph.function.body.blocks for b in block.bindings]
    for binding in reversed(bindings):
        if binding.var in needed:
            live.append(binding)
            needed.update(_sources(binding.value))
    return live[::-1]


def _emit(state: _State, binding: relax.VarBinding) -> None:
    value = binding.value
    if not isinstance(value, relax.Call):
        whole_tuple = isinstance(value, relax.Var)
        state.values[binding.var] = state.values[value] if whole_tuple else [state.tensor(value)]
        return
    arguments = [state.tensor(arg) for arg in value.args]
    second = value.args[1] if len(value.args) > 1 else None
    weight_type = state.weight_types.get(second.name, "") if isinstance(second, relax.Var) else ""
    shapes = tuple(shape_of(arg) for arg in value.args)
    operator = OPERATORS[value.op.name]
    if isinstance(operator.kernel, Without):
        raise RuntimeError(f"{operator.name} has no kernel: {operator.kernel.because}")
    kernel = operator.kernel(Site(shapes, value.attrs, weight_type), state.kernels)
    outputs, passed = _outputs(operator, value, arguments)
    for tensor in passed:
        tensor.first = len(state.calls) if tensor.first < 0 else tensor.first
        tensor.last = len(state.calls)
    state.calls.append((kernel, passed))
    state.values[binding.var] = outputs


def _outputs(operator: Operator, call: relax.Call, arguments: list[_Tensor]) -> tuple[list[_Tensor], list[_Tensor]]:
    """(the tensors that the call produces, the tensors that its kernel is given)."""
    types = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]
    outputs = [_Tensor(tuple(int(e) for e in t.shape)) for t in types]
    taken = operator.in_place
    if taken is None:
        return outputs, arguments + outputs
    outputs[taken.output] = arguments[taken.argument]
    return outputs, arguments + [t for i, t in enumerate(outputs) if i != taken.output]


def _place(state: _State, name: str, bucket: str, signature: str) -> Entry:
    """Give every temporary an offset and write the calls down."""
    temporaries = {id(t): t for _, passed in state.calls for t in passed if t.operand is None}
    arena = plan_arena([Lifetime(n_bytes(t.shape, t.dtype), t.first, t.last + 1) for t in temporaries.values()])
    offsets = dict(zip(temporaries, arena.offsets))
    arguments: dict[Argument, int] = {}
    calls = []
    for kernel, passed in state.calls:
        views = [
            Argument(t.operand, offsets.get(id(t), 0), shape, dtype)
            for t, (shape, dtype) in zip(passed, state.kernels.argument_shapes(kernel), strict=True)
        ]
        for tensor, view in zip(passed, views):
            if n_bytes(tensor.shape, tensor.dtype) != n_bytes(view.shape, view.dtype):
                raise RuntimeError(f"{name}: kernel {kernel} takes {view.shape}, the tensor has {tensor.shape}")
        calls.append(KernelCall(kernel, tuple(arguments.setdefault(view, len(arguments)) for view in views)))
    return Entry(name, bucket, signature, tuple(state.operands), tuple(arguments), tuple(calls), arena.n_bytes)
