"""Plain data (JSON, YAML) to frozen dataclasses and back: every key known, every value of the declared type and range.

In:  what json.load gives, and the type that is meant: dataclasses of scalars, Literals, tuples, mappings, dataclasses, each perhaps `| None`.
Out: the instance; or all that is wrong, each with the path to it: in Binder.problems, or as one UserError from `bind`.
Ranges are the dataclass's own: what its __post_init__ refuses is a problem of that place. A type that has `parse` stands as one text.
A mistyped rule must not silently mean "no rule": unknown keys are errors and name their nearest neighbour.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from .errors import UserError

T = TypeVar("T")
HintForm = Literal["any", "scalar", "object", "list", "pair", "optional", "choice", "mapping", "text"]
WORDS = {bool: "true, false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}
"""the scalars in a person's words"""


def bind(kind: type[T], value: Any, where: str, remedy: str = "put these keys right and compile or ingest again") -> T:
    """The instance that a JSON value stands for; `where` names the value in error texts. UserError with everything that is wrong."""
    binder = Binder()
    built = binder.bind(kind, value, where)
    if len(binder.problems) == 1:
        [problem] = binder.problems
        raise UserError(problem.where, problem.found, problem.allowed, problem.remedy or remedy)
    if binder.problems:
        raise UserError(where, " · ".join(map(str, binder.problems)), remedy=remedy)
    return built


