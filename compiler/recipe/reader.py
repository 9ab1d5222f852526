"""Turn plain values (YAML, command line) into the recipe's dataclasses, collecting every problem on the way.

In:  nested dicts and lists of plain values, and the dataclass they are meant for.
Out: the instance, or None with at least one more problem in `problems`.
A value is converted only where nothing is lost: "1e-4" is a number, 1.5 is no integer, 0.10 in YAML is not the text "0.10".
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union

from ...runtime.errors import UserError
from .errors import RecipeError, nearest, unknown_word
from .fields import field_problem


def known_keys(section: type, prefix: str = "") -> list[str]:
    """Every dotted key below a dataclass, sections themselves left out."""
    hints, keys = typing.get_type_hints(section), []
    for field in dataclasses.fields(section):
        hint, key = hints[field.name], f"{prefix}{field.name}"
        if dataclasses.is_dataclass(hint):
            keys += known_keys(hint, f"{key}.")
        elif "keys_of" in field.metadata:
            keys += [f"{key}.{inner.name}" for inner in dataclasses.fields(field.metadata["keys_of"]())]
        else:
            keys.append(key)
    return keys


def hint_of(section: type, key: str) -> Any:
    """The declared type of a dotted key, or None when there is no such key."""
    name, _, rest = key.partition(".")
    field = next((field for field in dataclasses.fields(section) if field.name == name), None)
    if field is None:
        return None
    hint = typing.get_type_hints(section)[name]
    inner = field.metadata["keys_of"]() if "keys_of" in field.metadata else hint
    if not rest:
        return hint
    return hint_of(inner, rest) if dataclasses.is_dataclass(inner) else None


def declared_defaults(section: type) -> dict[str, Any]:
    """The defaults of a dataclass as plain values; fields that YAML has to give are absent."""
    hints, defaults = typing.get_type_hints(section), {}
    for field in dataclasses.fields(section):
        if dataclasses.is_dataclass(hints[field.name]):
            defaults[field.name] = declared_defaults(hints[field.name])
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = list(field.default) if isinstance(field.default, tuple) else field.default
    return defaults


class RecipeReader:
    """Reads sections one after the other and keeps what was wrong with each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """relative paths are resolved against it"""
        self.problems: list[UserError] = []

    def section(self, kind: type, values: Any, where: str = "") -> Any:
        """An instance of dataclass `kind` from a mapping; None when anything in it is wrong."""
        if not isinstance(values, Mapping):
            self.problems.append(UserError(where, f"{values!r} is a single value", f"a section with {', '.join(known_keys(kind))}"))
            return None
        before, prefix = len(self.problems), f"{where}." if where else ""
        hints, read = typing.get_type_hints(kind), {}
        names = [field.name for field in dataclasses.fields(kind)]
        for name in [name for name in values if name not in names]:
            known = [f"{prefix}{known}" for known in names]
            self.problems.append(unknown_word(f"{prefix}{name}", f"{prefix}{name}", "key", known))
        for field in dataclasses.fields(kind):
            if field.name in values:
                read[field.name] = self._field(kind, field, hints[field.name], values[field.name], f"{prefix}{field.name}")
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                self.problems.append(UserError(f"{prefix}{field.name}", "is missing", remedy=f"{prefix}{field.name}=…"))
        return self._build(kind, read, where) if len(self.problems) == before else None

    def _build(self, kind: type, read: dict[str, Any], where: str) -> Any:
        try:
            return kind(**read)
        except RecipeError as error:
            self.problems += error.problems
        except ValueError as error:  # dataclasses of the runtime say so in their own words
            self.problems.append(UserError(where, str(error)))
        return None

    def _field(self, kind: type, field: dataclasses.Field, hint: Any, value: Any, key: str) -> Any:
        if dataclasses.is_dataclass(hint):
            return self.section(hint, value, key)
        if "keys_of" in field.metadata:
            return self._open_section(field.metadata["keys_of"](), value, key) if value else {}
        try:
            if value in field.metadata.get("not_available", ()):
                raise UserError(key, f"{value!r} is not available yet", describe(hint))
            converted = self.convert(hint, value, key)
            problem = field_problem(kind, field, converted) if hasattr(kind, "SECTION") else None
            if problem:
                raise problem
            return converted
        except UserError as error:
            self.problems.append(error)
            return None

    def _open_section(self, kind: type, value: Any, key: str) -> dict[str, Any]:
        """Checked like `kind`, but only the keys that were given are kept: the rest stays to whoever fills them in."""
        built = self.section(kind, value, key)
        return {} if built is None else {name: plain(getattr(built, name)) for name in value}

    def convert(self, hint: Any, value: Any, key: str) -> Any:
        """`value` as the declared type, or UserError."""
        origin, options = typing.get_origin(hint), typing.get_args(hint)
        if origin in (Union, types.UnionType):
            inner = next(option for option in options if option is not type(None))
            return None if value is None else self.convert(inner, value, key)
        if origin is Literal:
            return _literal(options, value, key)
        if origin is tuple:
            return self._items(options[0], hint, value, key)
        if dataclasses.is_dataclass(hint):
            return self.section(hint, value, key)
        readers = {bool: _bool, int: _int, float: _float, str: _text, Path: self._path}
        return readers[hint](value, key)

    def _items(self, inner: Any, hint: Any, value: Any, key: str) -> tuple:
        if not isinstance(value, (list, tuple)):
            raise UserError(key, f"{value!r} is a single value", describe(hint), f"'{key}=[{value}]'")
        return tuple(self.convert(inner, item, f"{key}[{index}]") for index, item in enumerate(value))

    def _path(self, value: Any, key: str) -> Path:
        text = _text(value, key)
        if not text:
            raise UserError(key, "is empty", "a path")
        return Path(os.path.normpath(self.directory / Path(text).expanduser()))


def plain(value: Any) -> Any:
    """Dataclasses, tuples and paths as the dicts, lists and strings that YAML and JSON have."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def describe(hint: Any) -> str:
    """A type in a person's words."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or null, ".join(describe(option) for option in options if option is not type(None)) + " or null"
    if origin is Literal:
        return ", ".join(str(option) for option in options)
    if origin is tuple:
        return f"a list [a,b] of: {describe(options[0])}"
    if dataclasses.is_dataclass(hint):
        return f"a section with {', '.join(field.name for field in dataclasses.fields(hint))}"
    words = {bool: "true, false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))


def _literal(options: tuple, value: Any, key: str) -> Any:
    for option in options:
        if (value == option and isinstance(value, bool) == isinstance(option, bool)) or (isinstance(value, str) and value == str(option)):
            return option
    guess = nearest(str(value), [str(option) for option in options])
    raise UserError(key, f"{value!r} is not one of the choices", describe(Literal[options]), f"{key}={guess}" if guess else "")


def _bool(value: Any, key: str) -> bool:
    known = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise UserError(key, f"{value!r} is neither true nor false", describe(bool))


def _int(value: Any, key: str) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise UserError(key, f"{value!r} is not a whole number", describe(int)) from None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise UserError(key, f"{value!r} is not a whole number", describe(int))


def _float(value: Any, key: str) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise UserError(key, f"{value!r} is not a number", describe(float))


def _text(value: Any, key: str) -> str:
    if isinstance(value, str):
        if any("\ud800" <= sign <= "\udfff" for sign in value):
            raise UserError(key, f"{value!a} holds bytes that are not UTF-8", "a text in UTF-8")
        return value
    found = f"{value!r} is a {type(value).__name__} and not a text"
    raise UserError(key, found, describe(str), f'quotes around it, as in {key.rsplit(".", 1)[-1]}: "{value}"')
