"""Quantize and dequantize GGUF blocks with numpy: what the phone needs to merge an adapter into weights.

In:  rows of block bytes, or rows of fp32 values.
Out: the other one.
Only plain 32-wide types and the unquantized ones are here; the layouts are those of ggml-quants.c, the rounding too.
Q4_1 and Q5_1 blocks start with d and m (fp16): value = d·q + m, so adding to m moves all 32 values alike.
"""

# Shapes: N rows · K row elements · G = K/32 blocks a row · S block bytes
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .types import BLOCK_ELEMENTS, TENSOR_TYPES

FOLDABLE_TYPES = ("Q4_1", "Q5_1")
"""types with a minimum per block of 32, into which a grouped adapter folds"""


def _blocks(raw: np.ndarray, type_name: str) -> np.ndarray:
    """raw [N, G·S] u8 → [N, G, S] u8"""
    return raw.reshape(raw.shape[0], -1, TENSOR_TYPES[type_name].block_bytes)


def half(blocks: np.ndarray, start: int) -> np.ndarray:
    """The fp16 at byte `start` of each block: [N, G, S] u8 → [N, G, 1] f32"""
    return np.ascontiguousarray(blocks[..., start : start + 2]).view(np.float16).astype(np.float32)


def nibbles(packed: np.ndarray) -> np.ndarray:
    """[N, G, 16] u8 → [N, G, 32] u8: low halves first, then high halves"""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=-1)


def fifth_bits(packed: np.ndarray) -> np.ndarray:
    """[N, G, 4] u8 → [N, G, 32] u8, each 0 or 16"""
    return np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)


def _from_q4_0(raw: np.ndarray) -> np.ndarray:
    blocks = _blocks(raw, "Q4_0")
    return half(blocks, 0) * (nibbles(blocks[..., 2:]).astype(np.float32) - 8)


def _from_q4_1(raw: np.ndarray) -> np.ndarray:
    blocks = _blocks(raw, "Q4_1")
    return half(blocks, 0) * nibbles(blocks[..., 4:]).astype(np.float32) + half(blocks, 2)


def _from_q5_0(raw: np.ndarray) -> np.ndarray:
    blocks = _blocks(raw, "Q5_0")
    values = nibbles(blocks[..., 6:]) | fifth_bits(blocks[..., 2:6])
    return half(blocks, 0) * (values.astype(np.float32) - 16)


def _from_q5_1(raw: np.ndarray) -> np.ndarray:
    blocks = _blocks(raw, "Q5_1")
    values = nibbles(blocks[..., 8:]) | fifth_bits(blocks[..., 4:8])
    return half(blocks, 0) * values.astype(np.float32) + half(blocks, 2)


def _from_q8_0(raw: np.ndarray) -> np.ndarray:
    blocks = _blocks(raw, "Q8_0")
    return half(blocks, 0) * np.ascontiguousarray(blocks[..., 2:]).view(np.int8).astype(np.float32)


def _from_f16(raw: np.ndarray) -> np.ndarray:
    return raw.view(np.float16).astype(np.float32)


def _from_bf16(raw: np.ndarray) -> np.ndarray:
    return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _from_f32(raw: np.ndarray) -> np.ndarray:
    return raw.view(np.float32).copy()


_DEQUANTIZERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Q4_0": _from_q4_0,
    "Q4_1": _from_q4_1,
    "Q5_0": _from_q5_0,
    "Q5_1": _from_q5_1,
    "Q8_0": _from_q8_0,
    "F16": _from_f16,
    "BF16": _from_bf16,
    "F32": _from_f32,
}
DEQUANTIZABLE_TYPES = tuple(_DEQUANTIZERS)


def dequantize(raw: np.ndarray, type_name: str) -> np.ndarray:
    """raw [N, row bytes] u8 → [N, K] f32; ValueError for a type that is not in DEQUANTIZABLE_TYPES"""
    if type_name not in _DEQUANTIZERS:
        raise ValueError(f"{type_name} is not one of {', '.join(DEQUANTIZABLE_TYPES)}")
    raw = np.ascontiguousarray(raw, dtype=np.uint8)
    return _DEQUANTIZERS[type_name](raw).reshape(raw.shape[0], -1)


