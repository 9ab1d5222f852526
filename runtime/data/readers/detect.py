"""Which reader a file needs, told by its content; the ending only breaks ties.

In:  the first bytes of a source.
Out: Detected: encoding, format name and the evidence for both.
`--format` forces the format, `--encoding` the encoding.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ..files.encoding import HEAD_BYTES, Encoding, detect_encoding
from ..files.sources import Source
from .rows import RECORD_KEYS
from .shapes import SHAPES
from .tabular import looks_tabular
from .wechat import looks_like_wechat_csv, looks_like_wechat_text
from .whatsapp import looks_like_whatsapp

FORMATS = (
    "openai",
    "sharegpt",
    "alpaca",
    "prompt_completion",
    "preference",
    "text_rows",
    "csv",
    "tsv",
    "notes",
    "whatsapp",
    "telegram",
    "wechat",
    "wechat_txt",
    "chatgpt",
)
"""What --format accepts."""
UNKNOWN_ROWS = "unknown_rows"
"""JSON in which no reader knows its way"""
CHAT_LOGS = ("whatsapp", "telegram", "wechat", "wechat_txt")
_HEAD_LINES = 60


@dataclass(frozen=True)
class Detected:
    """How a source is read."""

    encoding: Encoding
    format: str
    """one of FORMATS"""
    layout: str
    """jsonl | json for row formats, else the format itself"""
    evidence: str


def detect(source: Source, forced_format: str | None = None, forced_encoding: str | None = None) -> Detected | None:
    """None for an empty source. UserError when it is no text that any reader takes."""
    with source.open() as stream:
        head = stream.read(HEAD_BYTES)
    if not head.strip():
        return None
    encoding = detect_encoding(head, source.name, forced_encoding)
    text = head[encoding.mark_bytes :].decode(encoding.name, "ignore").lstrip()
    if not text:
        return None
    layout, name, evidence = _by_content(source, text, whole=len(head) < HEAD_BYTES)
    if forced_format is not None:
        is_row = forced_format in {shape.name for shape in SHAPES} | {"text_rows"}
        return Detected(encoding, forced_format, layout if is_row and layout in ("jsonl", "json") else forced_format, "named by the user")
    return Detected(encoding, name, layout, evidence)


def _by_content(source: Source, text: str, whole: bool) -> tuple[str, str, str]:
    """(layout, format, evidence)"""
    if text[0] in "{[":
        found = _json(source, text, whole)
        if found:
            return found
    lines = text.split("\n")[:_HEAD_LINES]
    if looks_like_whatsapp(lines):
        return "whatsapp", "whatsapp", "lines begin with date, time and a name"
    if looks_like_wechat_csv(lines[0]):
        return "wechat", "wechat", "header has IsSender and StrContent"
    if looks_like_wechat_text(lines):
        return "wechat_txt", "wechat_txt", "blocks begin with date, time and a name"
    delimiter = looks_tabular(lines if whole else lines[:-1] or lines, source.suffix)
    if delimiter:
        name = "tsv" if delimiter == "\t" else "csv"
        return name, name, f"every line has the same number of {delimiter!r}"
    return "notes", "notes", "no structure that another reader knows"


def _json(source: Source, text: str, whole: bool) -> tuple[str, str, str] | None:
    """JSON Lines, an array of rows, or one of the exports that are a single document."""
    if text[0] == "[":
        item = _first_item(text)
        if isinstance(item, dict):
            return _of_row("json", item, "array")
        if re.match(r"\[\s*\{", text) and re.search(r'"mapping"\s*:', text):
            return "chatgpt", "chatgpt", "array of conversations with a mapping"
        return ("json", "openai", "JSON array") if re.match(r"\[\s*(\{|\])", text) else None
    if re.search(r'"(chats|personal_information)"\s*:', text) or re.search(
        r'"type"\s*:\s*"(personal_chat|private_group|private_supergroup|'
        r"public_supergroup|public_group|saved_messages|bot_chat|"
        r'private_channel|public_channel)"',
        text,
    ):
        return "telegram", "telegram", "Telegram's chat type is in it"
    if re.search(r'"type"\s*:\s*"(message|service)"', text) and re.search(r'"(from_id|actor_id|date_unixtime)"\s*:', text):
        return "telegram", "telegram", "Telegram's messages are in it"
    row = _parse(text.split("\n", 1)[0])
    if isinstance(row, dict):
        return _of_row("jsonl", row, "line")
    later = next((row for row in map(_parse, text.split("\n")[1:]) if isinstance(row, dict)), None)
    if later is not None and source.suffix != ".json":
        return _of_row("jsonl", later, "line")
    if source.suffix in (".jsonl", ".ndjson"):
        return "jsonl", "openai", "ending"
    item = _parse(text) if whole else None
    if isinstance(item, dict):
        return _of_row("json", item, "document")
    return ("json", "openai", "JSON document") if re.match(r'\{\s*("|\})', text) else None


def _of_row(layout: str, row: dict, what: str) -> tuple[str, str, str]:
    if "mapping" in row and isinstance(row["mapping"], dict):
        return "chatgpt", "chatgpt", "conversations with a mapping"
    shape = next((shape for shape in SHAPES if shape.fits(row)), None)
    if shape is None and layout == "jsonl":
        rows = next((row[key] for key in RECORD_KEYS if isinstance(row.get(key), list)), ())
        if any(isinstance(inner, dict) for inner in rows):
            return _of_row("json", next(inner for inner in rows if isinstance(inner, dict)), "row")
    if shape is None:
        return layout, UNKNOWN_ROWS, f"its first {what} has the keys {', '.join(map(str, row))}"
    return layout, "text_rows" if shape.name == "text" else shape.name, f"its first {what} has {', '.join(key for key in row)}"


def _first_item(text: str) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text, re.match(r"\[\s*", text).end())[0]
    except (ValueError, RecursionError):
        return None


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
