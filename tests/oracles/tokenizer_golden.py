"""Make tests/cases/tokenizer/smollm2_golden.jsonl: strings and the token ids that others give them.

    python -m tests.oracles.tokenizer_golden MODEL.gguf

Two witnesses, neither of them ours, must agree on every string before it is written:
transformers, which loads vocabulary, merges and control tokens from the GGUF, with the pre-tokenizer of SmolLM2's published
tokenizer.json (transformers' GGUF loader leaves the digits together, which contradicts that file and llama.cpp); and the
byte-pair algorithm as published with GPT-2, in plain Python, on the pieces of llama.cpp's two regular expressions for
"smollm".
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import regex
import tokenizers
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.integrations.gguf import get_gguf_tokenizer

from tests.oracles.tokenizer_corpus import CASES, corpus

GPT2_PIECES = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def transformers_tokenizer(path: Path):
    """SmolLM2's tokenizer as transformers has it, digits apart as its publisher has it."""
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    tokenizer.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(individual_digits=True), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


class PlainBytePairs:
    """GPT-2's algorithm without any library's help."""

    def __init__(self, path: Path) -> None:
        _, fields, _ = get_gguf_tokenizer(str(path))
        self.ids = {token: index for index, token in enumerate(fields["tokens"])}
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(fields["merges"])}
        control = [token for token, kind in zip(fields["tokens"], fields["token_type"]) if kind == 3]
        self.control = regex.compile("(" + "|".join(map(regex.escape, sorted(control, key=len, reverse=True))) + ")")
        self.spelling = bytes_to_unicode()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for index, part in enumerate(self.control.split(text)):
            ids += [self.ids[part]] if index % 2 else self._plain(part)
        return ids

    def _plain(self, text: str) -> list[int]:
        stretches = regex.split(r"(\p{N})", text)
        pieces = [piece for stretch in stretches for piece in GPT2_PIECES.findall(stretch)]
        words = (self._merge([self.spelling[byte] for byte in piece.encode()]) for piece in pieces)
        return [self.ids[token] for word in words for token in word if token in self.ids]

    def _merge(self, word: list[str]) -> list[str]:
        while len(word) > 1:
            pairs = list(itertools.pairwise(word))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            merged, index = [], 0
            while index < len(word):
                if tuple(word[index : index + 2]) == best:
                    merged.append(word[index] + word[index + 1])
                    index += 2
                else:
                    merged.append(word[index])
                    index += 1
            word = merged
        return word


def main() -> None:
    path = Path(sys.argv[1])
    reference, plain = transformers_tokenizer(path), PlainBytePairs(path)
    lines, disagreements = [], []
    for kind, text in corpus():
        ids = reference(text, add_special_tokens=False).input_ids
        if ids != plain.encode(text):
            disagreements.append((kind, text))
        lines.append(json.dumps({"kind": kind, "text": text, "ids": ids}, ensure_ascii=True, separators=(",", ":")))
    if disagreements:
        sys.exit(f"the witnesses disagree on {len(disagreements)} strings, first {disagreements[:5]!r}")
    (CASES / "smollm2_golden.jsonl").write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")
    print(f"{len(lines)} strings")


if __name__ == "__main__":
    main()
