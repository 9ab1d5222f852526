"""Merging, against the gguf package's own dequantization."""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile, TensorSource, write_gguf
from mobilefinetuner.runtime.gguf.types import Field
from mobilefinetuner.runtime.storage.durable import FileLayer, sha256_of_file, use_layer
from mobilefinetuner.runtime.versions.merge import merge_version
from mobilefinetuner.runtime.versions.version_block import (
    RESERVED_KEY,
    VersionBlock,
    payload_is_intact,
    read_version_block,
    reserved_field,
)

gguf = pytest.importorskip("gguf")

N, K, RANK = 48, 128, 4
BLOCK = VersionBlock(
    id="v0001",
    parent="base",
    base_id="smollm2_135m-customer_service",
    base_sha256="a" * 64,
    data_fingerprint="b" * 64,
    steps=96,
    recipe_sha256="c" * 64,
    created_utc="2026-01-31T12:00:00Z",
    tool="mobilefinetuner 0.1.0",
)


def dequantized(model: GgufFile, name: str) -> np.ndarray:
    info = model.tensors[name]
    raw = np.array(model.data(name)).reshape(*info.shape[:-1], -1)
    return gguf.dequantize(raw, gguf.GGMLQuantizationType[info.type_name]).reshape(info.shape)


def make_base(path, reserve: bool = True) -> GgufFile:
    """A small model with every type that a merge meets; the Q5_1 blocks are the reference's."""
    rng = np.random.default_rng(1)
    types = {
        "token_embd.weight": "Q8_0",
        "blk.0.attn_q.weight": "Q4_1",
        "blk.0.ffn_down.weight": "Q5_1",
        "blk.0.attn_v.weight": "Q4_0",
        "blk.0.attn_k.weight": "F16",
        "output.weight": "Q6_K",
    }
    sources = []
    for name, type_name in types.items():
        k = 256 if type_name == "Q6_K" else K
        if type_name == "Q6_K":
            raw = rng.integers(0, 50, (N, 210), dtype=np.uint8)
        else:
            raw = gguf.quantize(rng.normal(size=(N, k)).astype(np.float32), gguf.GGMLQuantizationType[type_name])
        sources.append(TensorSource(name, (N, k), type_name, lambda raw=raw: raw))
    norm = rng.normal(size=K).astype(np.float32)
    sources.append(TensorSource("output_norm.weight", (K,), "F32", lambda: norm))
    fields = {"general.architecture": Field("str", "llama"), "general.file_type": Field("u32", 3), "tokenizer.ggml.tokens": Field("str", ("a", "b"))}
    if reserve:
        fields[RESERVED_KEY] = reserved_field()
    write_gguf(path, fields, sources)
    return GgufFile.open(path)


def make_adapter(kind: str, names, scale: float = 0.5, size: float = 0.05, seed: int = 2) -> AdapterTensors:
    rng = np.random.default_rng(seed)
    columns = K // 32 if kind == "grouped" else K
    return AdapterTensors(
        kind,
        scale,
        {name: ((size * rng.normal(size=(RANK, columns))).astype(np.float32), rng.normal(size=(N, RANK)).astype(np.float32)) for name in names},
    )


FOLDED = ("blk.0.attn_q.weight", "blk.0.ffn_down.weight")


def test_folding_adds_the_update_to_every_weight_up_to_the_minimums_own_rounding(tmp_path):
    base, adapter = make_base(tmp_path / "base.gguf"), make_adapter("grouped", FOLDED)
    report = merge_version(base, adapter, BLOCK, tmp_path / "v.gguf")
    merged = GgufFile.open(tmp_path / "v.gguf")
    for name in FOLDED:
        a, b = adapter.pairs[name]
        update = 0.5 * np.repeat(b.astype(np.float64) @ a, 32, axis=1)
        difference = dequantized(merged, name).astype(np.float64) - dequantized(base, name)
        # fp16 keeps 11 bits of a minimum of size < 8; fp32 dequantization adds its own 2e-7
        np.testing.assert_allclose(difference, update, atol=8 * 2**-12 + 1e-6)
        assert abs(difference - update).max() > 0  # there is rounding, and the report measures it
    assert 0 < report.rounding_loss < 0.02
    assert report.adapted_tensors == 2 and report.values == 2 * N * K // 32 and report.values_moved > 0.95 * report.values


