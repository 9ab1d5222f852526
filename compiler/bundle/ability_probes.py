"""The base-ability probes that a bundle can use: valid, renderable by its chat template, short enough for its buckets.

In:  base_ability.jsonl of the scenario's own folder or the one shared by all scenarios; the bundle's tokenizer and chat format.
Out: the file's content for the bundle, and the ids of the probes that were left out because they are too long.
The phone scores a probe in one pass, so one that is longer than the longest bucket could never be scored there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ...runtime.bundle.chat_format import ChatFormat
from ...runtime.bundle.tokenizer import Tokenizer
from ...runtime.plain_data import plain
from ...runtime.verify.ability import Probe, encode_choice, load_probes

FILE_NAME = "base_ability.jsonl"


@dataclass(frozen=True)
class BundledProbes:
    """What goes into the bundle."""

    content: bytes
    """empty when no probe fits"""
    left_out: tuple[str, ...]


def bundled_probes(path: Path, tokenizer: Tokenizer, chat: ChatFormat, longest_tokens: int) -> BundledProbes:
    """UserError for a bad row, or one whose order of turns the chat template does not allow."""
    probes = load_probes(path)
    fits = {probe.id: _tokens(probe, tokenizer, chat) <= longest_tokens for probe in probes}
    lines = (_line(probe) for probe in probes if fits[probe.id])
    return BundledProbes("".join(lines).encode(), tuple(name for name, fit in fits.items() if not fit))


def _tokens(probe: Probe, tokenizer: Tokenizer, chat: ChatFormat) -> int:
    return max(len(encode_choice(tokenizer, chat, probe, choice).token_ids) for choice in probe.choices)


def _line(probe: Probe) -> str:
    return json.dumps(plain(probe), ensure_ascii=False, separators=(",", ":")) + "\n"
