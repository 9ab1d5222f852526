"""What a reader may yield: a conversation, a row that could not be used, or one line of a chat log.

In:  nothing; these are the types of the seam between readers and the rest.
Out: the same, frozen.
A reader yields exactly one Conversation or Quarantined for each record of the file, so that the counts add up.
"""

from __future__ import annotations

from dataclasses import dataclass

EXCERPT_CHARS = 120


@dataclass(frozen=True)
class Quarantined:
    """A record that could not become a conversation."""

    source: str
    """file name, inside an archive as archive.zip!name"""
    line: int
    """line number of a line-based file, else the record's number; both from 1"""
    reason: str
    """short and countable: bad_json, undecodable, unknown_role, …"""
    detail: str
    """what exactly was wrong"""
    excerpt: str
    """the beginning of the raw record"""


@dataclass(frozen=True)
class ChatLine:
    """One message of a chat log."""

    source: str
    line: int
    chat: str
    """which chat of the export it belongs to"""
    speaker: str
    timestamp_s: float | None
    """seconds since 1970 in the phone's local clock; None when the export gives none"""
    text: str
    kind: str = "speech"
    """speech | notice (system line) | media (placeholder without words) | deleted"""
    mine: bool | None = None
    """whether the export itself says that the phone's owner wrote it; None: it does not say"""


def excerpt(text: str) -> str:
    """The beginning of a text on one line, for reports."""
    flat = " ".join(text[: EXCERPT_CHARS * 4].split())
    return flat if len(flat) <= EXCERPT_CHARS else flat[: EXCERPT_CHARS - 1] + "…"
