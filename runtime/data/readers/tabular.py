"""CSV and TSV tables: question and answer columns, role and content columns, or a column of notes.

In:  a table with a header row; the user may say which column is what (--column user=Question --column assistant=Answer).
Out: Conversation or Quarantined for each row (for role/content tables: for each conversation).
Columns that nobody mapped are named in the report, so that a misspelt header is noticed.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...errors import UserError
from ...message import Conversation, Message
from ..files.encoding import Encoding, iter_text
from ..files.head import Head
from ..files.sources import Source
from ..records import BadRecord, Quarantined, excerpt, join_turns
from .format import FileToRead, Format
from .rows import convert_row
from .shapes import ROLE_NAMES, SHAPES

DELIMITERS = (",", "\t", ";", "|")
OWN_NAMES = ("user", "input", "assistant", "system", "chosen", "rejected", "text", "title", "author", "conversation", "role", "content")
"""What a column may be mapped to."""
_USUAL = {
    "user": ("user", "prompt", "question", "query", "instruction", "human", "request", "customer", "问题", "提问", "用户", "指令", "提示"),
    "input": ("input", "context", "输入"),
    "assistant": ("assistant", "completion", "answer", "response", "output", "reply", "bot", "gpt", "回答", "答案", "回复", "助手", "输出"),
    "system": ("system", "system_prompt", "系统"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "conversation": ("conversation_id", "conversation", "dialogue_id", "dialog_id", "session_id", "thread_id", "chat_id", "会话", "对话"),
    "role": ("role", "speaker", "from", "角色"),
    "content": ("content", "message", "text", "value", "内容", "消息"),
    "text": ("text", "note", "body", "content", "正文", "内容", "笔记"),
    "title": ("title", "subject", "标题"),
    "author": ("author", "作者"),
}
_FORMS = (("role", "content"), ("chosen", "rejected"), ("user", "assistant"), ("input", "assistant"), ("text",))
"""Sets of our names, one of which a table must have; the first that it has decides."""
_SHAPES = {shape.name: shape for shape in SHAPES}
_FIELD_CHARS_MAX = 1 << 26


def looks_tabular(lines: list[str], suffix: str) -> str | None:
    """The delimiter, when the first lines are a table with at least two columns; a .csv or .tsv needs less proof."""
    sample = [line for line in lines if line.strip()]
    if not sample:
        return None
    for delimiter in DELIMITERS:
        columns = _columns(sample, delimiter)
        header = columns[0] if columns else []
        if len(header) < 2 or len(set(header)) < len(header):
            continue
        if (suffix == ".tsv" and delimiter == "\t") or suffix == ".csv":
            return delimiter
        widths = Counter(map(len, columns[1:]))
        names = {name.strip().lower() for name in header}
        known = any(all(names & set(_USUAL[own]) for own in form) for form in _FORMS if form != ("text",))
        if known and widths and widths[len(header)] >= 0.8 * sum(widths.values()):
            return delimiter
    return {".csv": ",", ".tsv": "\t"}.get(suffix)


def _columns(sample: list[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO("\n".join(sample)), delimiter=delimiter))
    except csv.Error:
        return []


def iter_table(source: Source, encoding: Encoding, delimiter: str | None) -> Iterator[tuple[int, dict[str, str] | Quarantined]]:
    """Rows by column name, with the number of their first line. Surplus cells are kept under the key "" joined by the delimiter."""
    csv.field_size_limit(_FIELD_CHARS_MAX)
    with source.open() as stream:
        lines = _kept_ends(iter_text(stream, encoding, source.name))
        header, delimiter = header_of(next(lines, ""), delimiter, source.name)
        reader = csv.reader(lines, delimiter=delimiter)
        number = 2
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield number, Quarantined(source.name, number, "bad_row", f"is not a row of a table ({error})", "")
                number = reader.line_num + 2
                continue
            if any(cell.strip() for cell in cells):
                row = dict(zip(header, cells))
                if len(cells) > len(header):
                    row[""] = delimiter.join(cells[len(header) :])
                yield number, row
            number = reader.line_num + 2


def header_of(line: str, delimiter: str | None, where: str) -> tuple[list[str], str]:
    """Column names of a table's first line, and its delimiter. UserError when it is not a row."""
    delimiter = delimiter or looks_tabular([line], ".csv") or ","
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])], delimiter
    except csv.Error as error:
        raise UserError(where, f"its first line is not the header of a table ({error})", remedy="save it as CSV again, or check --format") from None


def _kept_ends(pieces: Iterator[str]) -> Iterator[str]:
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield line.replace("\r", "") + "\n" if line.endswith("\r") else line + "\n"
    if rest:
        yield rest


