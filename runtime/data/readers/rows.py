"""JSON Lines and JSON arrays of rows, in whichever shape of shapes.py the file's first usable row has.

In:  a Source whose text is one JSON object per line, or one array (or object holding an array) of them.
Out: one Conversation or Quarantined for each row; empty lines are no rows.
A row is split off at "\\n" only, and an array is parsed item by item, so memory does not grow with the file.
"""

from __future__ import annotations

import json
from typing import Any, Iterator

from ...errors import UserError
from ...message import Conversation
from ..encoding import BadBytes, Encoding, iter_lines, iter_text
from ..found import Quarantined, excerpt
from ..sources import Source
from .shapes import SHAPES, BadRow, Shape

Item = Conversation | Quarantined
_RECORD_KEYS = ("data", "train", "conversations", "examples", "rows", "items", "records")
_MAX_ITEM_CHARS = 64 << 20
_DECODER = json.JSONDecoder()
_scan = _DECODER.scan_once


def read_jsonl(source: Source, encoding: Encoding, shape: Shape | None = None) -> Iterator[Item]:
    """Rows of a .jsonl file; `shape` forces one, else the first row that fits any decides."""
    with source.open() as stream:
        for number, line in iter_lines(stream, encoding, source.name):
            if isinstance(line, BadBytes):
                detail = f"byte {line.offset_bytes} is not valid {encoding.name.upper()}"
                yield Quarantined(source.name, number, "undecodable", detail, excerpt(line.raw[:480].decode("utf-8", "backslashreplace")))
                continue
            try:
                row = _parse(line)
            except (ValueError, RecursionError) as error:
                if not line or line.isspace():
                    continue
                yield Quarantined(source.name, number, "bad_json", str(error), excerpt(line))
                continue
            shape = shape or shape_of(row)
            yield convert_row(row, shape, source.name, number, line)


def _parse(line: str) -> Any:
    """json.loads without its searches for white space, which most lines have none of."""
    try:
        row, end = _scan(line, 0)
    except StopIteration:  # no value where one is needed: json.loads says it in words
        return json.loads(line)
    return row if end == len(line) or line[end:].isspace() else json.loads(line)


def read_json_array(source: Source, encoding: Encoding, shape: Shape | None = None) -> Iterator[Item]:
    """Rows of a .json file, numbered from 1."""
    with source.open() as stream:
        for number, row in enumerate(iter_json_items(iter_text(stream, encoding, source.name), source.name), start=1):
            shape = shape or shape_of(row)
            yield convert_row(row, shape, source.name, number, None)


def shape_of(row: Any) -> Shape | None:
    """The first shape that fits."""
    return next((shape for shape in SHAPES if shape.fits(row)), None) if isinstance(row, dict) else None


def convert_row(row: Any, shape: Shape | None, source: str, number: int, raw: str | None) -> Item:
    """One row to a conversation, or to the reason why not."""
    try:
        if not isinstance(row, dict):
            raise BadRow("bad_row", f"is {type(row).__name__}, an object is needed")
        if shape is None or not shape.fits(row):
            wanted = f"the keys of {shape.name} ({', '.join(shape.keys)})" if shape else "keys of any known form"
            raise BadRow("bad_row", f"has not {wanted}, but {', '.join(map(str, row)) or 'none'}")
        messages = shape.convert(row)
    except BadRow as error:
        return Quarantined(source, number, error.reason, str(error), excerpt(raw if raw is not None else _dump(row)))
    metadata = {"source": source, "line": number, "format": shape.name, "raw": raw if raw is not None else row}
    if shape.name == "preference":
        metadata["pair"] = {key: row[key] for key in ("prompt", "chosen", "rejected") if key in row}
    if len(row) > len(shape.keys):
        metadata |= {key: row[key] for key in ("title", "author") if isinstance(row.get(key), str)}
    return Conversation(messages, metadata)


def _dump(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False)[:2000]


def iter_json_items(pieces: Iterator[str], where: str) -> Iterator[Any]:
    """Items of a top-level array one by one; of an object its array under a usual key, or the object itself."""
    first = next(pieces, "").lstrip()
    if first.startswith("["):
        yield from _JsonArray(first[1:], pieces, where).items()
    else:
        yield from _items_of_object(first + "".join(pieces), where)


class _JsonArray:
    """An array behind its opening bracket, in a buffer that holds little more than one item."""

    def __init__(self, first: str, pieces: Iterator[str], where: str) -> None:
        self._buffer, self._at, self._pieces, self._where = first, 0, pieces, where

    def items(self) -> Iterator[Any]:
        while self._next_sign() != "]":
            yield self._item()

    def _more(self) -> bool:
        """Drop what was used and add the next piece."""
        piece = next(self._pieces, "")
        self._buffer, self._at = self._buffer[self._at:] + piece, 0
        return bool(piece)

    def _next_sign(self) -> str:
        """The first character that is neither blank nor comma."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in " \t\r\n,":
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                raise UserError(self._where, "ends inside its JSON array", remedy="export it again; the file is cut off")

    def _item(self) -> Any:
        """The item that begins here; tried again with twice the text while it may only be unfinished."""
        while True:
            try:
                item, end = _DECODER.raw_decode(self._buffer, self._at)
                # A number may go on in the next piece ("0" of "0.5", "0." of "0.5"): it is whole only before a separator.
                if self._buffer[self._at] not in "-0123456789" or self._buffer[end:end + 1] in tuple(" \t\r\n,]"):
                    self._at = end
                    return item
                reason = "a number is cut off"
            except (ValueError, RecursionError) as error:
                reason = str(error)
            wanted = 2 * (len(self._buffer) - self._at)
            if not self._more() or len(self._buffer) > _MAX_ITEM_CHARS:
                raise UserError(self._where, f"is not valid JSON ({reason})", remedy="export it again, or check --format")
            while len(self._buffer) < wanted and self._more():
                pass


def _items_of_object(text: str, where: str) -> Iterator[Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(where, f"is not valid JSON ({error})", remedy="export it again, or check --format") from None
    if isinstance(document, dict) and shape_of(document) is None:
        for key in _RECORD_KEYS:
            if isinstance(document.get(key), list):
                yield from document[key]
                return
    yield document
