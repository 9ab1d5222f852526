"""Our safetensors files against the reference implementation's."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.adapter.safetensors_file import SafetensorsFile, write_safetensors
from mobilefinetuner.runtime.errors import UserError

MATRICES = {
    "b": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "a": np.float32([[1e-30, -2.5]]),
    "数": np.zeros((0, 4), np.float32),
}


def test_the_reference_reads_what_we_write(tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    n_bytes = write_safetensors(tmp_path / "x.safetensors", MATRICES, {"format": "pt"})
    assert n_bytes == (tmp_path / "x.safetensors").stat().st_size
    read = reference.load_file(tmp_path / "x.safetensors")
    assert set(read) == set(MATRICES)
    for name, matrix in MATRICES.items():
        np.testing.assert_array_equal(read[name], matrix)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_we_read_what_the_reference_writes(tmp_path, dtype):
    reference = pytest.importorskip("safetensors.numpy")
    wanted = {name: matrix.astype(dtype) for name, matrix in MATRICES.items()}
    reference.save_file(wanted, tmp_path / "x.safetensors", {"made_by": "the reference"})
    file = SafetensorsFile.open(tmp_path / "x.safetensors")
    assert file.shapes == {name: matrix.shape for name, matrix in wanted.items()}
    for name, matrix in wanted.items():
        np.testing.assert_array_equal(file.read(name), matrix.astype(np.float32))


@pytest.mark.oracle
def test_bfloat16_reads_as_torch_converts_it(tmp_path):
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("safetensors.torch")
    values = torch.randn(5, 8).to(torch.bfloat16)
    reference.save_file({"x": values}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(SafetensorsFile.open(tmp_path / "x.safetensors").read("x"), values.to(torch.float32).numpy())


def header(entries: object, tail: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + tail


@pytest.mark.parametrize("raw, reason", [
    (b"", "0 bytes"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer"),
    (b"\xff" * 40, "its header would have"),
    (header(b"[1]"), "header cannot be read"),
    (header(b'{"a": {}, "a": {}}'), "a name stands twice"),
    (header({"a": {"dtype": "F32", "shape": [1]}}), "malformed"),
    (header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}), "malformed"),
    (header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(4)), "cut short"),
    (header({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}, bytes(4)), "needs"),
], ids=["empty", "lfs", "length", "no-object", "twice", "no-offsets", "negative", "cut", "shape"])  # fmt: skip
def test_a_damaged_file_is_refused_with_its_reason(tmp_path, raw, reason):
    (tmp_path / "x.safetensors").write_bytes(raw)
    with pytest.raises(UserError, match=reason):
        SafetensorsFile.open(tmp_path / "x.safetensors")


def test_a_type_that_is_no_float_is_named(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(header({"a": {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}}, bytes(4)))
    with pytest.raises(UserError, match="a is of type I8; allowed: F32, F16, BF16"):
        SafetensorsFile.open(tmp_path / "x.safetensors").read("a")


@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_are_read_or_refused_but_never_crash(tmp_path_factory, raw, has_length):
    path = tmp_path_factory.mktemp("any") / "x.safetensors"
    path.write_bytes(header(raw) if has_length else raw)
    try:
        SafetensorsFile.open(path)
    except UserError as error:
        assert "\n" not in str(error)
