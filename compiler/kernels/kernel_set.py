"""Kernels by name: templates, what a kernel of theirs is called, and the set of kernels that one library is made of.

In:  a template and its arguments.
Out: the kernel's name; the kernel is built on first use and shared by all entries that need the same one.
A name is the template's stem and all arguments, so that plan.json can be read without the library. Left out are only the
instruction set, which a whole library shares, and an argument that equals the template's own default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import tvm

from .block_types import BlockType
from .isa import Isa

Shape = tuple[int, ...]
Argument = int | float | bool | str | BlockType
SHARED = "isa"
"""the argument that a KernelSet fills in"""


@dataclass(frozen=True)
class Template:
    """What kernels of one kind are made from; calling it gives the TIR function, which a KernelSet then names."""

    stem: str
    """what all its kernels' names begin with"""
    build: Callable[..., tvm.tirx.PrimFunc]

    def __post_init__(self) -> None:
        defaults = [type(value) for value in self.defaults.values()]
        if int in defaults or len(set(defaults)) < len(defaults):
            raise ValueError(f"template {self.stem}: a default for a size, or two defaults of one type: a name would not tell which was left out")

    def __call__(self, *arguments: Argument, **keywords: Argument | Isa) -> tvm.tirx.PrimFunc:
        return self.build(*arguments, **keywords)

    @property
    def signature(self) -> inspect.Signature:
        """The arguments that a name is made of."""
        parameters = inspect.signature(self.build).parameters
        return inspect.Signature([p for name, p in parameters.items() if name != SHARED])

    @property
    def takes_isa(self) -> bool:
        return SHARED in inspect.signature(self.build).parameters

    @property
    def defaults(self) -> dict[str, Argument]:
        return {name: p.default for name, p in self.signature.parameters.items() if p.default is not inspect.Parameter.empty}

    def bound(self, *arguments: Argument, **keywords: Argument) -> dict[str, Argument]:
        """Every argument by its parameter's name, numbers as the fp32 numbers that a kernel holds."""
        binding = self.signature.bind(*arguments, **keywords)
        binding.apply_defaults()
        return {name: _in_fp32(value, self.defaults.get(name)) for name, value in binding.arguments.items()}


def template(stem: str) -> Callable[[Callable[..., tvm.tirx.PrimFunc]], Template]:
    """Decorator: the function below it is a template whose kernels are named `stem` and their arguments."""
    return lambda build: Template(stem, build)


def kernel_name(made_from: Template, bound: Mapping[str, Argument]) -> str:
    """Stem, then what is no size, then the sizes: matmul_nt_0_5_16x96x4.

    Different arguments give different names: each kind of word has its own form, and at most one of a kind can be left out.
    """
    words, sizes = [made_from.stem], []
    defaults = {name: _in_fp32(value, value) for name, value in made_from.defaults.items()}
    for name, value in bound.items():
        if name in defaults and value == defaults[name]:
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            sizes.append(str(value))
        else:
            words.append(_word(name, value))
    return "_".join([*words, *(["x".join(sizes)] if sizes else [])])


def _in_fp32(value: Argument, default: Argument | None) -> Argument:
    return float(np.float32(cast(float, value))) if isinstance(value, float) or isinstance(default, float) else value


def _word(name: str, value: Argument) -> str:
    if isinstance(value, BlockType):
        return value.name.lower()
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    if isinstance(value, float):
        # A symbol of a library is made of letters, digits and underscores; no number contains an m or a p.
        return str(np.float32(value)).translate(str.maketrans(".-+", "_mp"))
    return str(value)


@dataclass
class KernelSet:
    """The kernels of one library, by name."""

    isa: Isa
    functions: dict[str, tvm.tirx.PrimFunc] = field(default_factory=dict)
    origins: dict[str, tuple[Template, dict[str, Argument]]] = field(default_factory=dict)
    """the template and the arguments that each was made from"""

    def named(self, made_from: Template, *arguments: Argument, **keywords: Argument) -> str:
        """The kernel's name, after building it if it is new. ValueError when another kernel has that name."""
        bound = made_from.bound(*arguments, **keywords)
        name = kernel_name(made_from, bound)
        origin = self.origins.setdefault(name, (made_from, bound))
        if origin != (made_from, bound):
            raise ValueError(f"two kernels would be called {name}: {origin[0].stem} with {origin[1]} and {made_from.stem} with {bound}")
        if name not in self.functions:
            function = made_from(**bound, **({SHARED: self.isa} if made_from.takes_isa else {}))
            # Its buffers never overlap.
            self.functions[name] = function.with_attr("global_symbol", name).with_attr("tirx.noalias", True)
        return name

    def argument_shapes(self, name: str) -> list[tuple[Shape, str]]:
        """(shape, dtype) of each parameter of a kernel."""
        return [(tuple(int(extent) for extent in p.shape), str(p.dtype)) for p in self.functions[name].params]
