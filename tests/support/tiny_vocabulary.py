"""A byte-level vocabulary small enough to read: all bytes, a few merges, and the control tokens a test asks for."""

from __future__ import annotations

from typing import Any

from gguf.vocab import bytes_to_unicode

MERGES = ("Ġ t", "h e", "Ġt he", "i n", "Ċ Ċ", "1 2", "12 3")


def tiny_metadata(control: tuple[str, ...] = (), user_defined: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """GGUF tokenizer metadata; `fields` are set under tokenizer.ggml. (chat_template under tokenizer.)."""
    tokens = [*control, *user_defined, *bytes_to_unicode().values()]
    tokens += [merge.replace(" ", "") for merge in MERGES]
    types = [3] * len(control) + [4] * len(user_defined)
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types + [1] * (len(tokens) - len(types)),
        "tokenizer.ggml.merges": list(MERGES),
    }
    for name, value in fields.items():
        metadata[f"tokenizer.{'' if name == 'chat_template' else 'ggml.'}{name}"] = value
    return metadata
