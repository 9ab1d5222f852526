"""Differentiate an entry: forward function in, the function that returns its gradients out.

In:  EntryGraph whose only result is a scalar root.
Out: EntryGraph that returns the gradients of x and of every adapter matrix (and the loss, where there is one).
The forward computation is part of the result: this is the recomputation of activation checkpointing. What no gradient needs
is left to lower.py, which emits only what the outputs depend on.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

from .graph import EntryGraph, Parameter


def differentiate(graph: EntryGraph, keep: Mapping[str, tuple[str, int]] | None = None) -> EntryGraph:
    """Reverse-mode gradients of the root.

    Before:  f(x, …) -> root
    After:   f(x, …) -> (kept values…, dx, d adapter…)
    Leaves alone: the order and roles of the parameters.

    keep: forward values that are returned as well: output name -> (variable that holds a tuple, index in it).
    """
    wanted = [*graph.named("input")[:1], *graph.named("adapter")]
    module = tvm.IRModule({"main": graph.function.with_attr("global_symbol", "main")})
    adjoint = relax.transform.Gradient("main", require_grads=_parameters(module["main"], wanted))(module)["main_adjoint"]
    forward = {binding.var.name: binding.var for block in adjoint.body.blocks for binding in block.bindings}
    results = {name: relax.TupleGetItem(forward[var], index) for name, (var, index) in (keep or {}).items()}
    results |= {f"d{var.name}": gradient for var, gradient in zip(wanted, adjoint.body.body.fields[1].fields)}
    parameters = tuple(Parameter(var, p.role) for p, var in zip(graph.parameters, adjoint.params))
    return EntryGraph(graph.name, adjoint, parameters, results)


def _parameters(function: relax.Function, wanted: list[relax.Var]) -> list[relax.Var]:
    """The parameters of `function` that carry the names of `wanted`."""
    by_name = {p.name: p for p in function.params}
    return [by_name[var.name] for var in wanted]
