"""The one form in which text enters the system.

In:  whatever a reader found in a person's file.
Out: Conversation, a list of Message; metadata keeps the source file, line, timestamp and the raw record.
Millions are made in one run, so they have slots, and constructors that set them directly: half of the generated ones' time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = ("system", "user", "assistant", "tool")
_ROLES = frozenset(ROLES)
_NO_METADATA: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One turn."""

    role: Role
    text: str
    metadata: Mapping[str, Any]
    """source (file), line or record number, timestamp, raw"""

    def __init__(self, role: Role, text: str, metadata: Mapping[str, Any] = _NO_METADATA) -> None:
        if role not in _ROLES:
            raise ValueError(f"role {role!r} is not one of {', '.join(ROLES)}")
        _set_role(self, role)
        _set_text(self, text)
        _set_metadata(self, metadata)


@dataclass(frozen=True, slots=True, init=False)
class Conversation:
    """Turns in order, and what belongs to the whole (source, record number, title, entities)."""

    messages: tuple[Message, ...]
    metadata: Mapping[str, Any]

    def __init__(self, messages: tuple[Message, ...], metadata: Mapping[str, Any] = _NO_METADATA) -> None:
        _set_messages(self, messages)
        _set_conversation_metadata(self, metadata)


_set_role, _set_text, _set_metadata = (vars(Message)[name].__set__ for name in ("role", "text", "metadata"))
_set_messages, _set_conversation_metadata = (vars(Conversation)[name].__set__ for name in ("messages", "metadata"))
