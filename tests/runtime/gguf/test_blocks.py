"""GGUF blocks in numpy, against the gguf package, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mobilefinetuner.runtime.gguf import blocks
from mobilefinetuner.runtime.gguf.types import TENSOR_TYPES

gguf = pytest.importorskip("gguf")


def reference(type_name: str):
    return gguf.GGMLQuantizationType[type_name]


def random_blocks(type_name: str, rows: int = 5, k: int = 96) -> np.ndarray:
    """Any bit pattern for the quants, finite fp16 scales of both signs."""
    kind, rng = TENSOR_TYPES[type_name], np.random.default_rng(7)
    raw = rng.integers(0, 256, (rows, k // kind.block_elements, kind.block_bytes), dtype=np.uint8)
    if type_name.startswith("Q"):
        n_halves = 2 if type_name.endswith("_1") else 1
        raw[..., : 2 * n_halves] = rng.normal(size=(*raw.shape[:2], n_halves)).astype(np.float16).view(np.uint8)
        return raw.reshape(rows, -1)
    values = rng.normal(size=(rows, k)).astype(np.float32)
    return np.ascontiguousarray(gguf.quantize(values, reference(type_name))).view(np.uint8).reshape(rows, -1)


@pytest.mark.parametrize("type_name", blocks.DEQUANTIZABLE_TYPES)
def test_dequantizing_gives_the_references_bits(type_name):
    raw = random_blocks(type_name)
    ours, theirs = blocks.dequantize(raw, type_name), gguf.dequantize(raw, reference(type_name))
    assert ours.dtype == np.float32 and ours.shape == (5, 96)
    np.testing.assert_array_equal(ours, theirs.reshape(5, 96))


@settings(max_examples=80, deadline=None)
@given(
    type_name=st.sampled_from(blocks.QUANTIZABLE_TYPES),
    values=hnp.arrays(np.float32, (3, 64), elements=st.integers(-999_000, 999_000).map(lambda n: np.float32(n / 1000))),
)
def test_quantizing_gives_the_references_bytes(type_name, values):
    theirs = np.ascontiguousarray(gguf.quantize(values, reference(type_name))).view(np.uint8).reshape(3, -1)
    np.testing.assert_array_equal(blocks.quantize(values, type_name), theirs)


@pytest.mark.parametrize("type_name", blocks.QUANTIZABLE_TYPES)
def test_quantizing_normal_weights_gives_the_references_bytes(type_name):
    values = np.random.default_rng(3).normal(size=(64, 256)).astype(np.float32)
    theirs = np.ascontiguousarray(gguf.quantize(values, reference(type_name))).view(np.uint8).reshape(64, -1)
    np.testing.assert_array_equal(blocks.quantize(values, type_name), theirs)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("type_name", ["Q4_0", "Q4_1", "Q5_1", "Q8_0"])
def test_values_too_close_together_for_a_scale_stay_what_they_are(type_name):
    values = np.zeros((1, 32), np.float32)
    values[0, 3] = 1e-41  # 1/d passes fp32's range, d does not vanish in it
    np.testing.assert_allclose(blocks.dequantize(blocks.quantize(values, type_name), type_name), values, atol=1e-40)


@pytest.mark.parametrize("type_name", blocks.FOLDABLE_TYPES)
def test_moving_a_minimum_moves_its_32_values_and_touches_no_other_byte(type_name):
    raw = random_blocks(type_name)
    moved = raw.copy()
    blocks.minima(moved, type_name)[2, 1] += np.float16(1)
    changed = gguf.dequantize(moved, reference(type_name)) - gguf.dequantize(raw, reference(type_name))
    assert (changed[2, 32:64] != 0).all()
    changed[2, 32:64] = 0
    assert not changed.any()
    assert (moved != raw).sum() <= 2


def test_other_types_and_odd_rows_are_refused():
    with pytest.raises(ValueError, match="Q4_K is not one of"):
        blocks.dequantize(np.zeros((1, 144), np.uint8), "Q4_K")
    with pytest.raises(ValueError, match="Q6_K is not one of"):
        blocks.quantize(np.zeros((1, 256), np.float32), "Q6_K")
    with pytest.raises(ValueError, match="not whole Q8_0 blocks"):
        blocks.quantize(np.zeros((1, 33), np.float32), "Q8_0")
    with pytest.raises(ValueError, match="no minimum"):
        blocks.minima(np.zeros((1, 34), np.uint8), "Q8_0")