def test_folding_changes_nothing_but_minima_and_keeps_the_files_size(tmp_path):
    base = make_base(tmp_path / "base.gguf")
    report = merge_version(base, make_adapter("grouped", FOLDED), BLOCK, tmp_path / "v.gguf")
    merged = GgufFile.open(tmp_path / "v.gguf")
    assert report.size_bytes == report.base_bytes == (tmp_path / "v.gguf").stat().st_size == (tmp_path / "base.gguf").stat().st_size
    assert {name: (info.offset, info.type_name) for name, info in merged.tensors.items()} == {
        name: (info.offset, info.type_name) for name, info in base.tensors.items()
    }
    for name, info in base.tensors.items():
        before, after = np.array(base.data(name)), np.array(merged.data(name))
        if name in FOLDED:
            size = 20 if info.type_name == "Q4_1" else 24
            before, after = before.reshape(-1, size), after.reshape(-1, size)
            assert (before[:, 2:4] != after[:, 2:4]).any()
            before[:, 2:4] = after[:, 2:4]
        np.testing.assert_array_equal(before, after)
    untouched = {key: field for key, field in base.fields.items() if key != RESERVED_KEY}
    assert untouched.items() <= merged.fields.items()


def test_folding_in_pieces_equals_folding_at_once(tmp_path, monkeypatch):
    base, adapter = make_base(tmp_path / "base.gguf"), make_adapter("grouped", FOLDED)
    merge_version(base, adapter, BLOCK, tmp_path / "whole.gguf")
    in_pieces = GgufFile.row_chunks
    monkeypatch.setattr(GgufFile, "row_chunks", lambda self, name: in_pieces(self, name, chunk_bytes=300))
    merge_version(base, adapter, BLOCK, tmp_path / "pieces.gguf")
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "pieces.gguf").read_bytes()


def test_lifting_stores_the_sum_as_q8_0_and_leaves_other_tensors_alone(tmp_path):
    base = make_base(tmp_path / "base.gguf")
    names = ("blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.0.attn_k.weight", "token_embd.weight")
    adapter = make_adapter("lora", names)
    report = merge_version(base, adapter, BLOCK, tmp_path / "v.gguf")
    merged = GgufFile.open(tmp_path / "v.gguf")
    assert report.tensors_by_type == {"Q8_0": 3, "F16": 1, "Q5_1": 1, "Q6_K": 1, "F32": 1}
    for name in names:
        a, b = adapter.pairs[name]
        wanted = dequantized(base, name) + np.float32(0.5) * (b @ a)
        kind = gguf.GGMLQuantizationType[merged.tensors[name].type_name]
        np.testing.assert_array_equal(dequantized(merged, name), gguf.dequantize(gguf.quantize(wanted, kind), kind))
    np.testing.assert_array_equal(merged.data("output.weight"), base.data("output.weight"))
    assert merged.fields["general.file_type"] == Field("u32", int(gguf.LlamaFileType.MOSTLY_Q8_0))
    assert merged.data_offset == base.data_offset and 0 < report.rounding_loss < 0.3


def test_the_reference_reads_the_version_block_as_ordinary_metadata(tmp_path):
    base, adapter = make_base(tmp_path / "base.gguf"), make_adapter("grouped", FOLDED)
    report = merge_version(base, adapter, BLOCK, tmp_path / "v.gguf")
    seen = gguf.GGUFReader(tmp_path / "v.gguf")
    values = {key.removeprefix("mft.version."): field.contents() for key, field in seen.fields.items() if key.startswith("mft.version.")}
    assert values == {
        **{
            name: getattr(BLOCK, name)
            for name in ("id", "parent", "base_id", "base_sha256", "data_fingerprint", "steps", "recipe_sha256", "created_utc", "tool")
        },
        "adapter_kind": "grouped",
        "adapter_scale": 0.5,
        "policy": "fold",
        "adapter_digest": adapter.digest(),
        "payload_sha256": sha256_of_file(tmp_path / "v.gguf", base.data_offset),
    }
    assert report.payload_sha256 == values["payload_sha256"] and report.sha256 == sha256_of_file(tmp_path / "v.gguf")
    assert len(seen.tensors) == len(base.tensors)


def test_a_flipped_payload_bit_is_noticed_and_a_base_has_no_block(tmp_path):
    base = make_base(tmp_path / "base.gguf")
    merge_version(base, make_adapter("grouped", FOLDED), BLOCK, tmp_path / "v.gguf")
    assert read_version_block(base) is None and not payload_is_intact(base)
    assert payload_is_intact(GgufFile.open(tmp_path / "v.gguf"))
    raw = bytearray((tmp_path / "v.gguf").read_bytes())
    raw[-5] ^= 1
    (tmp_path / "bad.gguf").write_bytes(raw)
    assert not payload_is_intact(GgufFile.open(tmp_path / "bad.gguf"))


