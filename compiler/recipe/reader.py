"""Turn plain values (YAML, command line) into the recipe's dataclasses, collecting every problem on the way.

In:  nested dicts and lists of plain values, and the dataclass they are meant for.
Out: the instance, or None with at least one more problem in `problems`.
A value is converted only where nothing is lost: "1e-4" is a number, 1.5 is no integer, 0.10 in YAML is not the text "0.10".
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

from ...runtime.errors import UserError
from ...runtime.plain_data import WORDS, Binder, fields_of, form_of, inside, plain
from .errors import RecipeError, nearest, unknown_word
from .fields import field_problem


def known_keys(section: type, prefix: str = "") -> list[str]:
    """Every dotted key below a dataclass, sections themselves left out."""
    keys = []
    for name, (field, hint) in fields_of(section).items():
        if dataclasses.is_dataclass(hint):
            keys += known_keys(cast(type, hint), f"{prefix}{name}.")
        elif "keys_of" in field.metadata:
            keys += [f"{prefix}{name}.{inner}" for inner in fields_of(field.metadata["keys_of"])]
        else:
            keys.append(f"{prefix}{name}")
    return keys


def hint_of(section: type, key: str) -> Any:
    """The declared type of a dotted key, or None when there is no such key."""
    name, _, rest = key.partition(".")
    if name not in fields_of(section):
        return None
    field, hint = fields_of(section)[name]
    if not rest:
        return hint
    section = field.metadata.get("keys_of", hint)
    return hint_of(section, rest) if dataclasses.is_dataclass(section) else None


def declared_defaults(section: type) -> dict[str, Any]:
    """The defaults of a dataclass as plain values; fields that YAML has to give are absent."""
    defaults = {}
    for name, (field, hint) in fields_of(section).items():
        if dataclasses.is_dataclass(hint):
            defaults[name] = declared_defaults(cast(type, hint))
        elif field.default is not dataclasses.MISSING:
            defaults[name] = plain(field.default)
    return defaults


class RecipeReader(Binder):
    """Reads sections one after the other and keeps what was wrong with each."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        """relative paths are resolved against it"""

    def build(self, kind: type, read: dict[str, Any], where: str) -> Any:
        try:
            return super().build(kind, read, where)
        except RecipeError as error:
            self.problems += error.problems
            return None

    def field(self, field: dataclasses.Field, hint: Any, value: Any, where: str) -> Any:
        if "keys_of" in field.metadata:
            return self._open_section(field.metadata["keys_of"], value, where) if value else {}
        if value in field.metadata.get("not_available", ()):
            self.problems.append(UserError(where, f"{value!r} is not available yet", describe(hint)))
            return None
        reason = field.metadata.get("not_yet")
        if reason and value != plain(field.default):
            self.problems.append(UserError(where, f"cannot be set: {reason}", f"its default, {plain(field.default)}", "leave it away"))
            return None
        before, read = len(self.problems), self.bind(hint, value, where)
        problem = field_problem(field, read, where) if len(self.problems) == before else None
        self.problems += [problem] if problem else []
        return read

    def _open_section(self, kind: type, value: Any, where: str) -> dict[str, Any]:
        """Checked like `kind`, but only the keys that were given are kept: the rest stays to whoever fills them in."""
        built = self.bind(kind, value, where)
        return {} if built is None else {name: plain(getattr(built, name)) for name in value}

    def scalar(self, kind: type, value: Any, where: str) -> Any:
        if kind is Path:
            return self._path(value, where)
        readers: dict[type, Callable[[Any, str], Any]] = {bool: _bool, int: _int, float: _float, str: _text}
        return readers[kind](value, where)

    def choice(self, options: tuple[Any, ...], value: Any, where: str) -> Any:
        """Numbers may stand as texts too."""
        for option in options:
            if (value == option and isinstance(value, bool) == isinstance(option, bool)) or (isinstance(value, str) and value == str(option)):
                return option
        guess = nearest(str(value), [str(option) for option in options])
        remedy = f"{where}={guess}" if guess else ""
        if isinstance(value, bool):  # YAML reads `off` as false
            remedy = f'quotes around the word, as in {where.rsplit(".", 1)[-1]}: "{options[0]}"'
        raise UserError(where, f"{value!r} is not one of the choices", describe(Literal[options]), remedy)

    def unknown_key(self, kind: type, key: Any, where: str) -> UserError:
        key = inside(where, key)
        return unknown_word(key, key, "key", [inside(where, known) for known in fields_of(kind)])

    def missing_key(self, name: str, where: str) -> UserError:
        return UserError(inside(where, name), "is missing", remedy=f"{inside(where, name)}=…")

    def not_an_object(self, kind: type, value: Any, where: str) -> UserError:
        return UserError(where, f"{value!r} is a single value", f"a section with {', '.join(known_keys(kind))}")

    def not_a_list(self, hint: Any, value: Any, where: str) -> UserError:
        return UserError(where, f"{value!r} is a single value", describe(hint), f"'{where}=[{value}]'")

    def _path(self, value: Any, where: str) -> Path:
        text = _text(value, where)
        if not text:
            raise UserError(where, "is empty", "a path")
        return Path(os.path.normpath(self.directory / Path(text).expanduser()))


def describe(hint: Any) -> str:
    """A type in a person's words."""
    form, parts = form_of(hint)
    if form == "optional":
        return f"{describe(parts[0])} or null"
    if form == "choice":
        return ", ".join(map(str, parts))
    if form == "list":
        return f"a list [a,b] of: {describe(parts[0])}"
    if form == "object":
        return f"a section with {', '.join(fields_of(hint))}"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _bool(value: Any, key: str) -> bool:
    known = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise UserError(key, f"{value!r} is neither true nor false", WORDS[bool])


def _int(value: Any, key: str) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise UserError(key, f"{value!r} is not a whole number", WORDS[int]) from None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise UserError(key, f"{value!r} is not a whole number", WORDS[int])


def _float(value: Any, key: str) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise UserError(key, f"{value!r} is not a number", WORDS[float])


def _text(value: Any, key: str) -> str:
    if isinstance(value, str):
        if any("\ud800" <= sign <= "\udfff" for sign in value):
            raise UserError(key, f"{value!a} holds bytes that are not UTF-8", "a text in UTF-8")
        return value
    found = f"{value!r} is a {type(value).__name__} and not a text"
    raise UserError(key, found, WORDS[str], f'quotes around it, as in {key.rsplit(".", 1)[-1]}: "{value}"')
