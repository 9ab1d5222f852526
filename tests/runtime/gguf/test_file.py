"""GGUF reading and writing, against the gguf package as the reference."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile, TensorSource, gguf_size_bytes, write_gguf
from mobilefinetuner.runtime.gguf.types import TENSOR_TYPES, VALUE_TYPES, Field

gguf = pytest.importorskip("gguf")

ALL_KINDS = {
    "general.architecture": Field("str", "llama"),
    "a.u8": Field("u8", 255),
    "a.i8": Field("i8", -128),
    "a.u16": Field("u16", 65535),
    "a.i16": Field("i16", -5),
    "a.u32": Field("u32", 2**32 - 1),
    "a.i32": Field("i32", -(2**31)),
    "a.u64": Field("u64", 2**64 - 1),
    "a.i64": Field("i64", -(2**63)),
    "a.f32": Field("f32", 0.5),
    "a.f64": Field("f64", 1e-300),
    "a.bool": Field("bool", True),
    "a.tokens": Field("str", ("a", "Ġthe", "你好", "😀", "")),
    "a.scores": Field("f32", (0.25, -1.0)),
    "a.kinds": Field("i32", (1, 2, -3)),
    "a.flags": Field("bool", (True, False)),
    "a.small": Field("u8", (1, 2)),
    "a.none": Field("str", ()),
}


def sources_of(arrays: dict[str, np.ndarray]) -> list[TensorSource]:
    return [TensorSource(name, array.shape, "F32", lambda array=array: array) for name, array in arrays.items()]


def small_file(path, alignment: int = 64) -> bytes:
    arrays = {"one": np.arange(6, dtype=np.float32).reshape(2, 3), "two": np.ones(5, np.float32)}
    write_gguf(path, ALL_KINDS, sources_of(arrays), alignment)
    return path.read_bytes()


def test_the_reference_reader_sees_equal_fields_and_tensors(tmp_path):
    arrays = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.arange(7, dtype=np.float32)}
    fields = {key: field for key, field in ALL_KINDS.items() if key != "a.none"}  # the reference keeps no type for it
    write_gguf(tmp_path / "m.gguf", fields, sources_of(arrays), 64)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    for key, field in fields.items():
        seen = reader.fields[key]
        assert seen.contents() == (list(field.value) if field.is_array else field.value), key
        assert int(seen.types[-1]) == VALUE_TYPES[field.type_name].code, key
    assert reader.alignment == 64
    for tensor in reader.tensors:
        np.testing.assert_array_equal(tensor.data, arrays[tensor.name])
        assert tensor.data_offset % 64 == 0


def test_what_the_reference_writer_writes_is_read_alike(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "r.gguf", "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 1e4)
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "ç"])
    weights = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    blocks = gguf.quantize(weights, gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("w", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("n", weights[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    ours = GgufFile.open(tmp_path / "r.gguf")
    assert ours.metadata["llama.block_count"] == 2 and ours.fields["llama.block_count"].type_name == "u32"
    assert ours.metadata["tokenizer.ggml.tokens"] == ["a", "b", "ç"]
    assert ours.fields["tokenizer.ggml.add_bos_token"] == Field("bool", False)
    assert ours.tensors["w"].shape == (4, 64) and ours.tensors["w"].type_name == "Q4_1" and ours.tensors["w"].row_bytes == 40
    np.testing.assert_array_equal(ours.data("w"), blocks.reshape(-1))
    np.testing.assert_array_equal(ours.data("n").view(np.float32), weights[0])


def test_block_sizes_and_type_codes_are_those_of_the_reference():
    for kind in TENSOR_TYPES.values():
        reference = gguf.GGMLQuantizationType[kind.name]
        assert (kind.code, kind.block_elements, kind.block_bytes) == (int(reference), *gguf.GGML_QUANT_SIZES[reference])
    for kind in VALUE_TYPES.values():
        long_name = {"str": "STRING", "bool": "BOOL"}.get(kind.name) or kind.name.upper().replace("U", "UINT").replace("F", "FLOAT").replace(
            "I", "INT"
        ).replace("UINTNT", "UINT")
        assert kind.code == int(gguf.GGUFValueType[long_name])


def test_a_file_survives_reading_and_writing_again_byte_for_byte(tmp_path):
    before = small_file(tmp_path / "a.gguf")
    opened = GgufFile.open(tmp_path / "a.gguf")
    assert opened.fields == {**ALL_KINDS, "general.alignment": Field("u32", 64)}
    sources = [opened.source(name) for name in opened.tensors]
    n_bytes = write_gguf(tmp_path / "b.gguf", opened.fields, sources, opened.alignment)
    assert (tmp_path / "b.gguf").read_bytes() == before
    assert n_bytes == len(before) == gguf_size_bytes(opened.fields, sources, opened.alignment)


def test_strings_that_are_not_utf8_are_kept_byte_for_byte(tmp_path):
    field = Field("str", (b"\xff\xfe\x80".decode("utf-8", "surrogateescape"), "ok"))
    write_gguf(tmp_path / "a.gguf", {"tokens": field}, [])
    assert b"\xff\xfe\x80" in (tmp_path / "a.gguf").read_bytes()
    assert GgufFile.open(tmp_path / "a.gguf").fields["tokens"] == field


def test_a_tensor_given_in_pieces_is_written_whole_and_a_short_one_is_refused(tmp_path):
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    write_gguf(tmp_path / "a.gguf", {}, [TensorSource("w", (4, 2), "F32", lambda: iter(rows))])
    np.testing.assert_array_equal(GgufFile.open(tmp_path / "a.gguf").data("w").view(np.float32), rows.reshape(-1))
    with pytest.raises(ValueError, match="gave 24 bytes, its shape and type need 32"):
        write_gguf(tmp_path / "b.gguf", {}, [TensorSource("w", (4, 2), "F32", lambda: rows[:3])])


def header(version=3, n_tensors=0, n_fields=0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_fields)


def tensor_entry(name=b"w", shape=(32,), code=0, offset=0) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", code, offset)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer", id="lfs pointer"),
        pytest.param(b"PK\x03\x04" * 9, "not a GGUF file", id="zip"),
        pytest.param(b"GGUF\x03", "cut short", id="five bytes"),
        pytest.param(header(version=1), "is GGUF version 1", id="old version"),
        pytest.param(b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian", id="big endian"),
        pytest.param(header(n_tensors=2**60), "more than its 24 bytes can hold", id="absurd tensor count"),
        pytest.param(header(n_fields=2**63), "more than its 24 bytes can hold", id="absurd field count"),
        pytest.param(header(n_fields=1) + struct.pack("<Q", 2**62) + bytes(99), "cut short", id="absurd string length"),
        pytest.param(header(n_fields=1) + struct.pack("<QcI", 1, b"k", 77) + bytes(99), "is of type 77", id="unknown value type"),
        pytest.param(header(n_fields=1) + struct.pack("<QcIIQ", 1, b"k", 9, 9, 1) + bytes(99), "array of arrays", id="array of arrays"),
        pytest.param(header(n_tensors=1) + tensor_entry(code=4) + bytes(256), "unknown type 4", id="unknown tensor type"),
        pytest.param(header(n_tensors=1) + tensor_entry(offset=8) + bytes(256), "is at offset 8", id="unaligned offset"),
        pytest.param(header(n_tensors=1) + tensor_entry(offset=2**40) + bytes(256), "cut short", id="offset past the end"),
        pytest.param(header(n_tensors=1) + tensor_entry(shape=(2**40, 2**40)) + bytes(256), "cut short", id="absurd shape"),
        pytest.param(header(n_tensors=1) + tensor_entry(shape=(33,), code=3) + bytes(256), "not a whole number", id="half a block"),
        pytest.param(header(n_tensors=1) + tensor_entry(shape=(1,) * 5) + bytes(256), "has 5 dimensions", id="five dimensions"),
        pytest.param(header(n_tensors=2) + tensor_entry() + tensor_entry() + bytes(512), "'w' twice", id="twin tensors"),
        pytest.param(header(n_tensors=2) + tensor_entry() + tensor_entry(b"v") + bytes(512), "overlap", id="overlap"),
        pytest.param(header(n_tensors=1) + tensor_entry(b"\xff\n") + bytes(256), "is not UTF-8", id="name is not text"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_its_reason(tmp_path, raw, reason):
    (tmp_path / "bad.gguf").write_bytes(raw)
    with pytest.raises(UserError, match=reason) as caught:
        GgufFile.open(tmp_path / "bad.gguf")
    assert "\n" not in str(caught.value) and "bad.gguf" in str(caught.value)


def test_a_missing_file_and_a_directory_are_the_users_to_put_right(tmp_path):
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            GgufFile.open(path)


def test_every_truncation_is_refused_until_only_padding_is_missing(tmp_path):
    whole = small_file(tmp_path / "whole.gguf")
    last = max(GgufFile.open(tmp_path / "whole.gguf").tensors.values(), key=lambda info: info.offset)
    cut = tmp_path / "cut.gguf"
    for length in range(last.offset + last.n_bytes):
        cut.write_bytes(whole[:length])
        with pytest.raises(UserError):
            GgufFile.open(cut)


def opens_or_refuses(path, raw: bytes) -> None:
    path.write_bytes(raw)
    try:
        opened = GgufFile.open(path)
    except UserError as error:
        assert str(error).count("\n") == 0
        return
    for name, info in opened.tensors.items():
        assert opened.data(name).nbytes == info.n_bytes


@settings(max_examples=300, deadline=None)
@given(tail=st.binary(max_size=400), start=st.sampled_from([b"", b"GGUF", header(3, 1, 1), header(3, 1), header(2, 0, 2)]))
def test_arbitrary_bytes_never_crash_the_reader(tmp_path_factory, start, tail):
    opens_or_refuses(tmp_path_factory.getbasetemp() / "noise.gguf", start + tail)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_flipped_bits_never_crash_the_reader(tmp_path_factory, data):
    base = tmp_path_factory.getbasetemp()
    raw = bytearray(small_file(base / "flip_source.gguf"))
    for position in data.draw(st.lists(st.integers(0, len(raw) * 8 - 1), min_size=1, max_size=8)):
        raw[position // 8] ^= 1 << position % 8
    opens_or_refuses(base / "flipped.gguf", bytes(raw))


value_strategies = {
    "str": st.text(max_size=9),
    "bool": st.booleans(),
    "f32": st.floats(width=32, allow_nan=False),
    "f64": st.floats(allow_nan=False),
    **{
        f"{sign}{bits}": st.integers(-(2 ** (bits - 1)) if sign == "i" else 0, 2 ** (bits - (sign == "i")) - 1)
        for sign in "iu"
        for bits in (8, 16, 32, 64)
    },
}
typed_fields = st.sampled_from(sorted(value_strategies)).flatmap(
    lambda name: st.one_of(value_strategies[name], st.lists(value_strategies[name], max_size=5)).map(lambda value: Field(name, value))
)


@settings(max_examples=150, deadline=None)
@given(
    fields=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda key: key != "general.alignment"), typed_fields, max_size=6
    ),
    arrays=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), hnp.arrays(np.float32, hnp.array_shapes(max_dims=4, max_side=5)), max_size=4
    ),
    alignment=st.sampled_from([8, 32, 64, 4096]),
)
def test_any_fields_and_tensors_come_back_as_they_went_in(tmp_path_factory, fields, arrays, alignment):
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    write_gguf(path, fields, sources_of(arrays), alignment)
    opened = GgufFile.open(path)
    assert opened.fields == {**fields, "general.alignment": Field("u32", alignment)}
    assert {name: info.shape for name, info in opened.tensors.items()} == {name: array.shape for name, array in arrays.items()}
    for name, array in arrays.items():
        assert opened.data(name).tobytes() == array.tobytes()
        assert opened.tensors[name].offset % alignment == 0
