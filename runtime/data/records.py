"""What readers make of a file: conversations, records that could not be used, lines of a chat log.

In:  nothing; these are the types between the readers and everything behind them, with the one rule for the order of turns.
Out: the same, frozen.
A reader yields exactly one Conversation or Quarantined for each record of the file, so that the counts add up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..message import Message

EXCERPT_CHARS = 120
LineKind = Literal["speech", "notice", "media", "deleted", "forwarded"]
"""speech: somebody's own words | notice: written by the app | media: a placeholder without words | forwarded: another's words"""


class BadRecord(ValueError):
    """A record that cannot be used: reason is what reports count, the text says what exactly is wrong."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


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
    kind: LineKind = "speech"
    mine: bool | None = None
    """whether the export itself says that the phone's owner wrote it; None: it does not say"""


def excerpt(text: str) -> str:
    """The beginning of a text on one line, for reports."""
    flat = " ".join(text[: EXCERPT_CHARS * 4].split())
    return flat if len(flat) <= EXCERPT_CHARS else flat[: EXCERPT_CHARS - 1] + "…"


def join_turns(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The rule for turns: a system turn only first, turns of one role in a row joined by a line break. BadRecord for a later system turn."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role and joined[-1].metadata == message.metadata:
            joined[-1] = Message(message.role, f"{joined[-1].text}\n{message.text}", message.metadata)
        elif message.role == "system" and joined:
            raise BadRecord("late_system_turn", f"turn {len(joined) + 1} is a system turn; only the first may be")
        else:
            joined.append(message)
    return tuple(joined)
