"""A byte-level tokenizer, a ChatML format and a scenario, small enough to count tokens by hand.

Every byte is a token; the control tokens are one token each. So lengths in these tests are byte counts.
"""

from __future__ import annotations

import json
from typing import Any

from mobilefinetuner.runtime.bundle.chat_format import ChatFormat
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.data.scenario import Scenario

START, END = "<|im_start|>", "<|im_end|>"


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in byte-level vocabularies, in the order of the bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def byte_tokenizer(merges: tuple[tuple[str, str], ...] = ()) -> Tokenizer:
    alphabet = byte_alphabet()
    tokens = [*alphabet, *("".join(pair) for pair in merges)]
    control = [
        {"id": len(tokens) + n, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for n, text in enumerate((START, END))
    ]
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": control,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: n for n, token in enumerate(tokens)},
            "merges": [" ".join(pair) for pair in merges],
        },
    }
    return Tokenizer.from_json(json.dumps(document).encode())


def chatml(roles: tuple[str, ...] = ("system", "user", "assistant", "tool"), alternating: bool = False) -> ChatFormat:
    """ChatML; `alternating` refuses two turns of one role in a row and an assistant turn at the beginning."""

    def begin(role: str) -> str:
        return f"{START}{'assistant' if role in ('last_assistant', 'generate') else role}\n"

    slots = [*roles, "last_assistant"]
    between: dict[str, dict[str, str]] = {"start": {role: begin(role) for role in slots}}
    for role in roles:
        between[role] = {after: f"{END}\n{begin(after)}" for after in [*slots, "generate"]} | {"end": f"{END}\n"}
    between["last_assistant"] = {"end": f"{END}\n", "generate": f"{END}\n{begin('generate')}"}
    if alternating:
        for role in roles:
            between[role].pop(role, None)
        between["assistant"].pop("last_assistant", None)
        for before in ("start", "system"):
            between.get(before, {}).pop("assistant", None)
            between.get(before, {}).pop("last_assistant", None)
    end_id = byte_tokenizer().special_tokens[END]
    rules = {role: "keep" for role in slots}
    return ChatFormat.from_dict(
        {
            "between": between,
            "text_rules": rules,
            "assistant_start": "",
            "assistant_end": END,
            "stop_token_ids": [end_id],
            "bos_token_id": None,
            "default_system": None,
            "reserved_texts": [],
            "pinned_date": None,
        }
    )


def scenario(window_tokens: int = 512, rules: dict[str, Any] | None = None, **settings: Any) -> Scenario:
    document = {"name": "test", "system_prompt": "", "window_tokens": window_tokens, "chat": chatml().to_dict(), "rules": rules or {}, **settings}
    return Scenario.from_json(document)
