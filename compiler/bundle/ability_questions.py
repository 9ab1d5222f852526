"""The base-ability questions that a bundle can use: valid, renderable by its chat template, short enough for its buckets.

In:  base_ability.jsonl of the scenario's own folder or the one shared by all scenarios; the bundle's tokenizer and chat format.
Out: the file's content for the bundle, and the ids of the questions that were left out because they are too long.
The phone scores a question in one pass, so one that is longer than the longest bucket could never be scored there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ...runtime.bundle.chat_format import ChatFormat
from ...runtime.bundle.tokenizer import Tokenizer
from ...runtime.plain_data import plain
from ...runtime.verify.ability import Question, encode_choice, load_questions

FILE_NAME = "base_ability.jsonl"


@dataclass(frozen=True)
class BundledQuestions:
    """What goes into the bundle."""

    content: bytes
    """empty when no question fits"""
    left_out: tuple[str, ...]


def bundled_questions(path: Path, tokenizer: Tokenizer, chat: ChatFormat, longest_tokens: int) -> BundledQuestions:
    """UserError for a bad row, or one whose order of turns the chat template does not allow."""
    questions = load_questions(path)
    fits = {question.id: _tokens(question, tokenizer, chat) <= longest_tokens for question in questions}
    lines = (_line(question) for question in questions if fits[question.id])
    return BundledQuestions("".join(lines).encode(), tuple(name for name, fit in fits.items() if not fit))


def _tokens(question: Question, tokenizer: Tokenizer, chat: ChatFormat) -> int:
    return max(len(encode_choice(tokenizer, chat, question, choice).token_ids) for choice in question.choices)


def _line(question: Question) -> str:
    return json.dumps(plain(question), ensure_ascii=False, separators=(",", ":")) + "\n"
