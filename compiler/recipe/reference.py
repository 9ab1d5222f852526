"""The tables of all keys, written from the declarations themselves.

In:  the dataclasses of schema.py and the docstring under each field.
Out: Markdown, one table per section.
docs/configuration.md ends with it and a test compares the two. After a change of the declarations:
    python -m mobilefinetuner.compiler.recipe.reference docs/configuration.md
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from .reader import describe
from .schema import Recipe

HEADING = "## All keys\n"


def reference() -> str:
    """All sections, in the order of the recipe."""
    parts = [_table(title, rows) for title, rows in _sections(Recipe, "")]
    return "\n".join(part for part in parts if part)


def _sections(section: type, prefix: str) -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    hints, meanings, rows, inner = typing.get_type_hints(section), field_docstrings(section), [], []
    for field in dataclasses.fields(section):
        key, hint = f"{prefix}{field.name}", hints[field.name]
        if dataclasses.is_dataclass(hint):
            inner += list(_sections(cast(type, hint), f"{key}."))
        elif "keys_of" in field.metadata:
            inner += list(_sections(field.metadata["keys_of"], f"{key}."))
        else:
            rows.append((key, _allowed(field, hint), _default(field), meanings[field.name]))
    yield prefix.rstrip(".") or "recipe", rows
    yield from inner


def field_docstrings(section: type) -> dict[str, str]:
    """The string under each field of a dataclass, in one line."""
    definition = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(section))).body[0])
    found = {}
    for statement, following in zip(definition.body, definition.body[1:]):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[cast(ast.Name, statement.target).id] = " ".join(str(following.value.value).split())
    return found


def _allowed(field: dataclasses.Field, hint: Any) -> str:
    if reason := field.metadata.get("not_yet"):
        return f"its default: {reason}"
    check = field.metadata.get("check")
    if check is None:
        return describe(hint)
    number = str(check).replace("a number", "a whole number") if "int" in str(hint) else str(check)
    if typing.get_origin(hint) is tuple:
        number = f"a list [a,b] of: {number}"
    return number + (" or null" if type(None) in typing.get_args(hint) else "")


def _default(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "from the YAML" if field.default_factory is dataclasses.MISSING else "none"
    if isinstance(field.default, tuple):
        return f"`[{','.join(map(str, field.default))}]`"
    text = json.dumps(field.default) if field.default is None or isinstance(field.default, bool) or field.default == "" else str(field.default)
    return f"`{text}`"


def _table(title: str, rows: list[tuple[str, str, str, str]]) -> str:
    if not rows:
        return ""
    lines = [f"### {title}", "", "| key | allowed | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{key}` | {_cell(allowed)} | {_cell(default)} | {_cell(meaning)} |" for key, allowed, default, meaning in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def with_reference(page: str) -> str:
    """The page with everything after its heading for the tables replaced."""
    before, heading, _ = page.partition(HEADING)
    return f"{before}{heading}\n{reference()}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_reference(path.read_text(encoding="utf-8")), encoding="utf-8")
