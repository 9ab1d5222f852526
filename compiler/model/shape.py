"""What the compiler must know of a model: its sizes, read from the GGUF's header and checked against its tensors.

In:  an opened GgufFile.
Out: ModelShape.
Everything that could change the arithmetic and is not implemented is refused by name: a metadata key that is not in the lists
below, a bias, a scaled rotary embedding. In a GGUF of architecture `llama` the rows of attn_q and attn_k are ordered for
rotary pairs that lie side by side (2i, 2i+1), not half a head apart as in Hugging Face's checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...runtime.bundle.plan import block_weight
from ...runtime.errors import UserError
from ...runtime.gguf.file import GgufFile

ARCHITECTURES = ("llama",)
NORM_TYPES = ("F32", "F16", "BF16")
"""of the norms' gains; they are F32 in the bundle"""

_USED_KEYS = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "vocab_size",
}
_NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "logit_scale": (0.0, 1.0),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scaling.finetuned": (False,),
    "rope.scaling.type": ("none", "linear"),
}
"""Keys that a converter may write although they change nothing, with the values that change nothing (a linear scaling does
so with the factor 1, and the factor has its own line)."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only transformer."""

    architecture: str
    name: str
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """inner width of the gated feed-forward layer"""
    vocab: int
    rope_base: float
    rms_eps: float
    context_length: int
    """longest text the model was trained on, in tokens"""
    tied_embedding: bool
    """whether token_embd.weight is the output head as well"""
    tensor_types: Mapping[str, str]
    """GGUF type of each tensor, by the tensor's name"""

    @property
    def head_tensor(self) -> str:
        """The tensor that turns the last hidden state into logits."""
        return "token_embd.weight" if self.tied_embedding else "output.weight"


def read_shape(gguf: GgufFile) -> ModelShape:
    """ModelShape of the file. UserError names the first thing that is missing, contradictory or not implemented."""
    where = str(gguf.path)
    architecture = gguf.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UserError(where, f"architecture {architecture!r} is not implemented", ", ".join(ARCHITECTURES), "a model of one of these")
    _refuse_unknown_keys(gguf.metadata, architecture, where)
    shape = _shape_from_metadata(gguf, architecture, where)
    _check_tensors(gguf, shape, where)
    return shape


def expected_tensors(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model with its shape, row-major: a projection is [outputs, inputs]."""
    d, q, kv = shape.d_model, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (shape.vocab, d), "output_norm.weight": (d,)}
    if not shape.tied_embedding:
        tensors["output.weight"] = (shape.vocab, d)
    block = {
        "attn_norm": (d,),
        "attn_q": (q, d),
        "attn_k": (kv, d),
        "attn_v": (kv, d),
        "attn_output": (d, q),
        "ffn_norm": (d,),
        "ffn_gate": (shape.ffn, d),
        "ffn_up": (shape.ffn, d),
        "ffn_down": (d, shape.ffn),
    }
    for layer in range(shape.layers):
        tensors |= {block_weight(layer, name): size for name, size in block.items()}
    return tensors


def _refuse_unknown_keys(metadata: Mapping[str, Any], architecture: str, where: str) -> None:
    for key, value in metadata.items():
        name = key.removeprefix(f"{architecture}.")
        if name == key or name in _USED_KEYS:
            continue
        if name not in _NEUTRAL_VALUES:
            raise UserError(where, f"{key} = {value!r} is not implemented", "models without this key")
        if value not in _NEUTRAL_VALUES[name]:
            allowed = " or ".join(map(repr, _NEUTRAL_VALUES[name]))
            raise UserError(where, f"{key} = {value!r} is not implemented", allowed)


def _shape_from_metadata(gguf: GgufFile, architecture: str, where: str) -> ModelShape:
    metadata = gguf.metadata

    def number(name: str, kind: type = int, default: Any = None) -> Any:
        value = metadata.get(f"{architecture}.{name}", default)
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not value > 0:
            raise UserError(where, f"{architecture}.{name} is {value!r}", f"a positive {kind.__name__}", "fetch the model file again")
        return kind(value)

    d_model, heads = number("embedding_length"), number("attention.head_count")
    head_dim = number("attention.key_length", default=d_model // heads)
    embedding = gguf.tensors.get("token_embd.weight")
    tied = "output.weight" not in gguf.tensors
    shape = ModelShape(
        architecture=architecture,
        name=str(metadata.get("general.name", "")),
        layers=number("block_count"),
        d_model=d_model,
        heads=heads,
        kv_heads=number("attention.head_count_kv", default=heads),
        head_dim=head_dim,
        ffn=number("feed_forward_length"),
        vocab=number("vocab_size", default=embedding.shape[0] if embedding and embedding.shape else None),
        rope_base=number("rope.freq_base", float, default=10000.0),
        rms_eps=number("attention.layer_norm_rms_epsilon", float),
        context_length=number("context_length"),
        tied_embedding=tied,
        tensor_types={name: info.type_name for name, info in gguf.tensors.items()},
    )
    for name in ("attention.value_length", "rope.dimension_count"):
        if number(name, default=head_dim) != head_dim:
            raise UserError(where, f"{architecture}.{name} = {number(name)} is not implemented", f"{head_dim}, the size of a head")
    if shape.heads % shape.kv_heads or shape.head_dim % 2:
        raise UserError(
            where, f"{shape.heads} heads of {shape.head_dim} on {shape.kv_heads} key heads", "key heads that divide the heads, heads of even size"
        )
    return shape


def _check_tensors(gguf: GgufFile, shape: ModelShape, where: str) -> None:
    expected = expected_tensors(shape)
    for name, info in gguf.tensors.items():
        if name not in expected:
            raise UserError(where, f"the tensor {name} is not implemented for {shape.architecture}", "models without it")
        if tuple(info.shape) != expected[name]:
            raise UserError(where, f"{name} has the shape {tuple(info.shape)}", f"{expected[name]}", "fetch the model file again")
        if name.endswith("norm.weight") and info.type_name not in NORM_TYPES:
            raise UserError(where, f"{name} is of type {info.type_name}", ", ".join(NORM_TYPES))
    missing = [name for name in expected if name not in gguf.tensors]
    if missing:
        raise UserError(where, f"the tensor {missing[0]} is missing ({len(missing)} in all)", remedy="fetch the model file again")
    vocabulary = gguf.metadata.get("tokenizer.ggml.tokens")
    if vocabulary is not None and len(vocabulary) != shape.vocab:
        raise UserError(where, f"{len(vocabulary)} tokens in the vocabulary", f"{shape.vocab}, the rows of the embedding")
