"""Checkpoints: everything a run needs to go on as if it had never stopped.

In:  named arrays (adapter, optimizer moments) and JSON facts (step, schedule, data position, random state, fingerprints).
Out: one checksummed file per checkpoint; on loading, the newest one that is intact.
Layout: magic, length and bytes of a JSON header, the arrays' bytes one after the other, sha256 over all of that.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .durable import DurableFile, canonical_json, make_directory, remove

MAGIC = b"MFTCKPT1"
KEPT = 2
"""the newest may turn out damaged, so the one before it stays"""
_NAME = re.compile(r"checkpoint-(\d{8})\.mftc")
_DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was loaded."""

    path: Path
    state: Mapping[str, np.ndarray]
    meta: Mapping[str, Any]
    passed_over: tuple[str, ...]
    """newer checkpoints that were damaged, each with its reason; say so to the user"""


def save(directory: Path, state: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Path:
    """Write the next checkpoint and drop all but the newest KEPT; `meta` must survive JSON unchanged."""
    make_directory(directory)
    numbers = [number for number, _ in _files(directory)]
    path = directory / f"checkpoint-{max(numbers, default=0) + 1:08d}.mftc"
    arrays = {name: np.ascontiguousarray(array) for name, array in state.items()}
    head = _header(arrays, meta)
    n_bytes = len(head) + sum(array.nbytes for array in arrays.values()) + 32
    digest = hashlib.sha256()
    with DurableFile(path, expected_bytes=n_bytes) as file:
        for piece in (memoryview(head), *map(_bytes_of, arrays.values())):
            file.write(piece)
            digest.update(piece)
        file.write(digest.digest())
    for _, old in _files(directory)[KEPT:]:
        remove(old)
    return path


def load_newest(directory: Path) -> Checkpoint | None:
    """The newest intact checkpoint; None when there is none at all; UserError when all there are is damaged."""
    passed_over: list[str] = []
    for _, path in _files(directory):
        try:
            state, meta = _load(path)
        except UserError as error:
            passed_over.append(str(error))
            continue
        return Checkpoint(path, state, meta, tuple(passed_over))
    if passed_over:
        raise UserError(str(directory), "every checkpoint is damaged: " + "; ".join(passed_over), remedy="start again without --resume")
    return None


def discard(directory: Path) -> None:
    """Remove all checkpoints, once the run they belong to is complete."""
    for _, path in _files(directory):
        remove(path)


def _files(directory: Path) -> list[tuple[int, Path]]:
    """Number and path, newest first."""
    if not directory.is_dir():
        return []
    matches = ((_NAME.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _header(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> bytes:
    entries = []
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES:
            raise ValueError(f"checkpoint array {name!r} is {array.dtype}, one of {', '.join(_DTYPES)} is needed")
        entries.append({"name": name, "dtype": array.dtype.name, "shape": list(array.shape)})
    raw = canonical_json({"arrays": entries, "meta": dict(meta)})
    if json.loads(raw)["meta"] != dict(meta):
        raise ValueError("checkpoint meta does not survive JSON: use only strings as keys, lists, and finite numbers")
    return MAGIC + struct.pack("<Q", len(raw)) + raw


def _load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """UserError says why the file is not a whole checkpoint."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(str(path), f"cannot be read ({error.strerror})") from None
    if len(raw) < len(MAGIC) + 8 + 32 or not raw.startswith(MAGIC):
        raise UserError(str(path), "is not a checkpoint of this runtime or is cut short")
    if hashlib.sha256(raw[:-32]).digest() != raw[-32:]:
        raise UserError(str(path), "is damaged: its checksum does not match")
    start = len(MAGIC) + 8
    end = start + struct.unpack_from("<Q", raw, len(MAGIC))[0]
    header = json.loads(raw[start:end])
    state = {}
    for entry in header["arrays"]:
        count = math.prod(entry["shape"])
        values = np.frombuffer(raw, entry["dtype"], count, end) if count else np.empty(0, entry["dtype"])
        state[entry["name"]] = values.reshape(entry["shape"]).copy()
        end += values.nbytes
    return state, header["meta"]
