"""The training cache: one self-contained file with everything a training run needs to know of the data.

In:  samples as they are made (nothing of them stays in memory), then one header.
Out: TrainingCache, mapped: samples by split, header, decisions, extras.
Layout, little endian: magic 8 B · version u32 · header length u32 · header JSON · token ids i32 · label spans i32 ·
sample table i64 · decisions JSONL · extras JSONL · SHA-256 of all before. The header holds each section's length.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import UserError
from ..storage.durable import DurableFile, make_directory

MAGIC = b"MFTCACHE"
VERSION = 1
SECTIONS = ("tokens", "spans", "table", "decisions", "extras")
COLUMNS = ("token_offset", "n_tokens", "span_offset", "n_spans", "record", "source", "line", "heldout")
Split = Literal["train", "heldout"]
_FIXED = struct.Struct("<8sII")
_ALIGN_BYTES = 64
_COPY_BYTES = 1 << 20
_SPOOL_BYTES = 1 << 20
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Sample:
    """One sample as the trainer reads it."""

    token_ids: np.ndarray
    """int32 [n], n <= window_tokens"""
    label_mask: np.ndarray
    """uint8 [n]; 1: this token is to be predicted; at least one is"""
    record: int
    """number of the kept conversation it came from, from 0; see TrainingCache.provenance"""


class CacheWriter:
    """Collects samples in unnamed temporary files beside the target and writes the cache in one atomic step."""

    def __init__(self, spool_dir: Path) -> None:
        self._spools = {name: tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=str(spool_dir)) for name in SECTIONS}  # noqa: SIM115 (close() closes them)
        self._n_tokens = self._n_spans = self.n_samples = self.n_labels = 0

    def add(self, token_ids: np.ndarray, label_mask: np.ndarray, record: int, source: int, line: int, heldout: bool) -> None:
        """Append one sample."""
        edges = np.flatnonzero(np.diff(np.concatenate([[0], label_mask, [0]]).astype(np.int8)))
        row = np.array([self._n_tokens, len(token_ids), self._n_spans, len(edges) // 2, record, source, line, heldout], "<i8")
        self._spools["tokens"].write(np.ascontiguousarray(token_ids, "<i4").tobytes())
        self._spools["spans"].write(edges.astype("<i4").tobytes())
        self._spools["table"].write(row.tobytes())
        self._n_tokens += len(token_ids)
        self._n_spans += len(edges) // 2
        self.n_samples += 1
        self.n_labels += int(label_mask.sum())

    @property
    def n_tokens(self) -> int:
        return self._n_tokens

    def add_line(self, section: Literal["decisions", "extras"], value: Mapping[str, Any]) -> None:
        """Append one JSON line to a section."""
        self._spools[section].write((json.dumps(value, ensure_ascii=False, sort_keys=True) + "\n").encode("utf-8", "backslashreplace"))

    def finish(self, path: Path, header: Mapping[str, Any], heldout_override: set[int] | None) -> None:
        """Write the file. `heldout_override`: the records held out, instead of those that `add` was given; None: those."""
        lengths = {name: spool.tell() for name, spool in self._spools.items()}
        head = json.dumps({**header, "sections": lengths}, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
        digest = hashlib.sha256()
        make_directory(path.parent)
        expected = len(head) + sum(lengths.values()) + (len(SECTIONS) + 1) * _ALIGN_BYTES + _DIGEST_BYTES
        with DurableFile(path, expected_bytes=expected) as target:

            def put(data: bytes) -> None:
                digest.update(data)
                target.write(data)

            put(_FIXED.pack(MAGIC, VERSION, len(head)) + head)
            position = _FIXED.size + len(head)
            for name in SECTIONS:
                put(b"\0" * (-position % _ALIGN_BYTES))
                position += -position % _ALIGN_BYTES + lengths[name]
                for chunk in self._chunks(name):
                    put(_with_heldout(chunk, heldout_override) if name == "table" and heldout_override is not None else chunk)
            target.write(digest.digest())

    def _chunks(self, name: str) -> Iterator[bytes]:
        spool = self._spools[name]
        spool.seek(0)
        while chunk := spool.read(_COPY_BYTES):
            yield chunk

    def windows_of(self, records: set[int]) -> int:
        """How many samples belong to these records."""
        rows = (np.frombuffer(chunk, "<i8").reshape(-1, len(COLUMNS)) for chunk in self._chunks("table"))
        return sum(int(np.isin(part[:, COLUMNS.index("record")], list(records)).sum()) for part in rows)

    def close(self) -> None:
        """Forget everything that was not written."""
        for spool in self._spools.values():
            spool.close()


def _with_heldout(chunk: bytes, records: set[int]) -> bytes:
    table = np.frombuffer(chunk, "<i8").reshape(-1, len(COLUMNS)).copy()
    table[:, COLUMNS.index("heldout")] = np.isin(table[:, COLUMNS.index("record")], list(records))
    return table.tobytes()


class TrainingCache:
    """A cache file, checked and mapped."""

    def __init__(self, path: Path, header: dict, sections: dict[str, memoryview]) -> None:
        self.path, self.header = path, header
        self._tokens = np.frombuffer(sections["tokens"], "<i4")
        self._spans = np.frombuffer(sections["spans"], "<i4").reshape(-1, 2)
        self._table = np.frombuffer(sections["table"], "<i8").reshape(-1, len(COLUMNS))
        self._lines = {name: sections[name] for name in ("decisions", "extras")}

    @classmethod
    def load(cls, path: str | Path) -> TrainingCache:
        """Open a cache. UserError when it is missing, of another version, cut off or damaged."""
        path = Path(path)
        try:
            with open(path, "rb") as stream:
                data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is empty"
            raise UserError(str(path), f"cannot be read ({reason})", remedy="run ingest again") from None
        header, start = _read_header(data, path)
        sections: dict[str, memoryview] = {}
        for name in SECTIONS:
            start += -start % _ALIGN_BYTES
            sections[name] = data[start : start + header["sections"][name]]
            start += header["sections"][name]
        if len(data) != start + _DIGEST_BYTES or _digest(data[:start]) != data[start:]:
            raise UserError(str(path), "is cut off or damaged: its checksum is wrong", remedy="delete it and run ingest again")
        return cls(path, header, sections)

    @property
    def fingerprint(self) -> str:
        """Hash over inputs, rules, tokenizer and settings: equal fingerprint, equal samples."""
        return self.header["fingerprint"]

    @property
    def report(self) -> dict:
        """The rule report, as IngestReport.as_json gave it."""
        return self.header["report"]

    def samples(self, split: Split) -> Sequence[Sample]:
        """The samples of a split in the order of the input; a view, each sample is built when it is asked for."""
        if split not in ("train", "heldout"):
            raise ValueError(f"split {split!r} is not train or heldout")
        rows = np.flatnonzero(self._table[:, COLUMNS.index("heldout")] == (split == "heldout"))
        return _Samples(self, rows)

    def sample(self, row: int) -> Sample:
        """The sample in a row of the table."""
        token_offset, n_tokens, span_offset, n_spans, record = self._table[row, :5].tolist()
        mask = np.zeros(n_tokens, np.uint8)
        for first, last in self._spans[span_offset : span_offset + n_spans].tolist():
            mask[first:last] = 1
        return Sample(self._tokens[token_offset : token_offset + n_tokens], mask, record)

    def provenance(self, record: int) -> tuple[str, int]:
        """(file, line) that a kept conversation came from."""
        column = self._table[:, COLUMNS.index("record")]
        row = self._table[int(np.searchsorted(column, record))]
        return self.header["sources"][int(row[COLUMNS.index("source")])]["name"], int(row[COLUMNS.index("line")])

    def decisions(self) -> Iterator[dict]:
        """Every record that was dropped or changed: file, line, rule, detail, excerpt."""
        return self._json_lines("decisions")

    def extras(self) -> Iterator[dict]:
        """What kept conversations had beside their turns: record, title, author, pair (a preference row as it was)."""
        return self._json_lines("extras")

    def _json_lines(self, name: str) -> Iterator[dict]:
        view, start = self._lines[name], 0
        while start < len(view):
            block = bytes(view[start : start + _COPY_BYTES])
            cut = block.rfind(b"\n") + 1
            while cut == 0:
                block = bytes(view[start : start + 2 * len(block)])
                cut = block.rfind(b"\n") + 1
            yield from map(json.loads, block[:cut].split(b"\n")[:-1])
            start += cut


class _Samples(Sequence):
    """Samples of some rows of a cache, built on access."""

    def __init__(self, cache: TrainingCache, rows: np.ndarray) -> None:
        self._cache, self._rows = cache, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):  # type: ignore[override]
        if isinstance(index, slice):
            return [self._cache.sample(int(row)) for row in self._rows[index]]
        return self._cache.sample(int(self._rows[index]))


def _read_header(data: memoryview, path: Path) -> tuple[dict, int]:
    if len(data) < _FIXED.size or bytes(data[:8]) != MAGIC:
        raise UserError(str(path), "is not a training cache", remedy="run ingest again")
    _, version, length = _FIXED.unpack(data[: _FIXED.size])
    if version != VERSION:
        raise UserError(str(path), f"has cache version {version}, this runtime reads {VERSION}", remedy="run ingest again")
    try:
        header = json.loads(bytes(data[_FIXED.size : _FIXED.size + length]))
        if not all(isinstance(header["sections"][name], int) and header["sections"][name] >= 0 for name in SECTIONS):
            raise ValueError("section lengths")
    except (ValueError, KeyError, TypeError):
        raise UserError(str(path), "is cut off or damaged: its header cannot be read", remedy="delete it and run ingest again") from None
    return header, _FIXED.size + length


def _digest(data: memoryview) -> bytes:
    digest = hashlib.sha256()
    for start in range(0, len(data), _COPY_BYTES):
        digest.update(data[start : start + _COPY_BYTES])
    return digest.digest()
