"""From one GGUF block type to another, against what the gguf package says both mean.

Tolerance of a conversion that keeps the quants: d and m are rounded to fp16, each by at most 2^-11 of itself.
"""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from mobilefinetuner.compiler.model.block_conversion import LEVELS, convert, dequantized

ROWS, K = 6, 512
HALF_ROUNDING = 2.0**-11
KEEPS_QUANTS = [(kind, to) for kind, levels in LEVELS.items() for to in ("Q4_1", "Q5_1") if levels <= LEVELS[to] and kind != to]
EXACT = [("Q4_0", "Q4_1"), ("Q4_0", "Q5_1"), ("Q4_1", "Q5_1"), ("Q5_0", "Q5_1")]


def random_blocks(kind: str) -> np.ndarray:
    """Any bit pattern for quants and small scales, finite fp16 numbers for d and the minimum: [N, row bytes] u8."""
    rng = np.random.default_rng(len(kind) + ord(kind[1]))
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = rng.integers(0, 256, (ROWS, K // elements, size), dtype=np.uint8)
    halves = 1 if kind.endswith("_0") else 2
    raw[..., : 2 * halves] = rng.normal(size=(*raw.shape[:2], halves)).astype(np.float16).view(np.uint8)
    return raw.reshape(ROWS, -1)


@pytest.mark.parametrize(("kind", "to"), KEEPS_QUANTS)
def test_what_is_linear_in_groups_of_32_keeps_its_quants(kind, to):
    raw = random_blocks(kind)
    before, after = dequantized(raw, kind), dequantized(convert(raw, kind, to), to)
    groups = np.abs(before).reshape(ROWS, -1, 32).max(-1)
    spread = np.ptp(before.reshape(ROWS, -1, 32), axis=-1)
    bound = 2 * HALF_ROUNDING * (groups + spread) + 1e-6
    assert (np.abs(after - before).reshape(ROWS, -1, 32).max(-1) <= bound).all()
    if (kind, to) in EXACT:
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0"])
def test_the_minimum_of_a_symmetric_type_is_a_multiple_of_its_scale(kind):
    made = convert(random_blocks(kind), kind, "Q5_1").reshape(ROWS, -1, 24)
    d, m = (np.ascontiguousarray(made[..., at : at + 2]).view(np.float16).astype(np.float32) for at in (0, 2))
    np.testing.assert_array_equal(m, d * (-8 if kind == "Q4_0" else -16))


@pytest.mark.parametrize("kind", ["Q6_K", "Q8_0", "F16", "BF16", "F32"])
def test_everything_else_is_rounded_to_the_nearest_quant(kind):
    values = np.random.default_rng(2).normal(size=(ROWS, K)).astype(np.float32)
    raw = random_blocks(kind) if kind == "Q6_K" else gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    if kind == "Q6_K":
        raw.reshape(ROWS, -1, 210)[..., 208:] = np.full((ROWS, K // 256, 1), 0.01, np.float16).view(np.uint8)
    before = dequantized(raw, kind)
    made = convert(raw, kind, "Q5_1")
    error = np.abs(dequantized(made, "Q5_1") - before).reshape(ROWS, -1, 32).max(-1)
    step = np.ptp(before.reshape(ROWS, -1, 32), axis=-1) / 31
    assert (error <= 0.51 * step + 2 * HALF_ROUNDING * np.abs(before).max()).all()


def test_a_scale_that_no_fp16_number_holds_is_refused():
    raw = random_blocks("Q4_0").reshape(ROWS, -1, 18)
    raw[0, 0, :2] = np.array([60000], np.float16).view(np.uint8)
    with pytest.raises(ValueError, match="too large for Q4_1"):
        convert(raw.reshape(ROWS, -1), "Q4_0", "Q4_1")
