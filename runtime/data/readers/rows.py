"""JSON Lines and JSON arrays of rows, in whichever shape of shapes.py the file's first usable row has.

In:  a Source whose text is one JSON object per line, or one array (or object holding an array) of them.
Out: one Conversation or Quarantined for each row; empty lines are not rows.
A row is split off at "\\n" only, and an array is parsed item by item, so memory does not grow with the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from ...message import Conversation
from ..files.encoding import BadBytes, Encoding, iter_lines
from ..files.head import FirstJson, Head, read_head
from ..files.json_stream import JsonStream, text_of
from ..files.sources import Source
from ..records import BadRecord, Quarantined, excerpt
from .format import FileToRead, Format
from .shapes import SHAPES, Shape

Item = Conversation | Quarantined
RECORD_KEYS = ("data", "train", "conversations", "examples", "rows", "items", "records")
"""Under one of these keys an object holds rows, unless it is a row itself."""
SUFFIXES = (".jsonl", ".ndjson", ".json")
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # in no documentation, but what json.loads itself calls


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
    for number, row in enumerate(iter_json_items(text_of(source, encoding), source.name), start=1):
        shape = shape or shape_of(row)
        yield convert_row(row, shape, source.name, number, None)


def shape_of(row: Any) -> Shape | None:
    """The first shape that fits."""
    return next((shape for shape in SHAPES if shape.fits(row)), None) if isinstance(row, dict) else None


def convert_row(row: Any, shape: Shape | None, source: str, number: int, raw: str | None) -> Item:
    """One row to a conversation, or to the reason why not."""
    try:
        if not isinstance(row, dict):
            raise BadRecord("bad_row", f"is of type {type(row).__name__}, an object is needed")
        if shape is None or not shape.fits(row):
            wanted = f"the form {shape.name} needs {', '.join(shape.keys)}" if shape else "no known form has these"
            raise BadRecord("bad_row", f"has the keys {', '.join(map(str, row)) or '(none)'}; {wanted}")
        messages = shape.convert(row)
    except BadRecord as error:
        return Quarantined(source, number, error.reason, str(error), excerpt(raw if raw is not None else _dump(row)))
    name = shape.name
    metadata = {"source": source, "line": number, "format": name, "raw": row if raw is None else raw}
    if name == "preference":
        metadata["pair"] = {key: row[key] for key in ("prompt", "chosen", "rejected") if key in row}
    if len(row) > len(shape.keys):
        metadata |= {key: row[key] for key in ("title", "author") if isinstance(row.get(key), str)}
    return Conversation(messages, metadata)


def _dump(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False)[:2000]


def iter_json_items(pieces: Callable[[], Iterator[str]], where: str) -> Iterator[Any]:
    """Items of a top-level array one by one; of an object its array under a usual key; or the objects that follow one another.

    pieces: what gives the document's text from its beginning, each time it is called.
    """
    key = _record_key(JsonStream(pieces(), where))
    stream = JsonStream(pieces(), where)
    if stream.sign() == "[":
        for _ in stream.items():
            yield stream.value()
    elif key is not None:
        for name in stream.members():
            if name != key:
                stream.skip()
                continue
            for _ in stream.items():
                yield stream.value()
    else:
        while not stream.is_finished():
            yield stream.value()
    stream.finish()


def _record_key(stream: JsonStream) -> str | None:
    """The key under which an object holds its rows; None for an array, an object that is a row itself, or one without such a key."""
    if stream.sign() != "{":
        return None
    is_array = {}
    for key in stream.members():
        is_array[key] = stream.sign() == "["
        stream.skip()
    if shape_of(is_array) is not None:
        return None
    return next((key for key in RECORD_KEYS if is_array.get(key)), None)


def first_row(head: Head) -> FirstJson | None:
    """The head's first JSON object; of an object on one line that holds rows under a usual key, the first of these."""
    first = head.json
    if first is None or first.value is None or first.layout == "json" or shape_of(first.value) is not None:
        return first
    rows = next((first.value[key] for key in RECORD_KEYS if isinstance(first.value.get(key), list)), ())
    inner = next((row for row in rows if isinstance(row, dict)), None)
    return first if inner is None else FirstJson("json", inner, "row")


def read_rows(file: FileToRead, shape: Shape | None) -> Iterator[Item]:
    """Rows of either layout. `shape` is a guess unless the user named it: then it is the only one."""
    first = first_row(read_head(file.source, file.options.encoding))
    forced = None if file.options.format is None else shape
    read = read_jsonl if first is not None and first.layout == "jsonl" else read_json_array
    return read(file.source, file.encoding, forced)


def _format_of(shape: Shape) -> Format:
    def looks_like(head: Head) -> str | None:
        first = first_row(head)
        if first is None or (first.value is None and shape is not SHAPES[0]):
            return None
        if first.value is None:
            return first.place  # JSON whose first row cannot be seen: its rows decide when they are read
        return f"its first {first.place} has {', '.join(first.value)}" if shape_of(first.value) is shape else None

    name = "text_rows" if shape.name == "text" else shape.name
    return Format(name, looks_like, lambda file: read_rows(file, shape), SUFFIXES)


def _looks_unknown(head: Head) -> str | None:
    first = first_row(head)
    if first is None or first.value is None or shape_of(first.value) is not None:
        return None
    return f"its first {first.place} has the keys {', '.join(first.value)}"


FORMATS = (
    *map(_format_of, SHAPES),
    Format("unknown_rows", _looks_unknown, lambda file: read_rows(file, None), SUFFIXES, is_choice=False),
)
"""One for each shape, and JSON in which none is found: the settings and account data that lie beside an app's export."""
