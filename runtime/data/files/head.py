"""The beginning of a file, as the readers look at it to tell whether it is theirs.

In:  a source's first HEAD_BYTES bytes.
Out: Head: the bytes, and from them, when they are asked for, encoding, text, lines and the first JSON object.
Asking for text raises UserError where the bytes are not text: only a reader of documents looks at `data` alone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from .encoding import HEAD_BYTES, Encoding, detect_encoding
from .sources import Source

_HEAD_LINES = 60


@dataclass(frozen=True)
class FirstJson:
    """How a file of JSON is laid out, and its first object."""

    layout: Literal["jsonl", "json"]
    """jsonl: one value on each line | json: one document"""
    value: dict | None
    """None: it cannot be parsed, for instance because the head ends before it does"""
    place: str
    """line | array | document: where the object was found; without one, what else shows that this is JSON"""


@dataclass(frozen=True)
class Head:
    """The first bytes of a file, and what is in them."""

    name: str
    """the source's, for error messages"""
    suffix: str
    """lower-case file ending with its dot"""
    data: bytes
    forced_encoding: str | None = None
    """named by the user"""

    @property
    def is_whole(self) -> bool:
        """The file is no longer than this."""
        return len(self.data) < HEAD_BYTES

    @cached_property
    def encoding(self) -> Encoding:
        """UserError when no encoding fits."""
        return detect_encoding(self.data, self.name, self.forced_encoding)

    @cached_property
    def text(self) -> str:
        """Without blanks at its beginning; empty when there is nothing else."""
        return self.data[self.encoding.mark_bytes :].decode(self.encoding.name, "ignore").lstrip()

    @cached_property
    def lines(self) -> list[str]:
        """The first few; of a longer file the last one may be cut off."""
        return self.text.split("\n")[:_HEAD_LINES]

    @cached_property
    def json(self) -> FirstJson | None:
        """None when the text is not JSON."""
        if self.text[:1] == "[":
            return _array(self.text)
        return self._objects() if self.text[:1] == "{" else None

    def _objects(self) -> FirstJson | None:
        """One object on each line, or a single one over many lines."""
        first, *later = self.text.split("\n")
        if isinstance(row := _parse(first), dict):
            return FirstJson("jsonl", row, "line")
        row = next((row for row in map(_parse, later) if isinstance(row, dict)), None)
        if row is not None and self.suffix != ".json":
            return FirstJson("jsonl", row, "line")
        if self.suffix in (".jsonl", ".ndjson"):
            return FirstJson("jsonl", None, "ending")
        if self.is_whole and isinstance(row := _parse(self.text), dict):
            return FirstJson("json", row, "document")
        return FirstJson("json", None, "JSON document") if re.match(r'\{\s*("|\})', self.text) else None


def read_head(source: Source, forced_encoding: str | None = None) -> Head:
    """Open the source and read its beginning. UserError when it cannot be opened."""
    with source.open() as stream:
        return Head(source.name, source.suffix, stream.read(HEAD_BYTES), forced_encoding)


def _array(text: str) -> FirstJson | None:
    """An array of objects; a line of a chat log may begin with a bracket, too."""
    try:
        item = json.JSONDecoder().raw_decode(text[1:].lstrip())[0]
    except (ValueError, RecursionError):
        item = None  # it may only be cut off: the brackets decide
    if isinstance(item, dict):
        return FirstJson("json", item, "array")
    return FirstJson("json", None, "JSON array") if re.match(r"\[\s*(\{|\])", text) else None


def _parse(line: str) -> Any:
    """None for what is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
