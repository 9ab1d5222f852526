"""The shapes a row may have: OpenAI messages, ShareGPT, Alpaca, prompt/completion, preference pairs, bare text.

In:  one row, a dict, as JSON or CSV gave it.
Out: a tuple of Message, or BadRecord with a countable reason.
Published forms: OpenAI fine-tuning guide (messages, tool_calls, weight), ShareGPT (conversations of from/value), Stanford Alpaca
(instruction/input/output), OpenAI legacy completions (prompt/completion), TRL preference data (chosen/rejected).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...message import Message, Role
from ..records import BadRecord, join_turns

Row = Mapping[str, Any]

ROLE_NAMES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "customer": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "bing": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "agent": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "tool_response": "tool",
    "function_call": "tool",
    "tool_call": "tool",
    "ipython": "tool",
}
"""Names of roles in the published forms, and ours for them."""


@dataclass(frozen=True)
class Shape:
    """One published form of a row."""

    name: str
    keys: tuple[str, ...]
    """keys that a row of this shape has; alternatives separated by |"""
    convert: Callable[[Row], tuple[Message, ...]]

    def fits(self, row: Row) -> bool:
        """Whether the row has all keys."""
        for group in self.keys:  # noqa: SIM110 (asked for every row, where a generator costs more than this loop)
            if group not in row and not any(key in row for key in group.split("|")):
                return False
        return True


def openai_messages(row: Row) -> tuple[Message, ...]:
    """{"messages": [{"role", "content", "tool_calls"?, "weight"?}]}"""
    turns = row["messages"]
    if not isinstance(turns, list) or not turns:
        raise BadRecord("no_messages", "messages is not a list with turns in it")
    messages: list[Message] = []
    is_plain, before = True, "system"
    for number, turn in enumerate(turns, start=1):
        if not isinstance(turn, dict):
            raise BadRecord("bad_turn", f"turn {number} is not an object")
        name, content = turn.get("role"), turn.get("content")
        role = ROLE_NAMES.get(name) if isinstance(name, str) else None
        if role is None:
            raise BadRecord("unknown_role", f"turn {number} has the role {name!r}")
        if type(content) is str and len(turn) == 2:
            messages.append(Message(role, content))
            # Most rows are plain and alternate: they need no second look.
            if role == before or role == "system":
                is_plain = False
            before = role
        else:
            messages.extend(_rich_turn(turn, role, content, number))
            is_plain = False
    return tuple(messages) if is_plain else join_turns(messages)


def _rich_turn(turn: Row, role: Role, content: Any, number: int) -> Iterable[Message]:
    """Tool calls, content in parts, weights: everything beyond role and a text."""
    calls = turn.get("tool_calls") or ([{"function": turn["function_call"]}] if turn.get("function_call") else [])
    if content is None:
        content = turn.get("refusal")
    if content is None and not calls:
        raise BadRecord("null_content", f"turn {number} ({role}) has no content and no tool call")
    if content is not None:
        metadata = {"train": False} if turn.get("weight") == 0 else {}
        yield Message(role, text_of_content(content, f"turn {number}"), metadata)
    if calls:
        yield Message("tool", "\n".join(_call_text(call, number) for call in calls), {"call": True})


def text_of_content(content: Any, where: str) -> str:
    """A text, or the texts of a list of parts; parts that are not text (images, audio) carry none."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text_of_part(part, where) for part in content if part is not None).strip("\n")
    raise BadRecord("bad_turn", f"{where} has content of type {type(content).__name__}")


def _text_of_part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text") or part.get("refusal") or ""
        return text if isinstance(text, str) else ""
    raise BadRecord("bad_turn", f"{where} has a part of type {type(part).__name__}")


def _call_text(call: Any, number: int) -> str:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRecord("bad_turn", f"turn {number} has a tool call without a name")
    arguments = function.get("arguments", "")
    return f"{function['name']}({arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)})"