def _groups(values: np.ndarray) -> np.ndarray:
    """[N, K] f32 → [N, G, 32] f32"""
    return values.reshape(values.shape[0], -1, BLOCK_ELEMENTS)


def _inverse(d: np.ndarray) -> np.ndarray:
    """1/d in fp32 as the reference has it; 0 where d is too small for that, as the stored fp16 d is 0 there too."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _join(values: np.ndarray, *parts: np.ndarray) -> np.ndarray:
    """Block parts [N, G, *] of any type, side by side → [N, row bytes] u8"""
    raw = [np.ascontiguousarray(part).view(np.uint8) for part in parts]
    return np.concatenate(raw, axis=-1).reshape(values.shape[0], -1)


def _pack_nibbles(q: np.ndarray) -> np.ndarray:
    """[N, G, 32] u8 below 16 → [N, G, 16] u8"""
    return q[..., :16] | q[..., 16:] << np.uint8(4)


def _to_q4_0(values: np.ndarray) -> np.ndarray:
    groups = _groups(values)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=-1, keepdims=True), axis=-1)
    d = largest / np.float32(-8)
    q = np.trunc(groups * _inverse(d) + np.float32(8.5)).astype(np.uint8).clip(0, 15)
    return _join(values, d.astype(np.float16), _pack_nibbles(q))


def pack_blocks(d: np.ndarray, m: np.ndarray, q: np.ndarray, type_name: str) -> np.ndarray:
    """Blocks with a minimum, Q4_1 or Q5_1: d, m [N, G, 1] f16 · q [N, G, 32] u8 → [N, row bytes] u8"""
    fifth = [np.packbits(q >> np.uint8(4), axis=-1, bitorder="little")] if type_name == "Q5_1" else []
    return _join(d, d, m, *fifth, _pack_nibbles(q & np.uint8(15)))


def _to_minimum_type(values: np.ndarray, type_name: str, largest: int) -> np.ndarray:
    """largest: the greatest quant"""
    groups = _groups(values)
    low = groups.min(axis=-1, keepdims=True)
    d = (groups.max(axis=-1, keepdims=True) - low) / np.float32(largest)
    q = np.trunc((groups - low) * _inverse(d) + np.float32(0.5)).astype(np.uint8).clip(0, largest)
    return pack_blocks(d.astype(np.float16), low.astype(np.float16), q, type_name)


def _to_q8_0(values: np.ndarray) -> np.ndarray:
    groups = _groups(values)
    d = np.abs(groups).max(axis=-1, keepdims=True) / np.float32(127)
    scaled = groups * _inverse(d)
    rounded = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))  # halves away from zero, as roundf does
    return _join(values, d.astype(np.float16), rounded.astype(np.int8))


_QUANTIZERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Q4_0": _to_q4_0,
    "Q8_0": _to_q8_0,
    "Q4_1": lambda values: _to_minimum_type(values, "Q4_1", 15),
    "Q5_1": lambda values: _to_minimum_type(values, "Q5_1", 31),
    "F16": lambda values: values.astype(np.float16).view(np.uint8),
    "F32": lambda values: values.view(np.uint8),
}
QUANTIZABLE_TYPES = tuple(_QUANTIZERS)


def quantize(values: np.ndarray, type_name: str) -> np.ndarray:
    """values [N, K] f32, finite → [N, row bytes] u8; ValueError for another type or a row that is not whole blocks"""
    if type_name not in _QUANTIZERS:
        raise ValueError(f"{type_name} is not one of {', '.join(QUANTIZABLE_TYPES)}")
    if values.shape[-1] % TENSOR_TYPES[type_name].block_elements:
        raise ValueError(f"rows of {values.shape[-1]} elements are not whole {type_name} blocks")
    return _QUANTIZERS[type_name](np.ascontiguousarray(values, dtype=np.float32))


def minima(raw: np.ndarray, type_name: str) -> np.ndarray:
    """A writable view of each block's minimum: raw [N, row bytes] u8, contiguous, Q4_1 or Q5_1 → [N, G] f16"""
    if type_name not in FOLDABLE_TYPES:
        raise ValueError(f"{type_name} has no minimum per block of 32, only {' and '.join(FOLDABLE_TYPES)} have")
    return _blocks(raw, type_name).view(np.float16)[..., 1]
