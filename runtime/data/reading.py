"""All sources one after another: recognised, read by their format's reader, chat logs turned into conversations.

In:  the sources and the user's reading options.
Out: an iterator of Conversation | Quarantined, and FileReports filled in along the way.
A file that was named must be readable; a stray one in a folder or archive is reported as left out.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

from ..errors import UserError
from ..message import Conversation
from . import readers
from .files.encoding import FORCED
from .files.sources import Endings, Source, expand
from .readers.detect import Detected, detect
from .readers.format import FileToRead, ReadOptions
from .readers.whatsapp import DATE_ORDERS
from .records import ChatLine, Quarantined
from .report import FileReport, IngestReport
from .scenario import Scenario
from .speakers import conversations_of, folded_name

_SPEAKERS_SHOWN = 12
EMPTY = "it is empty"


def sources_under(paths: Sequence[str | os.PathLike]) -> list[Source]:
    """All sources under the paths that some reader may take. UserError for a path that is not there or holds none."""
    return expand(paths, Endings(readers.suffixes(), readers.document_suffixes()))


def check_options(options: ReadOptions) -> None:
    """UserError for a value that no file could have; called before any file is looked at."""
    for option, value, allowed in (
        ("--format", options.format, readers.choices()),
        ("--encoding", options.encoding, FORCED),
        ("--date-order", options.date_order, DATE_ORDERS),
    ):
        if value is not None and value not in allowed:
            raise UserError(option, f"{value!r} is not known", allowed=", ".join(allowed))


def _listed(speakers: Counter[str]) -> str:
    """Names with their numbers of messages, the most talkative first."""
    listed = ", ".join(f"{name} ({count})" for name, count in speakers.most_common(_SPEAKERS_SHOWN)) or "none"
    return f"{listed} and {len(speakers) - _SPEAKERS_SHOWN} more" if len(speakers) > _SPEAKERS_SHOWN else listed


class Reading:
    """One walk through the sources."""

    def __init__(self, sources: Sequence[Source], scenario: Scenario, options: ReadOptions, report: IngestReport) -> None:
        self._sources, self._scenario, self._options, self._report = sources, scenario, options, report
        self._bytes_finished = 0
        self._current: Source | None = None
        check_options(options)
        report.files = [FileReport(source.name) for source in sources]

    @property
    def bytes_read(self) -> int:
        """How far the walk is."""
        return self._bytes_finished + (self._current.progress.n_bytes if self._current else 0)

    def items(self) -> Iterator[Conversation | Quarantined]:
        """Everything in the order of the sources. UserError when a named file cannot be read, or nobody said who "me" is."""
        files = [self._recognised(source, entry) for source, entry in zip(self._sources, self._report.files)]
        chats = [opened for opened in files if opened is not None and opened.format.is_chat]
        self._require_me(chats)
        for source, opened in zip(self._sources, files):
            self._current = source
            if opened is not None:
                yield from self._read(opened)
            self._bytes_finished += source.n_bytes
            self._current = None
        self._check_me(chats)

    def _recognised(self, source: Source, entry: FileReport) -> FileToRead | None:
        """None, and the reason in the report, for a file that is left out. UserError when the user named this very file."""
        if source.fault:
            entry.skipped = source.fault
            return None
        try:
            how = detect(source, self._options.format, self._options.encoding)
            if how is None:
                entry.skipped = EMPTY
            elif not how.format.is_choice and not source.named:
                entry.skipped = f"contains nothing to learn: {how.evidence}"  # account data and settings, in an app's export
            else:
                return self._opened(source, entry, how)
        except UserError as error:
            if source.named:
                raise
            entry.skipped = str(error)
        return None

    def _opened(self, source: Source, entry: FileReport, how: Detected) -> FileToRead:
        file = FileToRead(how.format, source, how.encoding, self._options, entry)
        if how.format.prepare is not None:
            file = how.format.prepare(file)
        entry.format, entry.encoding = how.format.name, how.encoding.name
        entry.evidence = f"{how.encoding.evidence}; {how.evidence}"
        return file

    def _require_me(self, chats: Sequence[FileToRead]) -> None:
        """Without --me, list the speakers of all chat logs that do not say themselves whose phone it was, and stop."""
        if self._options.me:
            return
        speakers: Counter[str] = Counter()
        silent: list[str] = []
        for file in chats:
            said: Counter[str] = Counter()
            is_silent = False
            for line in file.records():
                if isinstance(line, ChatLine) and line.kind == "speech":
                    said[line.speaker] += 1
                    is_silent = is_silent or line.mine is None
            if is_silent:
                silent.append(file.source.name)
                speakers.update(said)
        if silent:
            raise UserError(
                silent[0],
                f"is a chat log, and nobody has said whose messages are to be learned; its speakers: {_listed(speakers)}",
                remedy="--me NAME",
            )

    def _check_me(self, chats: Sequence[FileToRead]) -> None:
        """A misspelt name must not end as "nobody answers"."""
        known = set(map(folded_name, self._report.speakers))
        missing = [name for name in self._options.me if folded_name(name) not in known]
        if chats and missing and len(missing) == len(self._options.me):
            raise UserError(
                "--me",
                f"nobody in {chats[0].source.name} is called {' or '.join(missing)}; its speakers: {_listed(self._report.speakers)}",
                remedy="write the name as the export has it",
            )

    def _read(self, file: FileToRead) -> Iterator[Conversation | Quarantined]:
        try:
            if file.format.is_chat:
                yield from conversations_of(self._speech(file), self._options.me, self._scenario.rules, file.format.name)
            else:
                yield from cast(Iterator[Conversation | Quarantined], file.records())  # only a chat log has lines
        except UserError as error:
            if file.source.named:
                raise
            yield Quarantined(file.source.name, 0, "unreadable_file", str(error), "")

    def _speech(self, file: FileToRead) -> Iterator[ChatLine | Quarantined]:
        """Only what people said is passed on; the rest is counted."""
        for line in file.records():
            if isinstance(line, Quarantined):
                yield line
            elif isinstance(line, ChatLine):
                if line.kind == "speech":
                    self._report.speakers[line.speaker] += 1
                    yield line
                else:
                    self._report.lines_skipped[line.kind] += 1