def sharegpt(row: Row) -> tuple[Message, ...]:
    """{"conversations": [{"from": "human" | "gpt" | …, "value"}], "system"?}"""
    turns = row["conversations"] if "conversations" in row else row["conversation"]
    if not isinstance(turns, list) or not turns:
        raise BadRecord("no_messages", "conversations is not a list with turns in it")
    messages = [Message("system", row["system"])] if isinstance(row.get("system"), str) and row["system"].strip() else []
    for number, turn in enumerate(turns, start=1):
        name = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
        role = ROLE_NAMES.get(name.lower()) if isinstance(name, str) else None
        if role is None:
            raise BadRecord("unknown_role", f"turn {number} is from {name!r}")
        value = turn.get("value", turn.get("content"))
        if value is None:
            raise BadRecord("null_content", f"turn {number} ({name}) has no value")
        messages.append(Message(role, text_of_content(value, f"turn {number}")))
    return join_turns(messages)


def alpaca(row: Row) -> tuple[Message, ...]:
    """{"instruction", "input"?, "output", "system"?, "history"?: [[question, answer], …]}"""
    question = _text(row, "instruction")
    if isinstance(row.get("input"), str) and row["input"].strip():
        question = f"{question}\n\n{row['input']}" if question.strip() else row["input"]
    messages = [Message("system", row["system"])] if isinstance(row.get("system"), str) and row["system"].strip() else []
    for pair in row.get("history") or []:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise BadRecord("bad_turn", "history is not a list of question-answer pairs")
        messages += [Message("user", pair[0]), Message("assistant", pair[1])]
    return join_turns([*messages, Message("user", question), Message("assistant", _text(row, "output"))])


def prompt_completion(row: Row) -> tuple[Message, ...]:
    """{"prompt": text or turns, "completion": text or turns}; also question/answer and prompt/response"""
    prompt = _first(row, ("prompt", "question", "query"))
    answer = _first(row, ("completion", "response", "answer"))
    system = [Message("system", row["system"])] if isinstance(row.get("system"), str) and row["system"].strip() else []
    return join_turns([*system, *_turns(prompt, "user", "prompt"), *_turns(answer, "assistant", "completion")])


def preference(row: Row) -> tuple[Message, ...]:
    """{"prompt"?, "chosen", "rejected"}: the chosen answer is trained; the row keeps both for preference tuning."""
    prompt = _turns(row["prompt"], "user", "prompt") if row.get("prompt") else []
    chosen, rejected = (_turns(row[key], "assistant", key) for key in ("chosen", "rejected"))
    if not rejected or not chosen:
        raise BadRecord("null_content", "chosen or rejected is empty")
    return join_turns([*prompt, *chosen])


def bare_text(row: Row) -> tuple[Message, ...]:
    """{"text": …}: one note; the scenario's note prompt is put before it later."""
    return (Message("assistant", _text(row, "text"), {"note": True}),)


SHAPES: tuple[Shape, ...] = (
    Shape("openai", ("messages",), openai_messages),
    Shape("sharegpt", ("conversations|conversation",), sharegpt),
    Shape("preference", ("chosen", "rejected"), preference),
    Shape("alpaca", ("instruction", "output"), alpaca),
    Shape("prompt_completion", ("prompt|question|query", "completion|response|answer"), prompt_completion),
    Shape("text", ("text",), bare_text),
)
"""In the order in which a row is tried."""


def _turns(value: Any, role: Role, where: str) -> list[Message]:
    if isinstance(value, list):
        return list(openai_messages({"messages": value})) if value else []
    if not isinstance(value, str):
        raise BadRecord("bad_turn", f"{where} is neither a text nor a list of turns")
    return [Message(role, value)]


def _first(row: Row, keys: tuple[str, ...]) -> Any:
    return next(row[key] for key in keys if key in row)


def _text(row: Row, key: str) -> str:
    if not isinstance(row[key], str):
        raise BadRecord("bad_turn" if row[key] is not None else "null_content", f"{key} is not a text")
    return row[key]
