"""Chat logs to conversations: whose messages are learned, what belongs together.

In:  ChatLine of speech in the order of the log, the names of "me", the scenario's gaps.
Out: Conversation: the owner's messages are the assistant's turns, everyone else's the user's.
Messages of one side within join_gap are one turn (in a group each speaker's part opens with the name); a silence longer than
silence_gap, another chat, or some thousand lines without either start a new conversation.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from ..message import Conversation, Message
from .records import ChatLine, Quarantined, excerpt
from .scenario import DataRules

LINES_MAX = 5_000
"""about as many lines are one conversation at most"""


def is_mine(line: ChatLine, me: frozenset[str]) -> bool:
    """Said by a name given with --me, or marked by the export itself as the owner's."""
    return line.mine is True or folded_name(line.speaker) in me


def folded_name(name: str) -> str:
    """Names are compared without case, width, direction marks and doubled blanks."""
    shown = "".join(character for character in unicodedata.normalize("NFKC", name) if unicodedata.category(character) != "Cf")
    return " ".join(shown.casefold().split())


def conversations_of(lines: Iterator[ChatLine | Quarantined], me: Sequence[str], rules: DataRules, form: str) -> Iterator[Conversation | Quarantined]:
    """Conversations in the order of the log; one in which the owner says nothing, or only the owner does, is quarantined."""
    names = frozenset(map(folded_name, me))
    open_lines: list[ChatLine] = []
    for line in lines:
        if isinstance(line, Quarantined):
            yield line
            continue
        if open_lines and (
            line.chat != open_lines[-1].chat or _gap_minutes(open_lines[-1], line) > rules.silence_gap_minutes or _is_long(open_lines, line, names)
        ):
            yield _conversation(open_lines, names, rules, form)
            open_lines = []
        open_lines.append(line)
    if open_lines:
        yield _conversation(open_lines, names, rules, form)


def _is_long(lines: list[ChatLine], following: ChatLine, me: frozenset[str]) -> bool:
    """A group that never sleeps, or a log without times, is cut behind one of the owner's turns, so that memory stays bounded."""
    if len(lines) < LINES_MAX:
        return False
    return (is_mine(lines[-1], me) and not is_mine(following, me)) or len(lines) >= 2 * LINES_MAX


def _gap_minutes(before: ChatLine, after: ChatLine) -> float:
    """0 when a time is missing; a clock that was set back is not silence."""
    if before.timestamp_s is None or after.timestamp_s is None:
        return 0.0
    return max(0.0, (after.timestamp_s - before.timestamp_s) / 60)


def _conversation(lines: list[ChatLine], me: frozenset[str], rules: DataRules, form: str) -> Conversation | Quarantined:
    first = lines[0]
    others = {line.speaker for line in lines if not is_mine(line, me)}
    if len(others) == 0 or not any(is_mine(line, me) for line in lines):
        reason, detail = ("no_user_turn", "only the owner speaks in it") if not others else ("no_assistant_turn", "the owner says nothing in it")
        return Quarantined(first.source, first.line, reason, detail, excerpt(" | ".join(line.text for line in lines[:4])))
    messages: list[Message] = []
    previous: ChatLine | None = None
    for line in lines:
        mine = is_mine(line, me)
        joins = previous is not None and is_mine(previous, me) == mine and _gap_minutes(previous, line) <= rules.join_gap_minutes
        is_same_speaker = previous is not None and previous.speaker == line.speaker
        is_named = not mine and len(others) > 1 and not (joins and is_same_speaker)
        text = f"{line.speaker}: {line.text}" if is_named else line.text
        if joins:
            before = messages.pop()
            messages.append(Message(before.role, f"{before.text}\n{text}", before.metadata))
        else:
            metadata = {"speaker": line.speaker, "timestamp_s": line.timestamp_s, "line": line.line}
            messages.append(Message("assistant" if mine else "user", text, metadata))
        previous = line
    raw = [f"{line.speaker}: {line.text}" for line in lines]
    return Conversation(tuple(messages), {"source": first.source, "line": first.line, "format": form, "chat": first.chat, "raw": raw})
