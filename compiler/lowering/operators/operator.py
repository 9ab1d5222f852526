"""What an operator is: its name, its type, its gradient and its kernel, in one record.

In:  nothing.
Out: Operator, and what its parts are written with: a Site for the kernel's choice, `call` for expressions.
The gradient of an operator is made of operators, each of which is one kernel: nothing is ever taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm
from tvm import relax

from ...kernels.block_types import BLOCK_TYPES, BlockType
from ...kernels.kernel_set import KernelSet

Shape = tuple[int, ...]
Infer = Callable[[Sequence[Shape], Mapping[str, Any]], "Shape | tuple[Shape, ...]"]
"""(shapes of the arguments, attributes) -> the result's shape, or one for each result"""
Gradient = Callable[[relax.Call, relax.Expr], "list[relax.Expr]"]
"""(the call, the gradient of its result) -> the gradients of its arguments"""


@dataclass(frozen=True)
class Site:
    """One call of an operator, which a kernel is chosen for."""

    shapes: tuple[Shape, ...]
    """of the arguments"""
    attrs: Mapping[str, Any]
    weight_type: str
    """GGUF type of the second argument, "" when it is no weight matrix"""

    def number(self, name: str) -> int:
        return int(self.attrs[name])

    @property
    def block(self) -> BlockType:
        """The block type of the weight: the base was brought to types with kernels (model/base_model.py)."""
        return BLOCK_TYPES[self.weight_type]


Kernel = Callable[[Site, KernelSet], str]
"""the name of the kernel that computes a call"""


class InPlace(NamedTuple):
    """A result that takes over the memory of an argument; it is no argument of the kernel of its own."""

    output: int
    argument: int


@dataclass(frozen=True)
class Without:
    """A part that an operator does not have."""

    because: str


@dataclass(frozen=True)
class Operator:
    """Everything that there is to know of one operator."""

    name: str
    """as Relax knows it"""
    inputs: int
    """number of arguments"""
    infer: Infer | Without
    """without: an operator of Relax, which brings its own rule and its own gradient"""
    gradient: Gradient | Without
    kernel: Kernel | Without
    in_place: InPlace | None = None


def call(name: str, *arguments: relax.Expr, **attributes: int | float | str) -> relax.Call:
    """A call of the operator of that name."""
    return relax.Call(tvm.ir.Op.get(name), list(arguments), tvm.ir.make_node("ir.DictAttrs", **attributes))


def shape_of(expr: relax.Expr) -> Shape:
    """Static shape of a tensor expression."""
    return tuple(int(extent) for extent in expr.ty.shape)


def same_as_first(shapes: Sequence[Shape], _attrs: Mapping[str, Any]) -> Shape:
    """The rule of operators whose result has the shape of their first argument."""
    return shapes[0]


def elements(shape: Shape) -> int:
    """Number of elements of a tensor."""
    total = 1
    for extent in shape:
        total *= extent
    return total
