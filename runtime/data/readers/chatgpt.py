"""ChatGPT's data export: conversations.json.

In:  an array of conversations, each a tree of messages (`mapping`) and the leaf that was last looked at (`current_node`).
Out: one Conversation for each: the branch from the root to the current leaf.
Regenerated answers are other branches and are left out; hidden system messages and the model's thoughts are not turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...message import Conversation, Message
from ..files.head import Head
from ..files.json_stream import text_of
from ..records import BadRecord, Quarantined, excerpt, join_turns
from .format import FileToRead, Format
from .rows import first_row, iter_json_items
from .shapes import ROLE_NAMES

_SILENT = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context", "system_error")


def looks_like_chatgpt(head: Head) -> str | None:
    """Conversations that hold a mapping; the first one alone may be longer than the head."""
    first = head.json
    if first is None:
        return None
    if first.value is None:
        is_cut = first.layout == "json" and re.match(r"\[\s*\{", head.text) and re.search(r'"mapping"\s*:', head.text)
        return "array of conversations with a mapping" if is_cut else None
    objects = [found.value for found in (first, first_row(head)) if found is not None and found.value is not None]
    return "conversations with a mapping" if any(isinstance(value.get("mapping"), dict) for value in objects) else None


def read_chatgpt(file: FileToRead) -> Iterator[Conversation | Quarantined]:
    """Conversations in the export's order, numbered from 1."""
    source = file.source
    for number, item in enumerate(iter_json_items(text_of(source, file.encoding), source.name), start=1):
        title = item.get("title") if isinstance(item, dict) else ""
        title = title if isinstance(title, str) else ""
        try:
            messages = join_turns(branch_messages(item))
        except BadRecord as error:
            yield Quarantined(source.name, number, error.reason, str(error), excerpt(title or str(item)[:480]))
            continue
        metadata = {"source": source.name, "line": number, "format": "chatgpt", "title": title, "raw": item}
        if not messages:
            yield Quarantined(source.name, number, "no_messages", "has no turn with words in it", excerpt(title))
        else:
            yield Conversation(messages, metadata)


def branch_messages(item: Any) -> Iterator[Message]:
    """Turns from the root to the current leaf. BadRecord for a broken tree."""
    mapping = item.get("mapping") if isinstance(item, dict) else None
    if not isinstance(mapping, dict):
        raise BadRecord("bad_row", "has no mapping of messages")
    branch: list[dict] = []
    key, seen = item.get("current_node") or _last_leaf(mapping), set()
    while key is not None:
        node = mapping.get(key) if isinstance(key, str) else None
        if not isinstance(node, dict) or key in seen:
            raise BadRecord("broken_tree", f"the branch is broken at node {key!r}")
        seen.add(key)
        branch.append(node)
        key = node.get("parent")
    for node in reversed(branch):
        yield from _turn(node.get("message"))


def _last_leaf(mapping: dict) -> str | None:
    """Old exports lack current_node: the newest message without children."""
    leaves = [(_created(node), key) for key, node in mapping.items() if isinstance(node, dict) and not node.get("children")]
    return max(leaves)[1] if leaves else None


def _created(node: dict) -> float:
    message = node.get("message")
    created = message.get("create_time") if isinstance(message, dict) else None
    return float(created) if isinstance(created, (int, float)) else 0.0


def _turn(message: Any) -> Iterator[Message]:
    if not isinstance(message, dict):
        return
    author, content, metadata = (_object(message, key) for key in ("author", "content", "metadata"))
    role = ROLE_NAMES.get(str(author.get("role")))
    if role is None:
        raise BadRecord("unknown_role", f"a message is from {author.get('role')!r}")
    text = _words(content)
    hidden = metadata.get("is_visually_hidden_from_conversation") or content.get("content_type") in _SILENT
    if not text.strip() or hidden or role == "system":
        return
    recipient = message.get("recipient")
    if role == "assistant" and recipient not in (None, "all"):
        yield Message("tool", f"{recipient}({text})", {"call": True})
    else:
        yield Message(role, text)


def _object(message: dict, key: str) -> dict:
    """A part of a message; empty where it is missing or of another type."""
    value = message.get(key)
    return value if isinstance(value, dict) else {}


def _words(content: dict) -> str:
    """The text of a content object; images and other assets carry none."""
    if isinstance(content.get("parts"), list):
        texts = [part if isinstance(part, str) else part.get("text", "") if isinstance(part, dict) else "" for part in content["parts"]]
        return "\n".join(text for text in texts if isinstance(text, str) and text)
    text = content.get("text") or content.get("result") or ""
    return text if isinstance(text, str) else ""


FORMAT = Format("chatgpt", looks_like_chatgpt, read_chatgpt, (".json",))
