"""One operator at a time: a graph that holds nothing else is lowered, compiled and run as the phone runs an entry.

In:  Call: an operator's expression and the values of its arguments.
Out: what its kernels make of them, and of its gradient.
A weight is given as GGUF blocks, as a model file holds it; numpy's side of a test gets the values that the blocks stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from mobilefinetuner.compiler.kernels.kernel_set import KernelSet
from mobilefinetuner.compiler.lowering import dialect
from mobilefinetuner.compiler.lowering.autodiff import differentiate
from mobilefinetuner.compiler.lowering.graph import EntryGraph, Parameter
from mobilefinetuner.compiler.lowering.lower import lower
from mobilefinetuner.compiler.lowering.operators.table import OPERATORS
from mobilefinetuner.runtime.bundle.plan import Entry
from mobilefinetuner.runtime.engine.kernel_library import KernelLibrary, aligned_bytes
from tvm import relax

from tests.support.kernel_values import blocks, normal


@dataclass(frozen=True)
class Weight:
    """A frozen matrix [N,K] as blocks of one GGUF type."""

    kind: str
    n: int
    k: int

    @cached_property
    def stored(self) -> np.ndarray:
        return blocks(self.kind, self.n, self.k)[0]

    @cached_property
    def values(self) -> np.ndarray:
        return blocks(self.kind, self.n, self.k)[1]


@dataclass(frozen=True)
class Call:
    """A call of an operator on certain values, and what it means."""

    express: Callable[..., relax.Call]
    arguments: tuple[np.ndarray | Weight, ...]
    meaning: Callable[..., Any]
    """the same in numpy, in double precision: an array, or a tuple of them"""
    differentiable: tuple[int, ...] = ()
    """the arguments that a gradient is asked for, the first of them first"""

    @property
    def exact(self) -> list[np.ndarray]:
        """The arguments as numpy's side gets them."""
        values = [a.values if isinstance(a, Weight) else a for a in self.arguments]
        return [v if v.dtype == np.int32 else v.astype(np.float64) for v in values]

    @property
    def wanted(self) -> tuple[np.ndarray, ...]:
        results = self.meaning(*self.exact)
        return results if isinstance(results, tuple) else (results,)

    @property
    def dy(self) -> np.ndarray:
        """A gradient of the result."""
        return normal(*self.wanted[0].shape, seed=99)

    def lowered(self, kernels: KernelSet, *, gradient: bool) -> Entry:
        graph = differentiate(self._graph(root=True)) if gradient else self._graph(root=False)
        kinds = {f"x{i}": a.kind for i, a in enumerate(self.arguments) if isinstance(a, Weight)}
        return lower(graph, kernels, kinds, "gradient" if gradient else "value")

    def place(self, operator: str, index: int) -> str:
        """The operand that holds the result of that number: an argument, when the result takes its place."""
        in_place = OPERATORS[operator].in_place
        return f"x{in_place.argument}" if in_place and in_place.output == index else f"y{index}"

    def _graph(self, *, root: bool) -> EntryGraph:
        dialect.register_operators()
        variables = [relax.Var(f"x{i}", relax.TensorType(*_type(a))) for i, a in enumerate(self.arguments)]
        roles = ["weight" if isinstance(a, Weight) else "input" for a in self.arguments]
        for index in self.differentiable[1:]:
            roles[index] = "adapter"
        if root:
            variables.append(relax.Var("dy", relax.TensorType(self.dy.shape, "float32")))
            roles.append("input")
        builder = relax.BlockBuilder()
        with builder.function("main"):
            with builder.dataflow():
                expression = self.express(*variables[: len(self.arguments)])
                result = builder.emit(expression)
                parts = {"root": builder.emit(dialect.seed(result, variables[-1]))} if root else self._parts(builder, expression.op.name, result)
                outputs = {name: builder.emit_output(part) for name, part in parts.items()}
            builder.emit_func_output(relax.Tuple(list(outputs.values())) if len(outputs) > 1 else next(iter(outputs.values())), variables)
        function = builder.get()["main"]
        returned = function.body.body
        fields = returned.fields if isinstance(returned, relax.Tuple) else [returned]
        return EntryGraph("trial", function, tuple(map(Parameter, variables, roles)), dict(zip(outputs, fields)))

    def _parts(self, builder: relax.BlockBuilder, operator: str, result: relax.Var) -> dict[str, relax.Var]:
        """The results that have an operand of their own."""
        if not isinstance(result.ty, relax.TupleType):
            return {"y0": result}
        own = [index for index in range(len(result.ty.fields)) if self.place(operator, index) == f"y{index}"]
        return {f"y{index}": builder.emit(relax.TupleGetItem(result, index)) for index in own}


def _type(argument: np.ndarray | Weight) -> tuple[tuple[int, ...], str]:
    return ((argument.n, argument.k), "float32") if isinstance(argument, Weight) else (argument.shape, str(argument.dtype))


def run(entry: Entry, call: Call, library: KernelLibrary) -> Mapping[str, np.ndarray]:
    """Every operand after the entry has run, by name; what is not an argument begins as NaN."""
    given = {f"x{i}": a.stored if isinstance(a, Weight) else a for i, a in enumerate(call.arguments)} | {"dy": call.dy}
    arrays = {}
    for operand in entry.operands:
        memory = aligned_bytes(int(np.prod(operand.shape)) * np.dtype(operand.dtype).itemsize).view(operand.dtype).reshape(operand.shape)
        memory[...] = given.get(operand.name, np.nan)
        arrays[operand.name] = memory
    scratch = aligned_bytes(entry.scratch_bytes)
    library.program(entry, {name: array.ctypes.data for name, array in arrays.items()}, scratch.ctypes.data).run()
    return arrays
