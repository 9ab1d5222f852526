"""Telegram Desktop's JSON export (result.json), of one chat or of the whole account.

In:  {"name", "type", "messages": […]} or {"personal_information", "chats": {"list": […]}}.
Out: ChatLine for each message, chat by chat; service messages, media and forwarded texts keep their kind.
A message's `text` is a string, or a list of strings and {"type", "text"} pieces. The export of the account says who its owner is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from ...errors import UserError
from ..files.head import Head
from ..files.json_stream import JsonStream, text_of
from ..records import ChatLine, LineKind, Quarantined
from .format import FileToRead, Format

_CHAT_LISTS = ("chats", "left_chats")
_MEDIA_KEYS = ("photo", "file", "media_type", "location_information", "contact_information", "poll", "game_title", "invoice_information")
_ACCOUNT = re.compile(r'"(chats|personal_information)"\s*:')
_CHAT = re.compile(
    r'"type"\s*:\s*"(personal_chat|private_group|private_supergroup|public_supergroup|public_group|saved_messages|bot_chat'
    r'|private_channel|public_channel)"'
)
_MESSAGE = re.compile(r'"type"\s*:\s*"(message|service)"')
_SENDER = re.compile(r'"(from_id|actor_id|date_unixtime)"\s*:')


@dataclass
class _Chat:
    """What a chat says of itself, wherever in it that stands."""

    place: int
    """in the document, from 1"""
    name: str = ""
    has_messages: bool = False

    @property
    def label(self) -> str:
        return f"{self.place} {self.name or f'chat {self.place}'}"


@dataclass
class _Outline:
    """The document without its messages."""

    chats: list[_Chat] = field(default_factory=list)
    is_list: bool = False
    """an export of the account"""
    owner: str | None = None
    """the from_id of the account's owner, if the export says"""


def looks_like_telegram(head: Head) -> str | None:
    """Keys and types that no other JSON has; the order of an export's members varies, so they may stand anywhere in the head."""
    if head.text[:1] != "{":
        return None
    if _ACCOUNT.search(head.text) or _CHAT.search(head.text):
        return "Telegram's chat type is in it"
    return "Telegram's messages are in it" if _MESSAGE.search(head.text) and _SENDER.search(head.text) else None


def read_telegram(file: FileToRead) -> Iterator[ChatLine | Quarantined]:
    """All messages, one at a time; UserError when the document is not one of the two forms.

    A chat's name and the account's owner may stand behind the messages: the first walk finds them, the second reads.
    """
    source = file.source
    pieces = text_of(source, file.encoding)
    outline = _outline(JsonStream(pieces(), source.name))
    if not outline.is_list and not any(chat.has_messages for chat in outline.chats):
        raise UserError(source.name, "has neither messages nor a list of chats", remedy="export from Telegram Desktop as machine-readable JSON")
    stream = JsonStream(pieces(), source.name)
    chats = iter(outline.chats)
    number = 0
    for _ in _each_chat(stream, outline.is_list):
        chat = next(chats)
        if not chat.has_messages:
            stream.skip()
            yield Quarantined(source.name, number, "bad_chat", f"chat {chat.place} has no list of messages", chat.name)
            continue
        for key in stream.members():
            if key != "messages" or stream.sign() != "[":
                stream.skip()
                continue
            for _ in stream.items():
                number += 1
                yield _line(stream.value(), chat.label, source.name, number, outline.owner)


def _outline(stream: JsonStream) -> _Outline:
    """First walk: the whole document is taken for a chat, and for an account; which of them it is shows in the end."""
    account, single = _Outline(is_list=True), _Chat(1)
    is_account = False
    if stream.sign() == "{":
        for key in stream.members():
            if key in _CHAT_LISTS and stream.sign() == "{":
                is_account = True
                account.chats += _listed_chats(stream, len(account.chats))
            elif key == "personal_information":
                account.owner = _owner_id(stream.value())
            else:
                _note(single, key, stream)
        stream.finish()
    return account if is_account and not single.has_messages else _Outline([single], owner=account.owner)


def _listed_chats(stream: JsonStream, before: int) -> list[_Chat]:
    """The chats of {"list": […]}"""
    chats: list[_Chat] = []
    for key in stream.members():
        if key != "list" or stream.sign() != "[":
            stream.skip()
            continue
        for _ in stream.items():
            chats.append(chat := _Chat(before + len(chats) + 1))
            if stream.sign() == "{":
                for inner in stream.members():
                    _note(chat, inner, stream)
            else:
                stream.skip()
    return chats


def _note(chat: _Chat, key: str, stream: JsonStream) -> None:
    """Take from a member of a chat what the second walk must know."""
    if key == "name" or (key == "type" and not chat.name):
        chat.name = str(stream.value() or chat.name)
    else:
        chat.has_messages = chat.has_messages or (key == "messages" and stream.sign() == "[")
        stream.skip()


def _each_chat(stream: JsonStream, is_list: bool) -> Iterator[None]:
    """Second walk: once before each chat."""
    if not is_list:
        yield
        return
    for key in stream.members():
        if key not in _CHAT_LISTS or stream.sign() != "{":
            stream.skip()
            continue
        for inner in stream.members():
            if inner != "list" or stream.sign() != "[":
                stream.skip()
                continue
            for _ in stream.items():
                yield


def _owner_id(information: Any) -> str | None:
    number = information.get("user_id") if isinstance(information, dict) else None
    return f"user{number}" if number is not None else None


def _line(message: Any, chat: str, source: str, number: int, owner: str | None) -> ChatLine | Quarantined:
    if not isinstance(message, dict):
        return Quarantined(source, number, "bad_message", f"message {number} is not an object", str(message)[:120])
    text = plain_text(message.get("text", ""))
    if text is None:
        return Quarantined(source, number, "bad_message", f"message {number} has a text of an unknown form", str(message.get("text"))[:120])
    speaker = message.get("from") if isinstance(message.get("from"), str) else None
    sender = message.get("from_id")
    mine = None if owner is None else str(sender) == owner
    kind: LineKind = "speech"
    if message.get("type") != "message":
        kind = "notice"
    elif message.get("forwarded_from") is not None or "forwarded_from_id" in message:
        kind = "forwarded"
    elif not text.strip():
        kind = "media" if any(key in message for key in _MEDIA_KEYS) else "notice"
    return ChatLine(source, number, chat, speaker or (str(sender) if sender else "Deleted Account"), _time_s(message), text.strip(), kind, mine)


def plain_text(text: Any) -> str | None:
    """The words of a `text` field; None when it is neither a string nor a list of pieces."""
    if isinstance(text, str):
        return text
    if not isinstance(text, list):
        return None
    pieces = [piece if isinstance(piece, str) else piece.get("text") if isinstance(piece, dict) else None for piece in text]
    words = [piece for piece in pieces if isinstance(piece, str)]
    return "".join(words) if len(words) == len(pieces) else None


def _time_s(message: dict) -> float | None:
    """The local clock's `date` first: the gaps between messages are what counts, and older exports have nothing else."""
    date = message.get("date")
    try:
        return datetime.fromisoformat(date).replace(tzinfo=timezone.utc).timestamp() if isinstance(date, str) else float(message["date_unixtime"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


FORMAT = Format("telegram", looks_like_telegram, read_telegram, (".json",), is_chat=True)
