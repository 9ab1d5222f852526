"""Which reader a file needs, recognised by its content; the ending only decides between two that fit.

In:  a source and what the user named.
Out: Detected: format, encoding and the evidence for both.
No format is known here by name: the table in readers/__init__.py says which there are and in which order they are tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import UserError
from .. import readers
from ..files.encoding import Encoding
from ..files.head import Head, read_head
from ..files.sources import Source
from .format import NOT_TEXT, Format


@dataclass(frozen=True)
class Detected:
    """How a source is read."""

    format: Format
    encoding: Encoding
    evidence: str
    """what shows that it is this format"""


def detect(source: Source, forced_format: str | None = None, forced_encoding: str | None = None) -> Detected | None:
    """None for an empty source. UserError when no reader takes it."""
    head = read_head(source, forced_encoding)
    if not head.data.strip():
        return None
    if forced_format is not None:
        return _as(readers.format_named(forced_format), head, "named by the user")
    document = _first_match(head, (format_ for format_ in readers.FORMATS if format_.is_document))
    if document is not None or not head.text:
        return document
    match = _first_match(head, (format_ for format_ in readers.FORMATS if not format_.is_document))
    if match is None:
        raise UserError(source.name, "is of no known format", allowed=", ".join(readers.choices()), remedy="name the format with --format")
    return match


def _first_match(head: Head, formats: Iterable[Format]) -> Detected | None:
    for format_ in formats:
        evidence = format_.looks_like(head)
        if evidence is not None:
            return _as(format_, head, evidence)
    return None


def _as(format_: Format, head: Head, evidence: str) -> Detected | None:
    """None for a text file in which there is nothing but a byte-order mark."""
    if format_.is_document:
        return Detected(format_, NOT_TEXT, evidence)
    return Detected(format_, head.encoding, evidence) if head.text else None
