"""Replay: what the base itself says to general questions, trained on beside the owner's data so that the model does not forget.

In:  replay.jsonl of a bundle, the chat format, the scenario's system prompt.
Out: samples: each conversation once without and once with that system prompt.
Under the prompt as well, or a tuned model takes every question it is asked there for one about the owner's data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ..bundle.chat_format import ChatFormat, EncodedConversation
from ..bundle.tokenizer import Tokenizer
from ..engine.packing import Tokens, label_count
from ..errors import UserError
from ..message import Message

FILE_NAME = "replay.jsonl"
ReplayLoss = Literal["kl", "next_token"]


@dataclass(frozen=True)
class ReplaySettings:
    """How a run replays."""

    rows: int
    """of each step; 0: no replay"""
    loss: ReplayLoss
    weight: float
    """of the replay rows' mean loss beside the mean loss of the owner's rows"""


def replay_rows(batch_samples: int, share: float) -> int:
    """Rows that are `share` of a step together with batch_samples rows of the owner's data."""
    return round(batch_samples * share / (1 - share))


def load_conversations(path: Path) -> list[tuple[Message, ...]]:
    """The conversations of the file. UserError that names the line for whatever is wrong."""
    conversations = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            messages = tuple(Message(m["role"], m["content"]) for m in json.loads(line)["messages"])
            if len(messages) < 2 or messages[-1].role != "assistant":
                raise ValueError("the last turn is not the assistant's")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path.name} line {number}", f"is no conversation ({error})", remedy="compile the bundle again") from None
        conversations.append(messages)
    return conversations


def replay_samples(
    conversations: Sequence[Sequence[Message]], tokenizer: Tokenizer, chat: ChatFormat, system_prompt: str, loss: ReplayLoss
) -> list[Tokens]:
    """The conversations as token ids, whole. With loss kl every token is labelled, the question's as well: the base has an opinion on each."""
    prompts = (None, system_prompt) if system_prompt and chat.supports_system else (None,)
    encoded = [chat.encode(tokenizer, messages, default_system=prompt) for messages in conversations for prompt in prompts]
    return [EncodedConversation(e.token_ids, np.ones_like(e.label_mask)) if loss == "kl" else e for e in encoded]


def cut_to_width(samples: Sequence[Tokens], width: int) -> list[Tokens]:
    """The first `width` tokens of each, without those that then have none to learn; UserError when nothing is left."""
    cut = [EncodedConversation(sample.token_ids[:width], sample.label_mask[:width]) for sample in samples]
    usable: list[Tokens] = [sample for sample in cut if label_count(sample)]
    if not usable:
        raise UserError(
            FILE_NAME, f"holds no conversation with a token to learn among its first {width}", remedy="train.replay_loss=kl, or longer train.buckets"
        )
    return usable
