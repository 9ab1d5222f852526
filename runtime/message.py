"""The one form in which text enters the system.

In:  whatever a reader found in a person's file.
Out: Conversation, a list of Message; metadata keeps the source file, line, timestamp and the raw record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Mapping

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Message:
    """One turn."""

    role: Role
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """source (file), line or record number, timestamp, raw"""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role {self.role!r} is not one of {', '.join(ROLES)}")


@dataclass(frozen=True)
class Conversation:
    """Turns in order, and what belongs to the whole (source, record number, title, entities)."""

    messages: tuple[Message, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
