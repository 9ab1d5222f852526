"""All sources one after another: detected, opened by their reader, chat logs turned into conversations.

In:  the sources and the user's reading options.
Out: an iterator of Conversation | Quarantined, and FileReports filled in along the way.
A file that was named must be readable; a stray one in a folder or archive is reported as left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..message import Conversation
from .files.encoding import FORCED
from .files.sources import Source
from .readers.chatgpt import read_chatgpt
from .readers.detect import CHAT_LOGS, FORMATS, UNKNOWN_ROWS, Detected, detect
from .readers.found import ChatLine, Quarantined
from .readers.notes import read_notes
from .readers.rows import read_json_array, read_jsonl
from .readers.shapes import SHAPES
from .readers.tabular import read_table
from .readers.telegram import read_telegram
from .readers.wechat import read_wechat_csv, read_wechat_text
from .readers.whatsapp import DATE_ORDERS, DateOrder, date_order_of, read_whatsapp
from .report import FileReport, IngestReport
from .scenario import Scenario
from .speakers import conversations_of, folded_name

_CHAT_READERS = {"telegram": read_telegram, "wechat": read_wechat_csv, "wechat_txt": read_wechat_text}
_SPEAKERS_SHOWN = 12
EMPTY = "it is empty"


@dataclass(frozen=True)
class ReadOptions:
    """What the user says about the files."""

    format: str | None = None
    """one of detect.FORMATS; None: told by content"""
    encoding: str | None = None
    """one of encoding.FORCED; None: told by content"""
    columns: Mapping[str, str] = field(default_factory=dict)
    """tables: our name (user, assistant, system, text, title, author, conversation, role, content) -> column"""
    me: tuple[str, ...] = ()
    """chat logs: names under which the owner speaks"""
    date_order: str | None = None
    """WhatsApp: DMY, MDY or YMD where the file itself does not tell"""

    def check(self) -> None:
        """UserError for a value that no file could have; called before any file is looked at."""
        for option, value, allowed in (
            ("--format", self.format, FORMATS),
            ("--encoding", self.encoding, FORCED),
            ("--date-order", self.date_order, DATE_ORDERS),
        ):
            if value is not None and value not in allowed:
                raise UserError(option, f"{value!r} is not known", allowed=", ".join(allowed))

    def as_json(self) -> dict[str, Any]:
        return {"format": self.format, "encoding": self.encoding, "columns": dict(self.columns), "me": list(self.me), "date_order": self.date_order}


def _listed(speakers: Counter[str]) -> str:
    """Names with their numbers of messages, the most talkative first."""
    listed = ", ".join(f"{name} ({count})" for name, count in speakers.most_common(_SPEAKERS_SHOWN)) or "none"
    return f"{listed} and {len(speakers) - _SPEAKERS_SHOWN} more" if len(speakers) > _SPEAKERS_SHOWN else listed


class Reading:
    """One walk through the sources."""

    def __init__(self, sources: Sequence[Source], scenario: Scenario, options: ReadOptions, report: IngestReport) -> None:
        self._sources, self._scenario, self._options, self._report = sources, scenario, options, report
        self._date_orders: dict[str, DateOrder] = {}
        self._bytes_finished = 0
        self._current: Source | None = None
        options.check()
        report.files = [FileReport(source.name) for source in sources]

    @property
    def bytes_read(self) -> int:
        """How far the walk is."""
        return self._bytes_finished + (self._current.progress.n_bytes if self._current else 0)

    def items(self) -> Iterator[Conversation | Quarantined]:
        """Everything in the order of the sources. UserError when a named file cannot be read, or nobody said who "me" is."""
        found = [self._detect(source, entry) for source, entry in zip(self._sources, self._report.files)]
        self._require_me(found)
        for source, entry, how in zip(self._sources, self._report.files, found):
            self._current = source
            if how is not None:
                yield from self._read(source, entry, how)
            self._bytes_finished += source.n_bytes
            self._current = None
        self._check_me(found)

    def _detect(self, source: Source, entry: FileReport) -> Detected | None:
        if source.fault:
            entry.skipped = source.fault
            return None
        try:
            how = detect(source, self._options.format, self._options.encoding)
            if how is not None and how.format == "whatsapp":
                self._date_orders[source.name] = date_order_of(source, how.encoding, self._options.date_order)
                entry.date_order = str(self._date_orders[source.name])
        except UserError as error:
            if source.named:
                raise
            entry.skipped = str(error)
            return None
        if how is None:
            entry.skipped = EMPTY
            return None
        if how.format == UNKNOWN_ROWS and not source.named:
            entry.skipped = f"nothing that could be learned is in it: {how.evidence}"  # account data and settings, in an app's export
            return None
        entry.format, entry.encoding = how.format, how.encoding.name
        entry.evidence = f"{how.encoding.evidence}; {how.evidence}"
        return how

    def _require_me(self, found: Sequence[Detected | None]) -> None:
        """Without --me, list the speakers of all chat logs that do not say themselves whose phone it was, and stop."""
        if self._options.me:
            return
        speakers: Counter[str] = Counter()
        silent: list[str] = []
        for source, how in zip(self._sources, found):
            if how is None or how.format not in CHAT_LOGS:
                continue
            said: Counter[str] = Counter()
            is_silent = False
            for line in self._chat_lines(source, how):
                if isinstance(line, ChatLine) and line.kind == "speech":
                    said[line.speaker] += 1
                    is_silent = is_silent or line.mine is None
            if is_silent:
                silent.append(source.name)
                speakers.update(said)
        if silent:
            raise UserError(
                silent[0], f"is a chat log, and nobody said whose voice is learned; its speakers: {_listed(speakers)}", remedy="--me NAME"
            )

    def _check_me(self, found: Sequence[Detected | None]) -> None:
        """A misspelt name must not end as "nobody answers"."""
        logs = [source.name for source, how in zip(self._sources, found) if how is not None and how.format in CHAT_LOGS]
        known = set(map(folded_name, self._report.speakers))
        missing = [name for name in self._options.me if folded_name(name) not in known]
        if logs and missing and len(missing) == len(self._options.me):
            raise UserError(
                "--me",
                f"nobody in {logs[0]} is called {' or '.join(missing)}; its speakers: {_listed(self._report.speakers)}",
                remedy="write the name as the export has it",
            )

    def _chat_lines(self, source: Source, how: Detected) -> Iterator[ChatLine | Quarantined]:
        if how.format == "whatsapp":
            return read_whatsapp(source, how.encoding, self._date_orders[source.name].order)
        return _CHAT_READERS[how.format](source, how.encoding)

    def _read(self, source: Source, entry: FileReport, how: Detected) -> Iterator[Conversation | Quarantined]:
        try:
            if how.format in CHAT_LOGS:
                lines = self._speech(self._chat_lines(source, how))
                yield from conversations_of(lines, self._options.me, self._scenario.rules, how.format)
            else:
                yield from self._rows(source, entry, how)
        except UserError as error:
            if source.named:
                raise
            yield Quarantined(source.name, 0, "unreadable_file", str(error), "")

    def _speech(self, lines: Iterator[ChatLine | Quarantined]) -> Iterator[ChatLine | Quarantined]:
        """Only what people said goes on; the rest is counted."""
        for line in lines:
            if isinstance(line, Quarantined):
                yield line
            elif line.kind == "speech":
                self._report.speakers[line.speaker] += 1
                yield line
            else:
                self._report.lines_skipped[line.kind] += 1

    def _rows(self, source: Source, entry: FileReport, how: Detected) -> Iterator[Conversation | Quarantined]:
        shape = None
        if self._options.format is not None:
            wanted = "text" if how.format == "text_rows" else how.format
            shape = next((shape for shape in SHAPES if shape.name == wanted), None)
        if how.layout == "jsonl":
            return read_jsonl(source, how.encoding, shape)
        if how.layout == "json" or (shape is not None and how.layout not in ("csv", "tsv", "notes", "chatgpt")):
            return read_json_array(source, how.encoding, shape)
        if how.layout in ("csv", "tsv"):
            return read_table(source, how.encoding, "\t" if how.layout == "tsv" else None, self._options.columns, entry.unmapped_columns)
        if how.layout == "chatgpt":
            return read_chatgpt(source, how.encoding)
        return read_notes(source, how.encoding)