def column_map(header: list[str], chosen: Mapping[str, str], where: str) -> dict[str, str]:
    """Our name -> column. UserError when the user names a column that is not there, or no usable set is found."""
    for own, column in chosen.items():
        if own not in OWN_NAMES:
            raise UserError("--column", f"{own!r} is not known", allowed=", ".join(OWN_NAMES))
        if column not in header:
            raise UserError("--column", f"{where} has no column {column!r}", allowed=", ".join(header))
    usual: dict[str, str] = {}
    lowered = {name.strip().lower(): name for name in reversed(header)}
    for own, names in _USUAL.items():
        column = next((lowered[name] for name in names if name in lowered), None)
        if column is not None:
            usual[own] = column
    mapping = {**usual, **chosen}
    preferred = [form for form in _FORMS if all(own in chosen for own in form)]
    form = next((form for form in (*preferred, *_FORMS) if all(own in mapping for own in form)), None)
    if form is None:
        raise UserError(
            where,
            f"no column is known to hold questions and answers; its columns: {', '.join(header)}",
            remedy="--column user=COLUMN --column assistant=COLUMN (or text=COLUMN, or role=COLUMN and content=COLUMN)",
        )
    allowed = {
        "role": ("role", "content", "conversation"),
        "chosen": ("user", "chosen", "rejected"),
        "user": ("user", "input", "assistant", "system"),
        "input": ("input", "assistant", "system"),
        "text": ("text",),
    }[form[0]]
    return {own: column for own, column in mapping.items() if own in (*allowed, "title", "author")}


def read_table(file: FileToRead, delimiter: str | None = None) -> Iterator[Conversation | Quarantined]:
    """Rows as conversations; the file's report names the columns that nothing was made of. Without a delimiter the header shows it."""
    source, encoding = file.source, file.encoding
    with source.open() as stream:
        header, delimiter = header_of(next(_kept_ends(iter_text(stream, encoding, source.name)), ""), delimiter, source.name)
    mapping = column_map(header, file.options.columns, source.name)
    file.report.unmapped_columns.extend(name or "(no name)" for name in header if name not in mapping.values())
    if "role" in mapping:
        yield from _by_conversation(source, encoding, delimiter, mapping)
        return
    for number, row in iter_table(source, encoding, delimiter):
        if isinstance(row, Quarantined):
            yield row
        elif "" in row or len(row) < len(header):
            cells = len(row) + ("" in row and row[""].count(delimiter))
            yield Quarantined(
                source.name, number, "bad_row", f"has {cells} cells, the header has {len(header)}", excerpt(delimiter.join(row.values()))
            )
        else:
            yield _row(row, mapping, source.name, number)


def _row(row: dict[str, str], mapping: dict[str, str], source: str, number: int) -> Conversation | Quarantined:
    """A row under our names, converted by the shape it has."""
    cells = {own: row[column] for own, column in mapping.items()}
    shaped: dict[str, Any] = {own: cells[own] for own in ("system", "title", "author") if cells.get(own)}
    if "chosen" in cells:
        name, shaped = "preference", {**shaped, "prompt": cells.get("user", ""), "chosen": cells["chosen"], "rejected": cells["rejected"]}
    elif "assistant" in cells:
        name = "alpaca"
        shaped |= {"instruction": cells.get("user", ""), "input": cells.get("input", ""), "output": cells["assistant"]}
    else:
        name, shaped = "text", {**shaped, "text": cells["text"]}
    item = convert_row(shaped, _SHAPES[name], source, number, None)
    if isinstance(item, Quarantined):
        return item
    return Conversation(item.messages, {**item.metadata, "format": "table", "raw": row})


def _by_conversation(source: Source, encoding: Encoding, delimiter: str, mapping: dict[str, str]) -> Iterator[Conversation | Quarantined]:
    """Neighbouring rows of one conversation; without a conversation column the file is one."""
    messages: list[Message] = []
    current: str | None = None
    at, fault = 2, ""
    for number, row in iter_table(source, encoding, delimiter):
        if isinstance(row, Quarantined):
            yield row
            continue
        key = row.get(mapping["conversation"], "") if "conversation" in mapping else ""
        if key != current:
            yield from _finished(messages, source.name, at, fault, current)
            messages, current, at, fault = [], key, number, ""
        name = row.get(mapping["role"], "").strip().lower()
        if name in ROLE_NAMES:
            messages.append(Message(ROLE_NAMES[name], row.get(mapping["content"], "")))
        else:
            fault = fault or f"line {number} has the role {name!r}"
    yield from _finished(messages, source.name, at, fault, current)


def _finished(messages: list[Message], source: str, at: int, fault: str, key: str | None) -> Iterator[Conversation | Quarantined]:
    if not messages and not fault:
        return
    try:
        if fault:
            raise BadRecord("unknown_role", fault)
        yield Conversation(join_turns(messages), {"source": source, "line": at, "format": "table", "raw": key, "conversation": key})
    except BadRecord as error:
        yield Quarantined(source, at, error.reason, str(error), excerpt(messages[0].text if messages else ""))


def _format_of(name: str, suffix: str, is_tab: bool, read: Callable[[FileToRead], Iterator[Conversation | Quarantined]]) -> Format:
    def looks_like(head: Head) -> str | None:
        delimiter = looks_tabular(head.lines if head.is_whole else head.lines[:-1] or head.lines, head.suffix)
        is_mine = delimiter is not None and (delimiter == "\t") == is_tab
        return f"every line has the same number of {delimiter!r}" if is_mine else None

    return Format(name, looks_like, read, (suffix,), options=("columns",))


FORMATS = (
    _format_of("csv", ".csv", False, read_table),
    _format_of("tsv", ".tsv", True, lambda file: read_table(file, "\t")),
)
