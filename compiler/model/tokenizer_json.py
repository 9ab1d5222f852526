"""A GGUF file's own vocabulary as tokenizer.json for the `tokenizers` library.

In:  GGUF metadata (tokenizer.ggml.*).
Out: the bytes of tokenizer.json, the same for the same metadata, and the ids of the control tokens.
A GGUF names its pre-tokenizer but does not contain it: the table PRE_TOKENIZERS holds those whose definition in the
publishers' tokenizer.json is known, and every other name is refused, because a wrong split trains without an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...runtime.errors import UserError
from .tokenizer_gemma import ARCHITECTURES as GEMMA_ARCHITECTURES
from .tokenizer_gemma import gemma_merges, gemma_spelling, gemma_steps

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4

_LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class PreTokenizer:
    """How text is cut before the merges apply."""

    steps: tuple[Mapping[str, Any], ...]
    """Entries of a tokenizer.json pre-tokenizer sequence."""
    normalizer: Mapping[str, Any] | None = None
    ignore_merges: bool = False
    """Whether a whole piece that is a token stays one, whatever the merges say."""
    add_bos: bool = False
    """Whether text begins with the BOS token when the file does not say."""


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_GPT2 = PreTokenizer((_byte_level(use_regex=True),))
_DIGITS_GPT2 = PreTokenizer(({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)))
_LLAMA3 = PreTokenizer((_split(_LLAMA3_SPLIT), _byte_level(use_regex=False)), ignore_merges=True, add_bos=True)
_QWEN2 = PreTokenizer((_split(_QWEN2_SPLIT), _byte_level(use_regex=False)), normalizer={"type": "NFC"})

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": _GPT2,
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "phi-2": _GPT2,
    "qwen2": _QWEN2,
    "refact": _DIGITS_GPT2,
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
}
"""By tokenizer.ggml.pre."""


@dataclass(frozen=True)
class ControlTokens:
    """The ids that the GGUF gives a meaning."""

    bos_id: int | None
    eos_id: int | None
    end_of_turn_ids: tuple[int, ...]
    """eot and eom, where the file names them"""
    add_bos: bool
    """Whether every text begins with BOS."""
    texts: tuple[str, ...]
    """All control tokens as written."""


def tokenizer_json(metadata: Mapping[str, Any], where: str) -> bytes:
    """tokenizer.json of the vocabulary in `metadata`; `where` names the file in errors.

    UserError for a vocabulary that is absent, damaged, or of a kind or pre-tokenizer that is not known.
    """
    tokens = _tokens(metadata, where)
    types = _token_types(metadata, len(tokens), where)
    parts = _gemma_parts(metadata, tokens, where) if _is_gemma(metadata) else _byte_level_parts(metadata, tokens, where)
    model = {"type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, **parts.pop("model")}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, types, model["vocab"]),
        "post_processor": None,
        **parts,
        "model": model,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _byte_level_parts(metadata: Mapping[str, Any], tokens: Sequence[str], where: str) -> dict[str, Any]:
    pre = _pre_tokenizer(metadata, where)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return {
        "normalizer": pre.normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(pre.steps)},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "unk_token": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre.ignore_merges,
            "vocab": vocabulary,
            "merges": _merges(metadata, vocabulary, where),
        },
    }


def _gemma_parts(metadata: Mapping[str, Any], tokens: Sequence[str], where: str) -> dict[str, Any]:
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", -1)
    if metadata.get("tokenizer.ggml.add_space_prefix", True) is not False or not 0 <= unknown < len(tokens):
        raise UserError(where, "is no Gemma vocabulary: it has no unknown token, or puts a blank in front of every text")
    vocabulary = {token: index for index, token in enumerate(gemma_spelling(tokens))}
    if len(vocabulary) != len(tokens):
        raise UserError(where, "the vocabulary has a run of blanks twice", remedy="fetch the model file again")
    model = {"unk_token": tokens[unknown], "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    return {**gemma_steps(), "model": {**model, "vocab": vocabulary, "merges": gemma_merges(vocabulary)}}


def control_tokens(metadata: Mapping[str, Any], where: str) -> ControlTokens:
    """Which ids begin and end a text, and whether BOS is expected."""
    tokens = _tokens(metadata, where)
    types = _token_types(metadata, len(tokens), where)

    def token_id(name: str) -> int | None:
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if index is not None and not 0 <= index < len(tokens):
            raise UserError(where, f"tokenizer.ggml.{name}_token_id is {index}", allowed=f"0 to {len(tokens) - 1}")
        return index

    bos_id = token_id("bos")
    add_bos = metadata.get("tokenizer.ggml.add_bos_token")
    if add_bos is None:
        add_bos = _is_gemma(metadata) or _pre_tokenizer(metadata, where).add_bos
    if add_bos and bos_id is None:
        raise UserError(where, "wants a BOS token before every text but names none (tokenizer.ggml.bos_token_id)")
    return ControlTokens(
        bos_id=bos_id,
        eos_id=token_id("eos"),
        end_of_turn_ids=tuple(index for index in (token_id("eot"), token_id("eom")) if index is not None),
        add_bos=bool(add_bos),
        texts=tuple(token for token, kind in zip(tokens, types) if kind == _CONTROL),
    )


def _pre_tokenizer(metadata: Mapping[str, Any], where: str) -> PreTokenizer:
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise UserError(
            where,
            f"tokenizer.ggml.model is {kind!r} in a model of architecture {metadata.get('general.architecture')!r}",
            allowed=f"gpt2 (byte-level BPE), or llama in {', '.join(GEMMA_ARCHITECTURES)}",
            remedy="a model with one of these tokenizers",
        )
    name = metadata.get("tokenizer.ggml.pre")
    if name not in PRE_TOKENIZERS:
        raise UserError(
            where,
            f"tokenizer.ggml.pre is {name!r}, whose way to split text is not known here",
            allowed=", ".join(sorted(PRE_TOKENIZERS)),
            remedy="a model with one of these tokenizers",
        )
    return PRE_TOKENIZERS[str(name)]


def _tokens(metadata: Mapping[str, Any], where: str) -> Sequence[str]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, (list, tuple)) or not tokens:
        raise UserError(where, "has no vocabulary (tokenizer.ggml.tokens)", remedy="fetch the model file again")
    if len(set(tokens)) != len(tokens):
        twice = next(token for index, token in enumerate(tokens) if tokens.index(token) != index)
        raise UserError(where, f"the vocabulary has the token {twice!r} twice", remedy="fetch the model file again")
    return tokens


def _token_types(metadata: Mapping[str, Any], count: int, where: str) -> Sequence[int]:
    types = metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [_NORMAL] * count
    if len(types) != count:
        raise UserError(where, f"{count} tokens but {len(types)} token types", remedy="fetch the model file again")
    return types


def _is_gemma(metadata: Mapping[str, Any]) -> bool:
    return metadata.get("tokenizer.ggml.model") == "llama" and metadata.get("general.architecture") in GEMMA_ARCHITECTURES


def _added_tokens(tokens: Sequence[str], types: Sequence[int], vocabulary: Mapping[str, int]) -> list[dict[str, Any]]:
    """Tokens that are matched in the text before anything else: control tokens, and those their publisher added whole.

    One that the vocabulary spells otherwise (Gemma's runs of blanks) is reached through the merges and not here.
    """
    return [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind != _USER_DEFINED,
        }
        for index, (token, kind) in enumerate(zip(tokens, types))
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) and token in vocabulary
    ]


def _merges(metadata: Mapping[str, Any], vocabulary: Mapping[str, int], where: str) -> list[tuple[str, str]]:
    """Pairs in order of rank. The blank that parts a pair is never its first character."""
    merges: list[tuple[str, str]] = []
    for rank, merge in enumerate(metadata.get("tokenizer.ggml.merges", ())):
        at = merge.find(" ", 1)
        left, right = merge[:at], merge[at + 1 :]
        if at < 0 or not {left, right, left + right} <= vocabulary.keys():
            raise UserError(where, f"merge {rank} ({merge!r}) is not made of tokens of the vocabulary", remedy="fetch the model file again")
        merges.append((left, right))
    if not merges:
        raise UserError(where, "has no merges (tokenizer.ggml.merges)", remedy="fetch the model file again")
    return merges
