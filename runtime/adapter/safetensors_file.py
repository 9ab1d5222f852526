"""Read and write safetensors files, the format of adapters in the Hugging Face world.

In:  a path; or named fp32 matrices.
Out: matrices as fp32, whatever float type the file has; or a file on disk.
Layout: u64 length, that many bytes of JSON (name -> dtype, shape, data_offsets), then the data without gaps. All that the header
promises is checked against the file's size before any matrix is read.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..gguf import blocks
from ..storage.durable import DurableFile

MAX_HEADER_BYTES = 100_000_000
"""the limit of the reference implementation"""
METADATA_KEY = "__metadata__"
FLOAT_TYPES = {"F32": 4, "F16": 2, "BF16": 2}
"""bytes per value of the types that are read"""


@dataclass(frozen=True)
class _Place:
    type_name: str
    shape: tuple[int, ...]
    start: int
    """from the start of the file"""
    n_bytes: int


class SafetensorsFile:
    """An opened and validated file."""

    def __init__(self, path: Path, places: Mapping[str, _Place]) -> None:
        self.path, self._places = path, places

    @classmethod
    def open(cls, path: Path | str | os.PathLike[str]) -> SafetensorsFile:
        """UserError says what is wrong with the file."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                head = file.read(8)
                if len(head) < 8:
                    raise _refusal(path, f"is no safetensors file: it has {size_bytes} bytes")
                if (head + file.read(32)).startswith(b"version https://git-lfs"):
                    raise _refusal(path, "is a Git LFS pointer, not the adapter itself")
                (length,) = struct.unpack("<Q", head)
                if length > min(MAX_HEADER_BYTES, size_bytes - 8):
                    raise _refusal(path, f"is no safetensors file or is cut short: its header would have {length} bytes")
                file.seek(8)
                header = _parse_header(path, file.read(length))
        except OSError as error:
            raise UserError(str(path), f"cannot be read ({error.strerror or error})", remedy="check the path and its permissions") from None
        header.pop(METADATA_KEY, None)
        return cls(path, _places(path, header, 8 + length, size_bytes))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each matrix, by name."""
        return {name: place.shape for name, place in self._places.items()}

    def read(self, name: str) -> np.ndarray:
        """The matrix as fp32; UserError for a type that is not a float of at most 32 bits."""
        place = self._places[name]
        if place.type_name not in FLOAT_TYPES:
            raise _refusal(self.path, f"{name} is of type {place.type_name}", ", ".join(FLOAT_TYPES))
        raw = np.fromfile(self.path, np.uint8, place.n_bytes, offset=place.start)
        return blocks.dequantize(raw.reshape(1, -1), place.type_name).reshape(place.shape)


def _refusal(path: Path, found: str, allowed: str = "") -> UserError:
    return UserError(str(path), found, allowed, "fetch the adapter again, or save it with save_pretrained(..., safe_serialization=True)")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _parse_header(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=_unique)
        if not isinstance(header, dict):
            raise ValueError("no JSON object")
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"its header cannot be read ({' '.join(str(error).split())})") from None
    return header


def _places(path: Path, header: Mapping[str, Any], data_start: int, size_bytes: int) -> dict[str, _Place]:
    places: dict[str, _Place] = {}
    for name, entry in header.items():
        try:
            type_name, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            if not (isinstance(type_name, str) and all(type(n) is int and n >= 0 for n in (*shape, first, last)) and first <= last):
                raise ValueError("no type, shape and place")
        except (KeyError, TypeError, ValueError):
            raise _refusal(path, f"the header's entry {name!r} is malformed") from None
        if last > size_bytes - data_start:
            raise _refusal(path, f"is cut short: {name} ends at byte {data_start + last}, the file at {size_bytes}")
        if type_name in FLOAT_TYPES and last - first != math.prod(shape) * FLOAT_TYPES[type_name]:
            raise _refusal(
                path, f"{name} has {last - first} bytes, its shape {shape} of {type_name} needs {math.prod(shape) * FLOAT_TYPES[type_name]}"
            )
        places[name] = _Place(type_name, shape, data_start + first, last - first)
    return places


def write_safetensors(path: Path, matrices: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> int:
    """Write fp32 matrices in the order of their names; returns the file's bytes."""
    header: dict[str, Any] = {METADATA_KEY: dict(metadata)}
    offset = 0
    for name in sorted(matrices):
        n_bytes = 4 * matrices[name].size
        header[name] = {"dtype": "F32", "shape": list(matrices[name].shape), "data_offsets": [offset, offset + n_bytes]}
        offset += n_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with DurableFile(path, expected_bytes=8 + len(text) + offset) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(matrices):
            file.write(np.ascontiguousarray(matrices[name], "<f4"))
    return file.size_bytes
