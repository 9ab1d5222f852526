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


def read_jsonl(source: Source, encoding: Encoding, shape: Shape | None = None) -> Iterator[Item]:
    """Rows of a .jsonl file; `shape` forces one, else the first row that fits any decides."""
    with source.open() as stream:
        for number, line in iter_lines(stream, encoding, source.name):
            if isinstance(line, BadBytes):
                detail = f"byte {line.offset_bytes} is not valid {encoding.name.upper()}"
                yield Quarantined(source.name, number, "undecodable", detail, excerpt(line.raw[:480].decode("utf-8", "backslashreplace")))
                continue
            if not line or line.isspace():
                continue
            try:
                row = _parse(line)
            except (ValueError, RecursionError) as error:
                yield Quarantined(source.name, number, "bad_json", str(error), excerpt(line))
                continue
            shape = shape or shape_of(row)
            yield convert_row(row, shape, source.name, number, line)


def _parse(line: str) -> Any:
    """json.loads without its searches for white space, which most lines have none of."""
    if line[0] == "{":
        row, end = _DECODER.raw_decode(line)
        if end == len(line) or line[end:].isspace():
            return row
    return json.loads(line)


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
    for key in ("title", "author"):
        if isinstance(row.get(key), str):
            metadata[key] = row[key]
    return Conversation(messages, metadata)


def _dump(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False)[:2000]


def iter_json_items(pieces: Iterator[str], where: str) -> Iterator[Any]:
    """Items of a top-level array one by one; of an object its array under a usual key, or the object itself."""
    buffer = next(pieces, "").lstrip()
    if not buffer.startswith("["):
        yield from _items_of_object(buffer + "".join(pieces), where)
        return
    decoder, position, done = json.JSONDecoder(), 1, False
    wanted = 0
    while True:
        while len(buffer) - position < wanted or not buffer[position:position + 1]:
            piece = next(pieces, None)
            if piece is None:
                break
            buffer, position = buffer[position:] + piece, 0
        position = _skip(buffer, position)
        if position < len(buffer) and buffer[position] == "]":
            return
        if position >= len(buffer):
            piece = next(pieces, None)
            if piece is None:
                raise UserError(where, "ends inside its JSON array", remedy="export it again; the file is cut off")
            buffer, position = piece, 0
            continue
        try:
            item, end = decoder.raw_decode(buffer, position)
            complete = end < len(buffer) or not buffer[position] in "-0123456789tfn"
        except (ValueError, RecursionError) as error:
            complete, reason = False, str(error)
        else:
            reason = "ends inside an item"
        if complete:
            yield item
            position, wanted = end, 0
            continue
        wanted = 2 * (len(buffer) - position)
        piece = next(pieces, None)
        if piece is None or wanted > 2 * _MAX_ITEM_CHARS:
            raise UserError(where, f"is not valid JSON ({reason})", remedy="export it again, or check --format")
        buffer, position = buffer[position:] + piece, 0


def _skip(buffer: str, position: int) -> int:
    while position < len(buffer) and buffer[position] in " \t\r\n,":
        position += 1
    return position


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
