"""Sizes from a GGUF's header; whatever the graph does not compute is refused by the name of its key."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from mobilefinetuner.compiler.model.shape import expected_tensors, read_shape
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile

SIZES = {
    "block_count": 2,
    "context_length": 128,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "vocab_size": 40,
}


def shapes(tied: bool = True) -> dict[str, tuple[int, ...]]:
    tensors = {"token_embd.weight": (40, 64), "output_norm.weight": (64,)} | ({} if tied else {"output.weight": (40, 64)})
    for layer in range(2):
        block = {
            "attn_norm": (64,),
            "attn_q": (64, 64),
            "attn_k": (32, 64),
            "attn_v": (32, 64),
            "attn_output": (64, 64),
            "ffn_norm": (64,),
            "ffn_gate": (96, 64),
            "ffn_up": (96, 64),
            "ffn_down": (64, 96),
        }
        tensors |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    return tensors


def write(path: Path, architecture: str = "llama", sizes: dict | None = None, tensors: dict | None = None, tokens: int = 40) -> GgufFile:
    """A model of zeros, written by the reference writer."""
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in {**SIZES, **(sizes or {})}.items():
        if value is None:
            continue
        add = {bool: writer.add_bool, float: writer.add_float32, str: writer.add_string, list: writer.add_array}.get(type(value), writer.add_uint32)
        add(f"{architecture}.{name}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_array("tokenizer.ggml.tokens", [f"t{index}" for index in range(tokens)])
    for name, shape in (tensors or shapes()).items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile.open(path)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "model.gguf"


def test_the_real_model_has_its_published_sizes(smollm2_path):
    """The published configuration of SmolLM2-135M-Instruct."""
    shape = read_shape(GgufFile.open(smollm2_path))
    assert (shape.layers, shape.d_model, shape.heads, shape.kv_heads, shape.head_dim) == (30, 576, 9, 3, 64)
    assert (shape.ffn, shape.vocab, shape.rope_base, shape.context_length) == (1536, 49152, 100000.0, 8192)
    assert shape.rms_eps == pytest.approx(1e-5, rel=1e-6)
    assert shape.tied_embedding and shape.head_tensor == "token_embd.weight"
    assert shape.tensor_types["blk.0.attn_q.weight"] == "Q4_1" and shape.tensor_types["token_embd.weight"] == "Q8_0"


def test_every_tensor_of_a_file_is_expected_and_every_expected_tensor_is_there(path):
    file = write(path, tensors=shapes(tied=False))
    shape = read_shape(file)
    assert expected_tensors(shape) == {name: info.shape for name, info in file.tensors.items()}
    assert not shape.tied_embedding and shape.head_tensor == "output.weight"


def test_sizes_that_a_file_may_leave_out_take_the_formats_defaults(path):
    tensors = {name: (64, 64) if ".attn_" in name and "norm" not in name else size for name, size in shapes().items()}
    shape = read_shape(write(path, sizes={"attention.head_count_kv": None, "vocab_size": None}, tensors=tensors))
    assert (shape.kv_heads, shape.vocab, shape.head_dim, shape.rope_base) == (4, 40, 16, 10000.0)


@pytest.mark.parametrize(
    "harmless",
    [{"rope.scaling.type": "none"}, {"rope.scaling.type": "linear", "rope.scaling.factor": 1.0}, {"expert_count": 0}, {"attention.causal": True}],
    ids=lambda fields: ",".join(fields),
)
def test_a_key_with_the_value_that_changes_nothing_is_accepted(path, harmless):
    assert read_shape(write(path, sizes=harmless)).layers == 2


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        pytest.param({"rope.scaling.type": "yarn"}, ["llama.rope.scaling.type", "'yarn'"], id="yarn"),
        pytest.param({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, ["llama.rope.scaling.factor"], id="scaled rope"),
        pytest.param({"expert_count": 8}, ["llama.expert_count", "allowed: 0"], id="experts"),
        pytest.param({"attention.sliding_window": 64}, ["llama.attention.sliding_window"], id="sliding window"),
        pytest.param({"attention.causal": False}, ["llama.attention.causal"], id="not causal"),
        pytest.param({"some.new_key": 1}, ["llama.some.new_key"], id="unknown key"),
        pytest.param({"rope.dimension_count": 8}, ["llama.rope.dimension_count", "16"], id="partial rope"),
        pytest.param({"attention.value_length": 32}, ["llama.attention.value_length"], id="values of another size"),
        pytest.param({"attention.head_count": 0}, ["llama.attention.head_count is 0"], id="no heads"),
        pytest.param({"attention.head_count": [4, 4]}, ["llama.attention.head_count is [4, 4]"], id="heads per layer"),
        pytest.param({"attention.head_count_kv": 3}, ["3 key heads"], id="key heads that do not divide"),
        pytest.param({"embedding_length": None}, ["llama.embedding_length is None"], id="size missing"),
        pytest.param({"block_count": 3}, ["blk.2.", "is missing (9 in all)"], id="layers missing"),
        pytest.param({"block_count": 1}, ["blk.1.", "is not implemented"], id="layers too many"),
        pytest.param({"feed_forward_length": 128}, ["ffn_gate.weight has the shape (96, 64)", "(128, 64)"], id="another width"),
        pytest.param({"rope.freq_base": 0.0}, ["llama.rope.freq_base is 0.0"], id="rope base"),
    ],
)
def test_what_the_graph_does_not_compute_is_refused_by_name(path, sizes, words):
    with pytest.raises(UserError) as caught:
        read_shape(write(path, sizes=sizes))
    assert str(caught.value).startswith(str(path))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["blk.0.attn_q.bias", "rope_freqs.weight", "blk.1.attn_q_norm.weight"])
def test_a_tensor_that_the_graph_does_not_read_is_refused_by_name(path, name):
    with pytest.raises(UserError, match=f"the tensor {name} is not implemented"):
        read_shape(write(path, tensors={**shapes(), name: (64,)}))


def test_another_architecture_is_refused_with_the_list_of_those_there_are(path):
    with pytest.raises(UserError, match="'falcon' is not implemented; allowed: llama"):
        read_shape(write(path, architecture="falcon"))


def test_a_vocabulary_of_another_size_than_the_embedding_is_refused(path):
    with pytest.raises(UserError, match="41 tokens in the vocabulary; allowed: 40"):
        read_shape(write(path, tokens=41))