def plain(value: Any) -> Any:
    """The dicts, lists and scalars that a Binder reads back as `value`."""
    if dataclasses.is_dataclass(value) and not _is_text(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not _is_text(type(value)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) or _is_text(type(value)) else value


class Binder:
    """Reads values by JSON's rules and keeps what is wrong with them; a subclass may read scalars more freely or say things in its own way."""

    def __init__(self) -> None:
        self.problems: list[UserError] = []

    def bind(self, hint: Any, value: Any, where: str) -> Any:
        """`value` as the type `hint`; None, and at least one more problem, where it is something else."""
        form, parts = form_of(hint)
        try:
            if form == "scalar":
                return self.scalar(hint, value, where)
            if form == "object":
                return self.instance(hint, value, where)
            if form in ("list", "pair"):
                return self.items(hint, value, where)
            if form == "optional":
                return None if value is None else self.bind(parts[0], value, where)
            if form == "choice":
                return self.choice(parts, value, where)
            if form == "mapping":
                return self.mapping(parts, value, where)
            return value if form == "any" else _parsed(hint, value, where)
        except UserError as error:
            self.problems.append(error)
            return None

    def instance(self, kind: type, value: Any, where: str) -> Any:
        """An instance of the dataclass `kind`."""
        if not isinstance(value, Mapping):
            raise self.not_an_object(kind, value, where)
        before, known = len(self.problems), fields_of(kind)
        self.problems += [self.unknown_key(kind, key, where) for key in value if key not in known]
        read = {}
        for name, (field, hint) in known.items():
            if name in value:
                read[name] = self.field(field, hint, value[name], inside(where, name))
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                self.problems.append(self.missing_key(name, where))
        return self.build(kind, read, where) if len(self.problems) == before else None

    def build(self, kind: type, read: dict[str, Any], where: str) -> Any:
        """The instance, unless its own checks refuse it."""
        try:
            return kind(**read)
        except ValueError as error:
            raise UserError(where, str(error)) from None

    def field(self, field: dataclasses.Field, hint: Any, value: Any, where: str) -> Any:
        """The value of one field."""
        return self.bind(hint, value, where)

    def items(self, hint: Any, value: Any, where: str) -> tuple:
        """tuple[X, ...] or tuple[X, Y] from a list."""
        form, parts = form_of(hint)
        if not isinstance(value, (list, tuple)):
            raise self.not_a_list(hint, value, where)
        if form == "pair" and len(value) != len(parts):
            raise UserError(where, f"has {len(value)} items", str(len(parts)))
        hints = parts if form == "pair" else parts * len(value)
        return tuple(self.bind(part, item, f"{where}[{index}]") for index, (part, item) in enumerate(zip(hints, value)))

    def mapping(self, parts: tuple[Any, ...], value: Any, where: str) -> Mapping[str, Any]:
        """Mapping[str, X] from an object."""
        if not isinstance(value, Mapping):
            raise UserError(where, f"is {kind_name(value)}, an object is needed")
        return {key: self.bind(parts[0], item, inside(where, key)) for key, item in value.items()}

    def choice(self, options: tuple[Any, ...], value: Any, where: str) -> Any:
        """One of a Literal's options."""
        if any(type(value) is type(option) and value == option for option in options):
            return value
        raise UserError(where, f"{value!r} is not one of the choices", ", ".join(map(str, options)))

    def scalar(self, kind: type, value: Any, where: str) -> Any:
        """A bool, int, float or text: a whole number may stand for a float, and nothing else for anything else."""
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            try:
                return float(value)
            except OverflowError:
                raise UserError(where, "is too large for a number with decimals") from None
        raise UserError(where, f"is {kind_name(value)}, {WORDS[kind]} is needed")

    def unknown_key(self, kind: type, key: Any, where: str) -> UserError:
        near = difflib.get_close_matches(str(key), fields_of(kind), n=1)
        if near:
            return UserError(where, f"has the unknown key {key!r}, did you mean {near[0]!r}?")
        return UserError(where, f"has the unknown key {key!r}", ", ".join(fields_of(kind)))

    def missing_key(self, name: str, where: str) -> UserError:
        return UserError(where, f"lacks the key {name!r}")

    def not_an_object(self, kind: type, value: Any, where: str) -> UserError:
        return UserError(where, f"is {kind_name(value)}, an object is needed")

    def not_a_list(self, hint: Any, value: Any, where: str) -> UserError:
        return UserError(where, f"is {kind_name(value)}, a list is needed")


@functools.cache
def fields_of(kind: type) -> dict[str, tuple[dataclasses.Field, Any]]:
    """A dataclass's fields by name, each with its type."""
    hints = typing.get_type_hints(kind)
    return {field.name: (field, hints[field.name]) for field in dataclasses.fields(kind)}


@functools.cache
def form_of(hint: Any) -> tuple[HintForm, tuple[Any, ...]]:
    """What kind of type it is and the types inside it; TypeError for one that plain data has no form for."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType) and len(parts) == 2 and types.NoneType in parts:
        return "optional", tuple(part for part in parts if part is not types.NoneType)
    if origin is Literal:
        return "choice", parts
    if origin is tuple:
        return ("list", parts[:1]) if parts[1:] == (Ellipsis,) else ("pair", parts)
    if origin in (Mapping, dict):
        return "mapping", parts[1:]
    if hint in (Mapping, dict):
        return "mapping", (Any,)
    if _is_text(hint):
        return "text", ()
    if dataclasses.is_dataclass(hint):
        return "object", ()
    if hint in WORDS:
        return "scalar", ()
    if hint is Any:
        return "any", ()
    raise TypeError(f"plain data has no form for {hint}")


def inside(where: str, name: str) -> str:
    """The path of a key of the object at `where`."""
    return f"{where}.{name}" if where else str(name)


def kind_name(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", tuple: "a list", str: "a text", bool: "true/false", type(None): "null"}
    return names.get(type(value), f"the number {value}")


def _is_text(hint: Any) -> bool:
    """Whether the type stands as one text, which its `parse` reads and its `__str__` writes."""
    return isinstance(hint, type) and hasattr(hint, "parse")


def _parsed(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, str):
        raise UserError(where, f"is {kind_name(value)}, {WORDS[str]} is needed")
    try:
        return kind.parse(value)
    except ValueError as error:
        raise UserError(where, str(error)) from None
