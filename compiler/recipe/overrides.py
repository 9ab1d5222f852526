"""Command-line overrides: KEY=VALUE in Hydra's grammar, with its traps turned into advice.

In:  the words after `mft compile`.
Out: Overrides(groups, values) in the order typed: of two overrides of one key the later holds, and the choice of a group's
     file never undoes a value override, wherever it stands.
A comma would be a sweep for Hydra and other signs end in a lexer's trace: both become the quoted word that does work.
"""

from __future__ import annotations

import re
import shlex
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException

from ...runtime.errors import UserError
from .errors import unknown_word
from .reader import hint_of, known_keys
from .schema import Recipe

GROUPS = ("model", "scenario", "device", "train", "quantization")
CONFIG_ONLY = ("train.alpha",)
"""keys that configurations may use but no recipe has: train.scale = alpha / rank is what is kept"""
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")


@dataclass(frozen=True)
class Overrides:
    """What was typed, sorted by what it acts on."""

    groups: dict[str, str]
    """group -> the name of a file in it, or the path of a YAML file"""
    values: tuple[tuple[str, Any], ...]
    """(dotted key, plain value), in the order typed"""

    def without_groups(self, dropped: set[str]) -> Overrides:
        """The same, but for these groups the default stays chosen."""
        return Overrides({group: choice for group, choice in self.groups.items() if group not in dropped}, self.values)


def quoted_override(key: str, text: str) -> str:
    """KEY=TEXT as it has to be typed in a shell so that the value is exactly `text`."""
    escaped = re.sub(r"(\\+)(?=\"|$)", r"\1\1", text).replace('"', '\\"')
    return shlex.quote(f'{key}="{escaped}"')


def parse_overrides(words: Sequence[str]) -> tuple[Overrides, list[UserError]]:
    """Sort the words; a problem for each that cannot be meant as it stands."""
    groups: dict[str, str] = {}
    values: list[tuple[str, Any]] = []
    problems: list[UserError] = []
    for word in words:
        try:
            key, value = _key_and_value(word)
            if key in GROUPS and not isinstance(value, dict):
                groups[key] = _file_choice(key, value)
            else:
                values.append((key, value))
        except UserError as error:
            problems.append(error)
    return Overrides(groups, tuple(values)), problems


def _key_and_value(word: str) -> tuple[str, Any]:
    key, equal, text = word.partition("=")
    if not equal or not key:
        raise UserError(word, "is not an override", "KEY=VALUE, such as train.rank=8 or device=host")
    if key[0] in "+~":
        bare = key.lstrip("+~")
        raise UserError(word, f"nothing can be added to or taken out of a recipe ({key[0]})", "KEY=VALUE", f"{bare}={text}")
    if not KEY.fullmatch(key) or not (key in GROUPS or key in CONFIG_ONLY or hint_of(Recipe, key)):
        raise unknown_word(key, key, "key", _keys_near(key), "{}=" + text)
    return key, _value(key, text, _parse(key, text))


def _keys_near(key: str) -> list[str]:
    """The keys of the section that was meant, or all keys where there is no such section."""
    known = [*known_keys(Recipe), *CONFIG_ONLY]
    section = key.split(".")[0] + "."
    return [name for name in known if name.startswith(section)] or [*GROUPS, *known]


def _parse(key: str, text: str) -> Override:
    """The override as Hydra reads it; what it cannot read, or would read as several values, is refused with advice."""
    remedy = quoted_override(key, text)
    try:
        override = OverridesParser.create().parse_override(f"{key}={text}")
    except HydraException:
        found = f"the value {text!r} has a sign that means something else unless the value is quoted"
        raise UserError(key, found, "quotes around the whole word and around the value", remedy) from None
    if override.is_sweep_override():
        if typing.get_origin(hint_of(Recipe, key)) is tuple and "(" not in text:
            raise UserError(key, f"{text!r} is several values", "a list in brackets", shlex.quote(f"{key}=[{text}]"))
        found = f"{text!r} is several values, and one bundle is compiled from one recipe"
        raise UserError(key, found, "one value; if the comma belongs to it, quotes around it", remedy)
    if override.type != OverrideType.CHANGE:
        raise UserError(key, f"{text!r} is not a plain value", "KEY=VALUE", remedy)
    return override


def _value(key: str, text: str, override: Override) -> Any:
    """The plain value; where a text is meant, digits and words such as `true` stay the text that was typed."""
    value = override.value()
    hint = hint_of(Recipe, key)
    takes_text = key in GROUPS or any(kind in (hint, *typing.get_args(hint)) for kind in (str, Path))
    if takes_text and isinstance(value, (bool, int, float)):
        return text.strip()
    return value


def _file_choice(group: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UserError(group, f"{value!r} does not name a file", f"a name from configs/{group}/, or the path of a YAML file")
    return value
