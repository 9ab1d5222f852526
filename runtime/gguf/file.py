"""Read and write GGUF model files (version 3, little endian; version 2 is read too).

In:  a path; or metadata fields and a source of bytes per tensor.
Out: GgufFile with plain metadata, typed fields, tensor places and mapped bytes; or a file on disk.
Everything the header promises is checked against the file's size before a single byte is mapped, and a writer
holds one tensor at a time, so merging needs memory for one tensor only.
Shapes are row-major as in numpy: GGUF stores them the other way round.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from ..errors import UserError
from ..storage.durable import DurableFile
from .types import (
    ARRAY_CODE,
    TENSOR_TYPES,
    TENSOR_TYPES_BY_CODE,
    VALUE_TYPES_BY_CODE,
    Field,
    ValueType,
    encode_string,
    tensor_bytes,
)

MAGIC = b"GGUF"
VERSION = 3
READABLE_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
"""what a file without general.alignment uses"""
ALIGNMENT_KEY = "general.alignment"
MAX_DIMENSIONS = 4
MAX_HEADER_BYTES = 1 << 28
"""a header is vocabulary, merges and names: 256 MB is ten times the largest known"""
MAX_ARRAY_ITEMS = 1 << 24
MAX_ALIGNMENT = 1 << 20
MAX_NAME_CHARACTERS = 1024
MIN_FIELD_BYTES = 8 + 4 + 1
MIN_TENSOR_BYTES = 8 + 4 + 4 + 8

Buffer = bytes | bytearray | memoryview | np.ndarray


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor is: offset counts from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    n_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, that is of the last dimension."""
        return tensor_bytes(self.shape[-1:], self.type_name)


