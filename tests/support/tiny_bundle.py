"""A whole model small enough to compile in seconds: random llama weights, a byte-level BPE vocabulary, a ChatML template.

In:  a path and the sizes.
Out: a GGUF file written by the gguf package (not by us), and the bundle that the compiler makes of it.
The vocabulary is trained on the shipped customer-service sample, so that its conversations take few tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from mobilefinetuner.runtime.versions.version_block import RESERVED_KEY, reserved_field
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.support.bundle_cache import compiled

ROOT = Path(__file__).parents[2]
CHAT_TEMPLATE = Path(__file__).parent.parent / "cases" / "chat_templates" / "chatml_default_system.jinja"
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
NORMAL, CONTROL = 1, 3
TINY_BUCKETS = ("1x32", "1x64", "2x32")


@dataclass(frozen=True)
class TinySizes:
    """Sizes of a random model; the defaults have two query heads per key-value head and two layers."""

    layers: int = 2
    d_model: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 128
    vocab: int = 512
    context: int = 256
    tied: bool = True
    projections: str = "Q4_1"
    """GGUF type of the projections"""
    embedding: str = "Q8_0"
    """GGUF type of the embedding and of the head"""
    alignment: int = 64
    """of the tensors' data, in bytes"""
    seed: int = 0


def write_tiny_model(path: Path, sizes: TinySizes = TinySizes()) -> Path:
    """Write the GGUF and return its path."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_custom_alignment(sizes.alignment)
    _add_sizes(writer, sizes)
    _add_tokenizer(writer, sizes.vocab)
    writer.add_string(RESERVED_KEY, reserved_field().value)
    for name, values, kind in _tensors(sizes):
        quantized = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, _quantized(values, quantized), raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _quantized(values: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """values [N,K] f32 → [N, row bytes] u8; for Q4_K and Q5_K, which the gguf package only reads, random blocks of the same spread."""
    if not kind.name.endswith("_K"):
        return gguf.quantize(values, kind)
    n_values, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(len(values))
    raw = rng.integers(0, 256, (len(values), values.shape[1] // n_values, n_bytes), dtype=np.uint8)
    raw[..., :4] = np.array([1e-4, 1e-4], np.float16).view(np.uint8)  # d and dmin
    unit = gguf.dequantize(raw.reshape(len(values), -1), kind).std()
    raw[..., :4] = np.full(2, 1e-4 * values.std() / unit, np.float16).view(np.uint8)
    return raw.reshape(len(values), -1)


def compile_tiny_bundle(out: Path, model: Path, *overrides: str) -> Path:
    """The bundle of a tiny model for this machine, from the cache; overrides as `mft compile` takes them, later ones win."""
    return compiled(out, *tiny_overrides(model), *overrides)


def tiny_overrides(model: Path) -> tuple[str, ...]:
    """The settings of a tiny model's bundle, as `mft compile` takes them."""
    return (
        "model=gguf_file", "model.name=tiny", f'model.source.path="{model}"', f"train.buckets=[{','.join(TINY_BUCKETS)}]", "train.rank=4",
        "train.head_chunk_tokens=16", "scenario.window_tokens=64", "scenario.decode_tokens=32", "scenario.system_prompt=Shop.",
    )  # fmt: skip


def _add_sizes(writer: gguf.GGUFWriter, sizes: TinySizes) -> None:
    writer.add_name("tiny")
    writer.add_block_count(sizes.layers)
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.d_model)
    writer.add_feed_forward_length(sizes.ffn)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_key_length(sizes.head_dim)
    writer.add_value_length(sizes.head_dim)
    writer.add_rope_dimension_count(sizes.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(sizes.vocab)


def _add_tokenizer(writer: gguf.GGUFWriter, size: int) -> None:
    tokens, merges = _vocabulary(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in CONTROL_TOKENS else NORMAL for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|im_end|>"))
    writer.add_chat_template(CHAT_TEMPLATE.read_text(encoding="utf-8"))


def _vocabulary(size: int) -> tuple[list[str], list[str]]:
    """(tokens by id, merges) of a byte-level BPE with exactly `size` entries, trained on the shipped sample."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(CONTROL_TOKENS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    sample = (ROOT / "templates" / "customer_service" / "sample.jsonl").read_text(encoding="utf-8")
    texts = [message["content"] for line in sample.splitlines() for message in json.loads(line)["messages"]]
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    if len(model["vocab"]) != size:
        raise ValueError(f"the sample gives {len(model['vocab'])} tokens, not {size}")
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in model["merges"]]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), merges


def _tensors(sizes: TinySizes) -> Iterator[tuple[str, np.ndarray, str]]:
    """(name, values [outputs, inputs], GGUF type), values of the size that keeps activations near 1."""
    rng = np.random.default_rng(sizes.seed)
    q, kv, d, f = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim, sizes.d_model, sizes.ffn

    def matrix(n: int, k: int) -> np.ndarray:
        return rng.normal(0, k**-0.5, (n, k)).astype(np.float32)

    def norm() -> np.ndarray:
        return rng.uniform(0.5, 1.5, d).astype(np.float32)

    yield "token_embd.weight", matrix(sizes.vocab, d), sizes.embedding
    if not sizes.tied:
        yield "output.weight", matrix(sizes.vocab, d), sizes.embedding
    yield "output_norm.weight", norm(), "F32"
    shapes = {
        "attn_q": (q, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, q), "ffn_gate": (f, d), "ffn_up": (f, d), "ffn_down": (d, f),
    }  # fmt: skip
    for layer in range(sizes.layers):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", norm(), "F32"
        for name, shape in shapes.items():
            yield f"blk.{layer}.{name}.weight", matrix(*shape), sizes.projections
