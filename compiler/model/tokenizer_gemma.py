"""Gemma's sentencepiece vocabulary as the parts of a tokenizer.json.

In:  the tokens of a GGUF whose tokenizer is `llama` and whose architecture is one of Gemma's.
Out: vocabulary, merges and the steps around them.
The file has no merges: they are every way to cut a token into two tokens, the tokens in the order of the file, because
Gemma's scores do not follow its merge order. Runs of blanks are stored as blanks but looked up as U+2581 like every other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ARCHITECTURES = ("gemma", "gemma2", "gemma3")
_BLANK = "\u2581"


def gemma_spelling(tokens: Sequence[str]) -> list[str]:
    """The tokens as the merges spell them."""
    return [_BLANK * len(token) if token and not token.strip(" ") else token for token in tokens]


def gemma_merges(vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Pairs in order of rank: by the merged token's place, then the longer left part first."""
    merges: list[tuple[str, str]] = []
    for token in vocabulary:
        for cut in range(len(token) - 1, 0, -1):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((left, right))
    return merges


def gemma_steps() -> dict[str, Any]:
    """What stands around the model in tokenizer.json: no blank is put in front of a text."""
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _BLANK},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "decoder": {
            "type": "Sequence",
            "decoders": [{"type": "Replace", "pattern": {"String": _BLANK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}],
        },
    }
