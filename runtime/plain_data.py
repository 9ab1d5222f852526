"""Dataclasses from plain JSON: every key known, every value of the declared type and range.

In:  a dict as json.load gives it, and a frozen dataclass whose fields are scalars, lists of strings or nested dataclasses.
Out: the dataclass, or one UserError that lists everything that is wrong.
A mistyped rule must not silently mean "no rule": unknown keys are errors and name their nearest neighbour.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from .errors import UserError

T = TypeVar("T")


def from_json(kind: type[T], value: Any, where: str) -> T:
    """Build `kind` from a JSON object; `where` names the object in error texts."""
    problems: list[str] = []
    built = _build(kind, value, where, problems)
    if problems:
        raise UserError(where, "; ".join(problems), remedy="put these keys right and compile or ingest again")
    return built


def to_json(value: Any) -> Any:
    """The JSON form that from_json reads back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return value


def _build(kind: type, value: Any, where: str, problems: list[str]) -> Any:
    if not isinstance(value, dict):
        problems.append(f"{where} is {_kind_name(value)}, an object is needed")
        return None
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in value:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f", did you mean {near[0]!r}?" if near else f", known keys: {', '.join(fields)}"
            problems.append(f"{where} has the unknown key {key!r}{hint}")
    needed = [
        f.name for f in fields.values() if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in value
    ]
    problems.extend(f"{where} lacks the key {name!r}" for name in needed)
    given = {key: _convert(fields[key], item, f"{where}.{key}", problems) for key, item in value.items() if key in fields}
    if problems:
        return None
    try:
        return kind(**given)
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return None


def _convert(field: dataclasses.Field, value: Any, where: str, problems: list[str]) -> Any:
    """Field metadata says what a value is: item=dataclass for lists of objects, item=str for lists of strings."""
    item = field.metadata.get("item")
    if field.metadata.get("open"):
        return value
    if item is not None:
        if not isinstance(value, list):
            problems.append(f"{where} is {_kind_name(value)}, a list is needed")
            return ()
        if item is str:
            problems.extend(f"{where} holds {_kind_name(entry)}, texts are needed" for entry in value if not isinstance(entry, str))
            return tuple(value)
        return tuple(_build(item, entry, f"{where}[{n}]", problems) for n, entry in enumerate(value))
    if "nested" in field.metadata:
        return _build(field.metadata["nested"], value, where, problems)
    return _scalar(str(field.type), value, where, problems)


def _scalar(type_name: str, value: Any, where: str, problems: list[str]) -> Any:
    if value is None and "None" in type_name:
        return None
    if type_name.startswith("bool"):
        wanted = bool
    elif type_name.startswith("int"):
        wanted = int
    elif type_name.startswith("float"):
        wanted = (int, float)
    else:
        wanted = str
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        problems.append(f"{where} is {_kind_name(value)}, {type_name.split(' ')[0]} is needed")
        return None
    return float(value) if type_name.startswith("float") else value


def _kind_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true/false", type(None): "null"}
    return names.get(type(value), f"the number {value}")
