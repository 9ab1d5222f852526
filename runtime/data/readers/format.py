"""The one record of a file format: how it is recognised, how it is read, and what a person may say about it.

In:  nothing; these are the types that every reader fills in and detect.py and data/reading.py go by.
Out: Format, FileToRead, ReadOptions, frozen.
`looks_like` sees the head of a file only and must not take what another format owns: a format that takes more stands later in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...message import Conversation
from ..files.encoding import Encoding
from ..files.head import Head
from ..files.sources import Source
from ..records import ChatLine, Quarantined
from ..report import FileReport

Option = Literal["columns", "date_order"]
"""options of ReadOptions that only some formats understand; those of chat logs understand `me` as well"""
NOT_TEXT = Encoding("binary", "a document and not plain text")
"""stands where a document has no encoding of its own"""


@dataclass(frozen=True)
class ReadOptions:
    """What the user says about the files."""

    format: str | None = None
    """name of a format; None: recognised by content"""
    encoding: str | None = None
    """one of encoding.FORCED; None: recognised by content"""
    columns: Mapping[str, str] = field(default_factory=dict)
    """tables: our name (user, assistant, system, text, title, author, conversation, role, content) -> column"""
    me: tuple[str, ...] = ()
    """chat logs: names under which the owner speaks"""
    date_order: str | None = None
    """DMY, MDY or YMD for a chat log that does not show it itself"""

    def as_json(self) -> dict[str, Any]:
        return {"format": self.format, "encoding": self.encoding, "columns": dict(self.columns), "me": list(self.me), "date_order": self.date_order}


@dataclass(frozen=True)
class FileToRead:
    """One file as its reader gets it."""

    format: Format
    source: Source
    encoding: Encoding
    """NOT_TEXT for a document"""
    options: ReadOptions = field(default_factory=ReadOptions)
    report: FileReport = field(default_factory=lambda: FileReport(""))
    """the reader adds what it has to say about the file as a whole: unmapped columns, the order of dates"""

    def records(self) -> Iterator[Conversation | ChatLine | Quarantined]:
        """A fresh walk through the file."""
        return self.format.read(self)


@dataclass(frozen=True)
class Format:
    """One kind of file."""

    name: str
    """what --format takes and reports show"""
    looks_like: Callable[[Head], str | None]
    """what in a file's head shows that it is of this format, in words for the report; None: it is not"""
    read: Callable[[FileToRead], Iterator[Conversation | ChatLine | Quarantined]]
    """the file's records in its order; of a chat log ChatLine in place of Conversation. Called again for a second walk through the file"""
    suffixes: tuple[str, ...]
    """endings that files of this format have: in folders and archives only files with a known ending are looked at"""
    is_chat: bool = False
    """a chat log: somebody must say which speaker is the owner, if the export does not"""
    options: tuple[Option, ...] = ()
    """what else of ReadOptions it understands"""
    prepare: Callable[[FileToRead], FileToRead] | None = None
    """looks through the whole file before any is read and returns it with what it found; UserError for a file that must be left out"""
    is_document: bool = False
    """bytes that are not plain text (a zip archive of XML, a database): recognised before an encoding is looked for, and never unpacked"""
    is_choice: bool = True
    """--format can name it. What cannot be chosen is only recognised, and read only if the user named the file itself"""