@dataclass(frozen=True)
class TensorSource:
    """A tensor to be written; `read` is called once, when its turn comes, and returns its bytes whole or in pieces."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    read: Callable[[], Buffer | Iterable[Buffer]]

    @property
    def n_bytes(self) -> int:
        return tensor_bytes(self.shape, self.type_name)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(str(path), f"cannot be read ({error.strerror or error})", remedy="check the path and its permissions") from None


class GgufFile:
    """An opened and validated GGUF file; its tensors are mapped on first use, read-only."""

    def __init__(
        self,
        path: Path,
        version: int,
        fields: dict[str, Field],
        tensors: dict[str, TensorInfo],
        header_bytes: int,
        data_offset: int,
        alignment: int,
        size_bytes: int,
    ) -> None:
        self.path, self.version, self.fields, self.tensors = path, version, fields, tensors
        self.header_bytes, self.data_offset, self.alignment, self.size_bytes = header_bytes, data_offset, alignment, size_bytes
        self.metadata: dict[str, Any] = {key: list(field.value) if field.is_array else field.value for key, field in fields.items()}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GgufFile:
        """Validate the whole header against the file's size; UserError says what is wrong with the file."""
        path = Path(path)
        with _readable(path), path.open("rb") as file:
            return _parse(path, file, os.fstat(file.fileno()).st_size)

    @cached_property
    def _mapped(self) -> np.memmap:
        with _readable(self.path):
            size_bytes = self.path.stat().st_size
            if size_bytes != self.size_bytes:
                raise UserError(
                    str(self.path), f"changed while it was open: {self.size_bytes} bytes then, {size_bytes} now", remedy="run the command again"
                )
            return np.memmap(self.path, dtype=np.uint8, mode="r")

    def data(self, name: str) -> np.ndarray:
        """The tensor's bytes: a read-only view u8 [n_bytes] of the mapped file."""
        info = self.tensor(name)
        return self._mapped[info.offset : info.offset + info.n_bytes]

    def release_pages(self) -> None:
        """Let go of the mapped pages in memory; they are clean, and the next access reads them again."""
        if "_mapped" in self.__dict__:
            mapped: mmap.mmap = self._mapped._mmap  # pyright: ignore[reportAttributeAccessIssue]  # numpy has it, its types do not say so
            mapped.madvise(mmap.MADV_DONTNEED)

    def tensor(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise UserError(str(self.path), f"has no tensor {name!r}", remedy="use the model that the bundle was compiled for")
        return self.tensors[name]

    def row_chunks(self, name: str, chunk_bytes: int = 1 << 20) -> Iterator[np.ndarray]:
        """The tensor's rows a few at a time, each a writable copy u8 [rows, row_bytes]; read, not mapped, so they
        do not stay resident."""
        info = self.tensor(name)
        row_bytes = info.row_bytes
        rows_left, step = (info.n_bytes // row_bytes if row_bytes else 0), max(1, chunk_bytes // max(1, row_bytes))
        with _readable(self.path), self.path.open("rb") as file:
            file.seek(info.offset)
            while rows_left:
                rows = min(step, rows_left)
                chunk = np.fromfile(file, np.uint8, rows * row_bytes)
                if chunk.nbytes != rows * row_bytes:
                    raise UserError(str(self.path), f"shrank while tensor {name!r} was read", remedy="fetch the model file again")
                yield chunk.reshape(rows, row_bytes)
                rows_left -= rows

    def source(self, name: str) -> TensorSource:
        """The tensor as it is, for writing it into another file."""
        info = self.tensor(name)
        return TensorSource(name, info.shape, info.type_name, lambda: self.row_chunks(name))


class _HeaderReader:
    """Takes values off the front of the file and refuses to take what the file cannot hold."""

    def __init__(self, path: Path, file: BinaryIO, size_bytes: int) -> None:
        self._path, self._file, self._limit = path, file, min(size_bytes, MAX_HEADER_BYTES)
        self._size_bytes = size_bytes
        self.position = 0

    def refuse(self, found: str, allowed: str = "") -> UserError:
        return UserError(str(self._path), found, allowed, "fetch the model file again")

    def need(self, n_bytes: int, what: str) -> None:
        if n_bytes <= self._limit - self.position:
            return
        if self._limit < self._size_bytes:
            raise self.refuse(f"the header promises too much: {what} would pass {MAX_HEADER_BYTES} bytes")
        raise self.refuse(
            f"is cut short or damaged: {what} at byte {self.position} needs {n_bytes} bytes, the file ends after {self._size_bytes - self.position}"
        )

    def take(self, n_bytes: int, what: str) -> bytes:
        self.need(n_bytes, what)
        raw = self._file.read(n_bytes)
        if len(raw) != n_bytes:
            raise self.refuse(f"shrank while it was read: {what} at byte {self.position}")
        self.position += n_bytes
        return raw

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def string(self, what: str) -> str:
        return self.take(self.u64(what), what).decode("utf-8", "surrogateescape")

    def name(self, what: str) -> str:
        text = self.string(what)
        if len(text) > MAX_NAME_CHARACTERS:
            raise self.refuse(f"{what} at byte {self.position} has {len(text)} characters", f"at most {MAX_NAME_CHARACTERS}")
        if any("\udc80" <= char <= "\udcff" for char in text):
            raise self.refuse(f"{what} at byte {self.position} is not UTF-8")
        return text

    def count(self, what: str, item_bytes: int) -> int:
        count = self.u64(f"the number of {what}")
        if count * item_bytes > self._limit - self.position:
            raise self.refuse(f"promises {count} {what}, more than its {self._size_bytes} bytes can hold")
        return count


def _parse(path: Path, file: BinaryIO, size_bytes: int) -> GgufFile:
    reader = _HeaderReader(path, file, size_bytes)
    version = _check_start(reader, file.read(40), size_bytes)
    file.seek(8)
    reader.position = 8
    n_tensors = reader.count("tensors", MIN_TENSOR_BYTES)
    n_fields = reader.count("metadata fields", MIN_FIELD_BYTES)
    fields: dict[str, Field] = {}
    for _ in range(n_fields):
        key = reader.name("a metadata key")
        if key in fields:
            raise reader.refuse(f"has the metadata key {key!r} twice")
        fields[key] = _read_field(reader, key)
    places = [_read_tensor(reader) for _ in range(n_tensors)]
    alignment = _alignment(reader, fields.get(ALIGNMENT_KEY))
    header_bytes = reader.position
    data_offset = _padded(header_bytes, alignment)
    tensors = _place_tensors(reader, places, data_offset, alignment, size_bytes)
    return GgufFile(path, version, fields, tensors, header_bytes, data_offset, alignment, size_bytes)


def _check_start(reader: _HeaderReader, start: bytes, size_bytes: int) -> int:
    """The version, once the first bytes are known to be a GGUF file's."""
    if not start:
        raise reader.refuse("is empty")
    if start.startswith(b"version https://git-lfs"):
        raise reader.refuse("is a Git LFS pointer, not the model itself")
    if not start.startswith(MAGIC):
        raise reader.refuse(f"is not a GGUF file: it starts with {start[:4]!r}", repr(MAGIC))
    reader.need(24, "the header")
    version = int.from_bytes(start[4:8], "little")
    if version not in READABLE_VERSIONS:
        endian = " (a big-endian file)" if version and not version & 0xFFFF else ""
        raise reader.refuse(f"is GGUF version {version}{endian}", " or ".join(map(str, READABLE_VERSIONS)) + ", little endian")
    return version


def _read_field(reader: _HeaderReader, key: str) -> Field:
    code = reader.u32(f"the type of {key!r}")
    if code != ARRAY_CODE:
        return Field(_value_type(reader, key, code).name, _read_items(reader, key, _value_type(reader, key, code), 1)[0])
    kind = _value_type(reader, key, reader.u32(f"the item type of {key!r}"))
    count = reader.count(f"items of {key!r}", kind.size_bytes)
    if count > MAX_ARRAY_ITEMS:
        raise reader.refuse(f"promises {count} items of {key!r}", f"at most {MAX_ARRAY_ITEMS}")
    return Field(kind.name, _read_items(reader, key, kind, count))


def _value_type(reader: _HeaderReader, key: str, code: int) -> ValueType:
    if code not in VALUE_TYPES_BY_CODE:
        what = "an array of arrays" if code == ARRAY_CODE else f"type {code}"
        raise reader.refuse(f"the metadata field {key!r} is of {what}", ", ".join(kind.name for kind in VALUE_TYPES_BY_CODE.values()))
    return VALUE_TYPES_BY_CODE[code]


def _read_items(reader: _HeaderReader, key: str, kind: ValueType, count: int) -> tuple[Any, ...]:
    if kind.name == "str":
        return tuple(reader.string(repr(key)) for _ in range(count))
    return struct.unpack(f"<{count}{kind.format}", reader.take(count * kind.size_bytes, repr(key)))


def _read_tensor(reader: _HeaderReader) -> TensorInfo:
    """A tensor as the header lists it: its offset still counts from the start of the data."""
    name = reader.name("a tensor's name")
    n_dimensions = reader.u32(f"the dimensions of {name!r}")
    if n_dimensions > MAX_DIMENSIONS:
        raise reader.refuse(f"tensor {name!r} has {n_dimensions} dimensions", f"at most {MAX_DIMENSIONS}")
    shape = struct.unpack(f"<{n_dimensions}Q", reader.take(8 * n_dimensions, f"the shape of {name!r}"))[::-1]
    code = reader.u32(f"the type of {name!r}")
    if code not in TENSOR_TYPES_BY_CODE:
        raise reader.refuse(f"tensor {name!r} is of unknown type {code}", ", ".join(TENSOR_TYPES))
    type_name = TENSOR_TYPES_BY_CODE[code].name
    try:
        n_bytes = tensor_bytes(shape, type_name)
    except ValueError as error:
        raise reader.refuse(f"tensor {name!r}: {error}") from None
    return TensorInfo(name, shape, type_name, reader.u64(f"the offset of {name!r}"), n_bytes)


def _alignment(reader: _HeaderReader, field: Field | None) -> int:
    if field is None:
        return DEFAULT_ALIGNMENT
    value = field.value
    if field.type_name != "u32" or field.is_array or not 0 < value <= MAX_ALIGNMENT or value & (value - 1):
        raise reader.refuse(f"{ALIGNMENT_KEY} is {field.type_name} {value!r}", f"u32, a power of two up to {MAX_ALIGNMENT}")
    return value


def _place_tensors(reader: _HeaderReader, places: list[TensorInfo], data_offset: int, alignment: int, size_bytes: int) -> dict[str, TensorInfo]:
    """Offsets from the start of the file, each aligned, inside the file and overlapping no other."""
    tensors: dict[str, TensorInfo] = {}
    for place in places:
        offset = data_offset + place.offset
        if place.name in tensors:
            raise reader.refuse(f"has the tensor {place.name!r} twice")
        if place.offset % alignment:
            raise reader.refuse(f"tensor {place.name!r} is at offset {place.offset}", f"multiples of {alignment}")
        if offset + place.n_bytes > size_bytes:
            raise reader.refuse(f"is cut short: tensor {place.name!r} ends at byte {offset + place.n_bytes}, the file at {size_bytes}")
        tensors[place.name] = TensorInfo(place.name, place.shape, place.type_name, offset, place.n_bytes)
    end, before = 0, ""
    for info in sorted(tensors.values(), key=lambda info: (info.offset, info.n_bytes)):
        if info.offset < end:
            raise reader.refuse(f"tensors {before!r} and {info.name!r} overlap")
        end, before = info.offset + info.n_bytes, info.name
    return tensors


def _padded(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment


def encode_header(fields: Mapping[str, Field], tensors: Sequence[TensorSource], alignment: int) -> bytes:
    """Everything before the data, padding included; tensors lie in the order given, without gaps."""
    header = _encode_entries(with_alignment(fields, alignment), tensors, alignment)
    return header + bytes(-len(header) % alignment)


def header_entry_bytes(fields: Mapping[str, Field], tensors: Sequence[TensorSource], alignment: int) -> int:
    """Bytes of the header before its padding."""
    return len(_encode_entries(with_alignment(fields, alignment), tensors, alignment))


def _encode_entries(fields: Mapping[str, Field], tensors: Sequence[TensorSource], alignment: int) -> bytes:
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(fields))]
    parts += [encode_string(key) + field.encode() for key, field in fields.items()]
    offset = 0
    for tensor in tensors:
        shape = tensor.shape[::-1]
        parts.append(encode_string(tensor.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        parts.append(struct.pack("<IQ", TENSOR_TYPES[tensor.type_name].code, offset))
        offset += _padded(tensor.n_bytes, alignment)
    return b"".join(parts)


def with_alignment(fields: Mapping[str, Field], alignment: int) -> dict[str, Field]:
    """The fields with general.alignment set, in its old place if it was there."""
    if not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"alignment {alignment} is not a power of two up to {MAX_ALIGNMENT}")
    return {**fields, ALIGNMENT_KEY: Field("u32", alignment)}


def tensor_pieces(tensors: Iterable[TensorSource], alignment: int) -> Iterator[memoryview]:
    """What follows the header, as a stream; a tensor's bytes are asked for only when their turn has come."""
    for tensor in tensors:
        written = 0
        for piece in _pieces_of(tensor.read()):
            written += piece.nbytes
            yield piece
        if written != tensor.n_bytes:
            raise ValueError(f"tensor {tensor.name!r} gave {written} bytes, its shape and type need {tensor.n_bytes}")
        yield memoryview(bytes(-written % alignment))


def _pieces_of(data: Buffer | Iterable[Buffer]) -> Iterator[memoryview]:
    for piece in [cast(Buffer, data)] if isinstance(data, (bytes, bytearray, memoryview, np.ndarray)) else data:
        array = np.ascontiguousarray(piece) if isinstance(piece, np.ndarray) else np.frombuffer(piece, np.uint8)
        yield array.reshape(-1).view(np.uint8).data


def gguf_size_bytes(fields: Mapping[str, Field], tensors: Sequence[TensorSource], alignment: int) -> int:
    """Bytes of the file that write_gguf would make, known before it is made."""
    data_bytes = sum(_padded(tensor.n_bytes, alignment) for tensor in tensors)
    return len(encode_header(fields, tensors, alignment)) + data_bytes


def write_gguf(path: str | os.PathLike[str], fields: Mapping[str, Field], tensors: Iterable[TensorSource], alignment: int = 64) -> int:
    """Write a GGUF version 3 file in one pass, one tensor in memory at a time; returns its bytes.

    fields: typed, so that a value keeps its exact type (take GgufFile.fields, not .metadata)
    """
    tensors = list(tensors)
    with DurableFile(path, expected_bytes=gguf_size_bytes(fields, tensors, alignment)) as file:
        file.write(encode_header(fields, tensors, alignment))
        for piece in tensor_pieces(tensors, alignment):
            file.write(piece)
    return file.size_bytes
