"""Blocks of one GGUF type made from blocks of another, as exactly as the wanted type allows.

In:  rows of blocks, u8.
Out: rows of blocks of the wanted type, u8.
Types that are linear in groups of 32 (w = d·q + m) keep their quants when the wanted type has as many levels: only d and m
are rounded to fp16, and for Q4_0 and Q5_0 not even that. Everything else is dequantized and quantized again.
"""

# Shapes: N rows · G = K/32 groups of a row · S = K/256 super-blocks of a row
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gguf
import numpy as np

from ...runtime.gguf import blocks


@dataclass(frozen=True)
class Linear:
    """w = d·q + m in groups of 32."""

    d: np.ndarray
    """[N, G, 1] f32"""
    m: np.ndarray
    """[N, G, 1] f32"""
    q: np.ndarray
    """[N, G, 32] u8"""


LEVELS = {"Q4_0": 16, "Q4_1": 16, "Q4_K": 16, "Q5_0": 32, "Q5_1": 32, "Q5_K": 32}
"""the types that are linear in groups of 32, with the number of their quants"""


def convert(raw: np.ndarray, from_type: str, to_type: str) -> np.ndarray:
    """raw [N, row bytes] u8 → [N, row bytes] u8; ValueError when a scale does not fit into fp16"""
    if from_type == to_type:
        return raw
    if to_type in blocks.FOLDABLE_TYPES and LEVELS.get(from_type, 64) <= LEVELS[to_type]:
        return _packed(_linear(np.ascontiguousarray(raw), from_type), to_type)
    return gguf.quantize(dequantized(raw, from_type), gguf.GGMLQuantizationType[to_type])


def dequantized(raw: np.ndarray, type_name: str) -> np.ndarray:
    """raw [N, row bytes] u8 → [N, K] f32, by the gguf package"""
    return gguf.dequantize(np.ascontiguousarray(raw), gguf.GGMLQuantizationType[type_name])


def _linear(raw: np.ndarray, type_name: str) -> Linear:
    return _READERS[type_name](raw.reshape(len(raw), -1, gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]][1]))


def _small(groups: np.ndarray, zero_point: int, has_minimum: bool, fifth_bits: bool) -> Linear:
    """Q4_0, Q4_1, Q5_0, Q5_1: [d][m][fifth bits][nibbles]"""
    d = blocks.half(groups, 0)
    m = blocks.half(groups, 2) if has_minimum else d * np.float32(-zero_point)
    start = 4 if has_minimum else 2
    q = blocks.nibbles(groups[..., start + 4 * fifth_bits :])
    return Linear(d, m, q | blocks.fifth_bits(groups[..., start : start + 4]) if fifth_bits else q)


def _super(supers: np.ndarray, fifth_bits: bool) -> Linear:
    """Q4_K, Q5_K: [d][dmin][12 bytes of 6-bit scales and minima][fifth bits][nibbles] for 8 groups of 32

    supers [N, S, bytes] u8
    """
    n = len(supers)
    scales, minima = gguf.quants.Q4_K.get_scale_min(np.ascontiguousarray(supers[..., 4:16]).reshape(-1, 12))  # [N·S, 8] each
    shape = (n, -1, 8)
    d = blocks.half(supers, 0) * scales.astype(np.float32).reshape(shape)
    m = -blocks.half(supers, 2) * minima.astype(np.float32).reshape(shape)
    packed = supers[..., 16 + 32 * fifth_bits :].reshape(n, -1, 4, 1, 32)
    q = (packed >> np.array([0, 4], np.uint8).reshape(2, 1)) & np.uint8(15)  # [N, S, 4, 2, 32]: low halves are the earlier group
    q = q.reshape(n, -1, 32)
    if fifth_bits:
        high = (supers[..., None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(8, 1)) & np.uint8(1)  # [N, S, 8, 32]
        q = q | (high << np.uint8(4)).reshape(n, -1, 32)
    return Linear(d.reshape(n, -1, 1), m.reshape(n, -1, 1), q)


_READERS: dict[str, Callable[[np.ndarray], Linear]] = {
    "Q4_0": lambda groups: _small(groups, 8, False, False), "Q4_1": lambda groups: _small(groups, 0, True, False),
    "Q5_0": lambda groups: _small(groups, 16, False, True), "Q5_1": lambda groups: _small(groups, 0, True, True),
    "Q4_K": lambda supers: _super(supers, False), "Q5_K": lambda supers: _super(supers, True),
}  # fmt: skip


def _packed(linear: Linear, to_type: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        d, m = linear.d.astype(np.float16), linear.m.astype(np.float16)
    if not (np.isfinite(d).all() and np.isfinite(m).all()):
        raise ValueError(f"a block's scale or minimum is too large for {to_type}")
    return blocks.pack_blocks(d, m, linear.q, to_type)
