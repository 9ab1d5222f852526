"""One module per kind of file; each describes itself in a Format record, and FORMATS lists the records.

In:  FileToRead: a source, its encoding, what the user said about it.
Out: an iterator of Conversation | Quarantined | ChatLine in the file's order.
A format that takes more kinds of files stands behind those that take fewer: the first that recognises a file reads it.
"""

from . import chatgpt, notes, rows, tabular, telegram, wechat, whatsapp
from .format import Format, Option

FORMATS: tuple[Format, ...] = (
    telegram.FORMAT,
    chatgpt.FORMAT,
    *rows.FORMATS,
    whatsapp.FORMAT,
    *wechat.FORMATS,
    *tabular.FORMATS,
    notes.FORMAT,
)
"""In the order in which they are tried. A new reader is one module and one line here."""


def choices() -> tuple[str, ...]:
    """What --format accepts."""
    return tuple(format_.name for format_ in FORMATS if format_.is_choice)


def format_named(name: str) -> Format:
    """The record with this name, which is one of `choices()`."""
    return next(format_ for format_ in FORMATS if format_.name == name)


def chat_formats() -> tuple[str, ...]:
    """Names of the formats that are chat logs."""
    return tuple(format_.name for format_ in FORMATS if format_.is_chat)


def formats_with(option: Option) -> tuple[str, ...]:
    """Names of the formats that understand an option."""
    return tuple(format_.name for format_ in FORMATS if option in format_.options)


def suffixes() -> tuple[str, ...]:
    """Endings of all files that some reader may take."""
    return tuple(sorted({suffix for format_ in FORMATS for suffix in format_.suffixes}))


def document_suffixes() -> tuple[str, ...]:
    """Endings of files that are one document even where they are a zip archive."""
    return tuple(sorted({suffix for format_ in FORMATS if format_.is_document for suffix in format_.suffixes}))
