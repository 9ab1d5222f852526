"""Telegram Desktop's JSON export (result.json), of one chat or of the whole account.

In:  {"name", "type", "messages": […]} or {"personal_information", "chats": {"list": […]}}.
Out: ChatLine for each message, chat by chat; service messages, media and forwarded texts keep their kind.
A message's `text` is a string, or a list of strings and {"type", "text"} pieces. The export of the account says who its owner is.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any, Iterator

from ...errors import UserError
from ..encoding import Encoding, iter_text
from ..found import ChatLine, Quarantined
from ..sources import Source

_MEDIA_KEYS = ("photo", "file", "media_type", "location_information", "contact_information", "poll", "game_title", "invoice_information")


def read_telegram(source: Source, encoding: Encoding) -> Iterator[ChatLine | Quarantined]:
    """All messages; UserError when the document is not one of the two forms."""
    with source.open() as stream:
        text = "".join(iter_text(stream, encoding, source.name))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(source.name, f"is not valid JSON ({error})", remedy="export the chat again as machine-readable JSON") from None
    del text
    chats = _chats(document)
    if chats is None:
        raise UserError(source.name, "has neither messages nor a list of chats", remedy="export from Telegram Desktop as machine-readable JSON")
    owner = _owner_id(document)
    number = 0
    for place, chat in enumerate(chats, start=1):
        name = str(chat.get("name") or chat.get("type") or f"chat {place}") if isinstance(chat, dict) else ""
        messages = chat.get("messages") if isinstance(chat, dict) else None
        if not isinstance(messages, list):
            yield Quarantined(source.name, number, "bad_chat", f"chat {place} has no list of messages", name)
            continue
        for message in messages:
            number += 1
            yield _line(message, f"{place} {name}", source.name, number, owner)


def _chats(document: Any) -> list | None:
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("messages"), list):
        return [document]
    found: list = []
    for key in ("chats", "left_chats"):
        chats = document.get(key)
        if isinstance(chats, dict) and isinstance(chats.get("list"), list):
            found += chats["list"]
    return found if found or isinstance(document.get("chats"), dict) else None


def _owner_id(document: dict) -> str | None:
    information = document.get("personal_information")
    number = information.get("user_id") if isinstance(information, dict) else None
    return f"user{number}" if number is not None else None


def _line(message: Any, chat: str, source: str, number: int, owner: str | None) -> ChatLine | Quarantined:
    if not isinstance(message, dict):
        return Quarantined(source, number, "bad_message", f"message {number} is no object", str(message)[:120])
    text = plain_text(message.get("text", ""))
    if text is None:
        return Quarantined(source, number, "bad_message", f"message {number} has a text of an unknown form", str(message.get("text"))[:120])
    speaker = message.get("from") if isinstance(message.get("from"), str) else None
    sender = message.get("from_id")
    mine = None if owner is None else str(sender) == owner
    if message.get("type") != "message":
        kind = "notice"
    elif message.get("forwarded_from") is not None or "forwarded_from_id" in message:
        kind = "forwarded"
    elif not text.strip():
        kind = "media" if any(key in message for key in _MEDIA_KEYS) else "notice"
    else:
        kind = "speech"
    return ChatLine(source, number, chat, speaker or (str(sender) if sender else "Deleted Account"), _time_s(message), text.strip(), kind, mine)


def plain_text(text: Any) -> str | None:
    """The words of a `text` field; None when it is neither a string nor a list of pieces."""
    if isinstance(text, str):
        return text
    if not isinstance(text, list):
        return None
    pieces = [piece if isinstance(piece, str) else piece.get("text") if isinstance(piece, dict) else None for piece in text]
    return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else None


def _time_s(message: dict) -> float | None:
    """The local clock's `date` first: the gaps between messages are what counts, and older exports have nothing else."""
    date = message.get("date")
    try:
        return datetime.fromisoformat(date).replace(tzinfo=timezone.utc).timestamp() if isinstance(date, str) else float(message["date_unixtime"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
