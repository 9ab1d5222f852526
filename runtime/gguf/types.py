"""What GGUF says about types: tensor types with their block sizes, metadata value types with their codes.

In:  nothing.
Out: TENSOR_TYPES by name and by code, VALUE_TYPES by name and by code, Field (a metadata value with its exact type).
A tensor's row must be a whole number of blocks; a metadata int has no type of its own, so writers must say it.
Source: ggml's gguf specification (docs/gguf.md) and ggml.h.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TensorType:
    """How many elements share one block and how many bytes that block takes."""

    name: str
    code: int
    block_elements: int
    block_bytes: int


_TENSOR_TYPE_ROWS = (
    ("F32", 0, 1, 4),
    ("F16", 1, 1, 2),
    ("Q4_0", 2, 32, 18),
    ("Q4_1", 3, 32, 20),
    ("Q5_0", 6, 32, 22),
    ("Q5_1", 7, 32, 24),
    ("Q8_0", 8, 32, 34),
    ("Q8_1", 9, 32, 40),
    ("Q2_K", 10, 256, 84),
    ("Q3_K", 11, 256, 110),
    ("Q4_K", 12, 256, 144),
    ("Q5_K", 13, 256, 176),
    ("Q6_K", 14, 256, 210),
    ("Q8_K", 15, 256, 292),
    ("IQ2_XXS", 16, 256, 66),
    ("IQ2_XS", 17, 256, 74),
    ("IQ3_XXS", 18, 256, 98),
    ("IQ1_S", 19, 256, 50),
    ("IQ4_NL", 20, 32, 18),
    ("IQ3_S", 21, 256, 110),
    ("IQ2_S", 22, 256, 82),
    ("IQ4_XS", 23, 256, 136),
    ("I8", 24, 1, 1),
    ("I16", 25, 1, 2),
    ("I32", 26, 1, 4),
    ("I64", 27, 1, 8),
    ("F64", 28, 1, 8),
    ("IQ1_M", 29, 256, 56),
    ("BF16", 30, 1, 2),
    ("TQ1_0", 34, 256, 54),
    ("TQ2_0", 35, 256, 66),
    ("MXFP4", 39, 32, 17),
)
TENSOR_TYPES: dict[str, TensorType] = {row[0]: TensorType(*row) for row in _TENSOR_TYPE_ROWS}
BLOCK_ELEMENTS = TENSOR_TYPES["Q4_1"].block_elements
"""the 32 of a block: every quantized type that kernels read and merges write; and the inputs that share a column of a grouped A"""
TENSOR_TYPES_BY_CODE: dict[int, TensorType] = {kind.code: kind for kind in TENSOR_TYPES.values()}

FILE_TYPE_KEY = "general.file_type"
FILE_TYPE_CODES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9}
"""what a file says about itself when most of its weights are of a type (llama.h, enum llama_ftype)"""


@dataclass(frozen=True)
class ValueType:
    """A metadata value type; `format` is its struct code, empty for strings and arrays."""

    name: str
    code: int
    format: str

    @property
    def size_bytes(self) -> int:
        """Bytes of one value; for a string, of its length field alone."""
        return struct.calcsize("<" + self.format) if self.format else 8


_VALUE_TYPE_ROWS = (
    ("u8", 0, "B"),
    ("i8", 1, "b"),
    ("u16", 2, "H"),
    ("i16", 3, "h"),
    ("u32", 4, "I"),
    ("i32", 5, "i"),
    ("f32", 6, "f"),
    ("bool", 7, "?"),
    ("str", 8, ""),
    ("u64", 10, "Q"),
    ("i64", 11, "q"),
    ("f64", 12, "d"),
)
ARRAY_CODE = 9
VALUE_TYPES: dict[str, ValueType] = {row[0]: ValueType(*row) for row in _VALUE_TYPE_ROWS}
VALUE_TYPES_BY_CODE: dict[int, ValueType] = {kind.code: kind for kind in VALUE_TYPES.values()}


@dataclass(frozen=True)
class Field:
    """One metadata value with its exact type: Field("u32", 30), Field("f32", (0.5, 1.0)), Field("str", "llama").

    type_name: a key of VALUE_TYPES, of the value itself or, when value is a tuple, of every item
    value:     bool, int, float or str; or a tuple of them for an array
    Strings that are not UTF-8 in the file are kept through surrogate escapes, so they are written back byte for byte.
    """

    type_name: str
    value: Any

    def __post_init__(self) -> None:
        if self.type_name not in VALUE_TYPES:
            raise ValueError(f"metadata type {self.type_name!r} is not one of {', '.join(VALUE_TYPES)}")
        if isinstance(self.value, list):
            object.__setattr__(self, "value", tuple(self.value))

    @property
    def is_array(self) -> bool:
        return isinstance(self.value, tuple)

    def encode(self) -> bytes:
        """The value as it stands in the file, its type code first."""
        kind = VALUE_TYPES[self.type_name]
        if not self.is_array:
            return struct.pack("<I", kind.code) + _encode_items(kind, (self.value,))
        head = struct.pack("<IIQ", ARRAY_CODE, kind.code, len(self.value))
        return head + _encode_items(kind, self.value)


def encode_string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _encode_items(kind: ValueType, items: tuple[Any, ...]) -> bytes:
    if kind.name == "str":
        return b"".join(map(encode_string, items))
    return struct.pack(f"<{len(items)}{kind.format}", *items)


def tensor_bytes(shape: tuple[int, ...], type_name: str) -> int:
    """Bytes of a tensor; shape is row-major, so the last dimension is the one cut into blocks."""
    kind = TENSOR_TYPES[type_name]
    if (shape[-1] if shape else 1) % kind.block_elements:
        raise ValueError(f"a row of {shape[-1]} elements is not a whole number of {type_name} blocks of {kind.block_elements}")
    return math.prod(shape) // kind.block_elements * kind.block_bytes
