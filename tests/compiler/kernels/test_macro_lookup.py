"""The quick lookup of TVM's parser finds what TVM's own finds."""

from __future__ import annotations

import inspect
from typing import cast

import pytest
import tvm
from mobilefinetuner.compiler.kernels import macro_lookup
from tvm.script import tirx as T
from tvm.script.parser.core.parser import ScriptMacro

from tests.support.short_stack import on_a_short_stack


def tvms_own_lookup(_macro: ScriptMacro):
    """As TVM 0.27 does it."""
    for info in inspect.getouterframes(inspect.currentframe()):
        if (parser := info.frame.f_globals.get(ScriptMacro.parser_object_name)) is not None:
            return parser
    raise AssertionError("no parser")


def with_macros() -> tvm.tirx.PrimFunc:
    """A function whose macro calls a macro."""

    @T.inline
    def add_one(y, i):
        y[i] = y[i] + T.float32(1)

    @T.inline
    def double_and_add_one(x, y, i):
        y[i] = x[i] * T.float32(2)
        add_one(y, i)

    @T.prim_func
    def func(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            double_and_add_one(x, y, i)

    return func


def test_a_function_is_the_same_as_with_tvms_own_lookup(monkeypatch):
    assert ScriptMacro._find_parser_def is macro_lookup._nearest_parser
    calls = []

    def both(macro: ScriptMacro):
        calls.append((tvms_own_lookup(macro), macro_lookup._nearest_parser(macro)))
        return calls[-1][0]

    quick = on_a_short_stack(with_macros)
    monkeypatch.setattr(ScriptMacro, "_find_parser_def", both)
    tvm.ir.assert_structural_equal(quick, on_a_short_stack(with_macros))
    assert len(calls) == 2 and all(theirs is ours for theirs, ours in calls)


def test_a_macro_outside_a_function_is_refused():
    macro = cast(ScriptMacro, None)  # of no interest to the lookup
    with pytest.raises(RuntimeError, match="not available"):
        macro_lookup._nearest_parser(macro)