def test_a_version_of_a_version_keeps_the_size_and_replaces_the_block(tmp_path):
    base = make_base(tmp_path / "base.gguf")
    merge_version(base, make_adapter("grouped", FOLDED), BLOCK, tmp_path / "v1.gguf")
    first = GgufFile.open(tmp_path / "v1.gguf")
    second_block = VersionBlock(**{**BLOCK.__dict__, "id": "v0002", "parent": "v0001"})
    merge_version(first, make_adapter("grouped", FOLDED, seed=9), second_block, tmp_path / "v2.gguf")
    second = GgufFile.open(tmp_path / "v2.gguf")
    assert second.size_bytes == base.size_bytes and payload_is_intact(second)
    assert read_version_block(second).id == "v0002" and read_version_block(second).parent == "v0001"


def test_a_base_without_reserved_room_still_merges_and_only_its_header_grows(tmp_path):
    base = make_base(tmp_path / "base.gguf", reserve=False)
    report = merge_version(base, make_adapter("grouped", FOLDED), BLOCK, tmp_path / "v.gguf")
    merged = GgufFile.open(tmp_path / "v.gguf")
    assert report.size_bytes - report.base_bytes == merged.data_offset - base.data_offset > 0
    assert payload_is_intact(merged)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda: make_adapter("grouped", FOLDED, scale=0.0), "scale is 0", id="zero scale"),
        pytest.param(lambda: make_adapter("grouped", FOLDED, scale=float("nan")), "scale is nan", id="scale not a number"),
        pytest.param(lambda: make_adapter("grouped", ()), "has no tensors", id="empty"),
        pytest.param(lambda: make_adapter("grouped", ("blk.7.attn_q.weight",)), "does not have", id="matches nothing"),
        pytest.param(lambda: make_adapter("grouped", ("output.weight",)), r"\(48, 128\) there and \(48, 256\)", id="other shape"),
        pytest.param(lambda: make_adapter("grouped", ("blk.0.attn_v.weight",)), "is Q4_0, into which", id="type without a minimum"),
        pytest.param(lambda: make_adapter("grouped", FOLDED, size=0.0), "changes no stored value", id="all zero"),
        pytest.param(lambda: make_adapter("lora", FOLDED, size=0.0), "changes no stored value", id="all zero lora"),
        pytest.param(lambda: make_adapter("grouped", FOLDED, size=1e6), "too large for a 16-bit number", id="overflow"),
        pytest.param(lambda: make_adapter("grouped", FOLDED, size=float("nan")), "not finite", id="nan"),
        pytest.param(lambda: make_adapter("dora", FOLDED), "kind 'dora'", id="unknown kind"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_refused_and_leaves_no_file(tmp_path, change, reason):
    base = make_base(tmp_path / "base.gguf")
    with pytest.raises(UserError, match=reason):
        merge_version(base, change(), BLOCK, tmp_path / "v.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["base.gguf"]


def test_space_is_asked_for_before_anything_is_written(tmp_path):
    class Small(FileLayer):
        def free_bytes(self, directory):
            return 20_000

    base = make_base(tmp_path / "base.gguf")
    with use_layer(Small()), pytest.raises(UserError, match="are needed and 20,000 are free"):
        merge_version(base, make_adapter("grouped", FOLDED), BLOCK, tmp_path / "v.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["base.gguf"]


def test_a_saved_adapter_comes_back_equal_and_a_damaged_one_is_refused(tmp_path):
    adapter = make_adapter("grouped", FOLDED)
    digest = adapter.save(tmp_path)
    loaded = AdapterTensors.load(tmp_path)
    assert digest == adapter.digest() == loaded.digest() and (loaded.kind, loaded.scale) == ("grouped", 0.5)
    for name, matrices in adapter.pairs.items():
        for ours, theirs in zip(loaded.pairs[name], matrices, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    raw = (tmp_path / "adapter.bin").read_bytes()
    for damaged, reason in ((raw[:-4], "cut short"), (raw[:8] + bytes([raw[8] ^ 1]) + raw[9:], "damaged")):
        (tmp_path / "adapter.bin").write_bytes(damaged)
        with pytest.raises(UserError, match=reason):
            AdapterTensors.load(tmp_path)
