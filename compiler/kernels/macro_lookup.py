"""Make TVM's parser find itself quickly when a kernel template calls a `T.inline` macro.

Each call looks for the parser among the globals of the frames on the stack. TVM 0.27 gathers file, line and source text of every frame for that,
which searches all loaded modules: a sixth of a compilation, nearly half of one where PyTorch is loaded. Walking the frames finds the same parser.
"""

from __future__ import annotations

import sys
from typing import Any

from tvm.script.parser.core.parser import ScriptMacro


def use_quick_lookup() -> None:
    """From now on, in this process."""
    ScriptMacro._find_parser_def = _nearest_parser  # pyright: ignore[reportAttributeAccessIssue]


def _nearest_parser(_macro: ScriptMacro) -> Any:
    """The parser of the innermost frame that has one."""
    frame = sys._getframe(1)
    while frame is not None:
        parser = frame.f_globals.get(ScriptMacro.parser_object_name)
        if parser is not None:
            return parser
        frame = frame.f_back
    raise RuntimeError(f"{ScriptMacro.parser_object_name} not available")
