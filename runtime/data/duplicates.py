"""Which conversations are the same as one before, exactly or nearly, in bounded memory.

In:  folded texts of conversations in the order of the input.
Out: for each, None or the number of the earlier one and the similarity.
Exact ones are found among all conversations by a 64-bit hash. Near ones are looked up by MinHash bands (Broder 1997) and then
compared for real, shingle set against shingle set; texts whose digits differ are never near: a price is a fact.
"""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .batch import shingle_hashes

BANDS, ROWS = 4, 3
"""Two texts of similarity 0.9 share one of 4 bands of 3 minima with probability 0.995."""
_GENERATION_TEXTS = 250_000
_GENERATION_BYTES = 128 << 20
"""Near duplicates are looked for among the last one to two generations; exact ones among all."""
_RUN_KEYS = 1 << 20
_CANDIDATES_MAX = 8
_SPOOL_BYTES = 1 << 20
_CODE_BYTES = 2


@dataclass(frozen=True)
class Twin:
    """The earlier conversation that a new one repeats."""

    record: int
    similarity: float
    """1.0: the same but for case, width and white space"""


class KeyIndex:
    """A growing map from 64-bit keys to record numbers as a few sorted arrays: 12 bytes an entry."""

    def __init__(self) -> None:
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._runs)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """keys [n] uint64 -> [n] int64 record numbers, -1 where there is none"""
        found = np.full(len(keys), -1, np.int64)
        for run, records in self._runs:
            at = np.searchsorted(run, keys)
            at[at == len(run)] = 0
            hit = run[at] == keys
            found[hit] = records[at[hit]]
        return found

    def add(self, keys: np.ndarray, records: np.ndarray) -> None:
        """Append; runs are merged while they are small, so that there are few and a merge never needs much memory."""
        order = np.argsort(keys, kind="stable")
        run = keys[order], records[order].astype(np.uint32)
        while self._runs and len(self._runs[-1][0]) <= 2 * len(run[0]) and len(self._runs[-1][0]) + len(run[0]) <= _RUN_KEYS:
            last = self._runs.pop()
            joined = np.concatenate([last[0], run[0]])
            order = np.argsort(joined, kind="stable")
            run = joined[order], np.concatenate([last[1], run[1]])[order]
        self._runs.append(run)


class ExactDuplicates:
    """All conversations so far by hash."""

    def __init__(self) -> None:
        self._index = KeyIndex()

    def check(self, keys: np.ndarray, records: np.ndarray) -> list[int | None]:
        """For each key the record that had it first, also within this batch; new ones are remembered."""
        earlier = self._index.find(keys).tolist()
        fresh: dict[int, int] = {}
        answers: list[int | None] = []
        for key, record, known in zip(keys.tolist(), records.tolist(), earlier):
            first = known if known >= 0 else fresh.setdefault(key, record)
            answers.append(None if first == record else first)
        if fresh:
            self._index.add(np.fromiter(fresh, np.uint64, len(fresh)), np.fromiter(fresh.values(), np.int64, len(fresh)))
        return answers


class _Generation:
    """Some hundred thousand texts in a temporary file, and their band keys in memory."""

    def __init__(self, spool_dir: Path) -> None:
        self._file = tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=spool_dir)
        self._bands = [KeyIndex() for _ in range(BANDS)]
        self._offsets = array("q", [0])
        self._records = array("q")

    @property
    def is_full(self) -> bool:
        return len(self._records) >= _GENERATION_TEXTS or self._offsets[-1] >= _GENERATION_BYTES

    def add(self, texts: list[np.ndarray], records: list[int], band_keys: np.ndarray) -> None:
        """band_keys [n, BANDS] uint32"""
        self._file.seek(self._offsets[-1])
        numbers = np.arange(len(self._records), len(self._records) + len(texts))
        self._file.write(np.concatenate(texts).tobytes())
        ends = np.cumsum([len(text) for text in texts]) * _CODE_BYTES + self._offsets[-1]
        self._offsets.extend(ends.tolist())
        self._records.extend(records)
        for band, index in enumerate(self._bands):
            index.add(band_keys[:, band], numbers)

    def candidates(self, band_keys: np.ndarray) -> np.ndarray:
        """band_keys [n, BANDS] -> [n, BANDS] text numbers of this generation, -1 where there is none"""
        return np.stack([index.find(band_keys[:, band]) for band, index in enumerate(self._bands)], axis=1)

    def text(self, number: int) -> tuple[np.ndarray, int]:
        """The folded text and its record."""
        self._file.seek(self._offsets[number])
        data = self._file.read(self._offsets[number + 1] - self._offsets[number])
        return np.frombuffer(data, np.uint16), self._records[number]

    def close(self) -> None:
        self._file.close()


class NearDuplicates:
    """Recent conversations by MinHash, compared by their shingles."""

    def __init__(self, similarity: float, spool_dir: Path) -> None:
        self._similarity, self._spool_dir = similarity, spool_dir
        self._generations = [_Generation(spool_dir)]

    def check(self, texts: list[np.ndarray], records: list[int], minima: np.ndarray) -> list[Twin | None]:
        """texts: folded 16-bit codes; minima [n, BANDS * ROWS] uint32 from `minhash`. New ones are remembered."""
        keys = band_keys(minima)
        earlier = [(generation, generation.candidates(keys)) for generation in self._generations]
        suspects = _shared(keys) | np.any([(found >= 0).any(axis=1) for _, found in earlier], axis=0)
        fresh: list[dict[int, int]] = [{} for _ in range(BANDS)]
        answers: list[Twin | None] = [None] * len(texts)
        for number in np.flatnonzero(suspects).tolist():
            row = keys[number].tolist()
            twins = [(texts[at], records[at]) for at in self._fresh_candidates(fresh, row)]
            for generation, found in earlier:
                twins += [generation.text(at) for at in dict.fromkeys(found[number].tolist()) if at >= 0]
            answers[number] = self._best(texts[number], twins[:_CANDIDATES_MAX]) if twins else None
            if answers[number] is None:
                for band, key in zip(fresh, row):
                    band[key] = number
        kept = [number for number, twin in enumerate(answers) if twin is None]
        self._remember([texts[number] for number in kept], [records[number] for number in kept], keys[kept])
        return answers

    def _fresh_candidates(self, fresh: list[dict[int, int]], row: list[int]) -> list[int]:
        return list(dict.fromkeys(band[key] for band, key in zip(fresh, row) if key in band))

    def _best(self, text: np.ndarray, twins: list[tuple[np.ndarray, int]]) -> Twin | None:
        scored = [Twin(record, similarity_of(text, other)) for other, record in twins]
        best = max(scored, key=lambda twin: (twin.similarity, -twin.record))
        return best if best.similarity >= self._similarity else None

    def _remember(self, texts: list[np.ndarray], records: list[int], keys: np.ndarray) -> None:
        if self._generations[-1].is_full:
            self._generations.append(_Generation(self._spool_dir))
            while len(self._generations) > 2:
                self._generations.pop(0).close()
        if texts:
            self._generations[-1].add(texts, records, keys)

    def close(self) -> None:
        for generation in self._generations:
            generation.close()


def _shared(keys: np.ndarray) -> np.ndarray:
    """keys [n, BANDS] -> [n] bool: another row has one of this row's keys"""
    shared = np.zeros(len(keys), bool)
    for column in keys.T:
        _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
        shared |= counts[inverse] > 1
    return shared


def exact_keys(texts: list[np.ndarray]) -> np.ndarray:
    """Folded texts -> [n] uint64"""
    digests = b"".join(hashlib.blake2b(text.tobytes(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<u8")


def minhash(hashes: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Sampled shingle hashes [S] in stretches [n + 1], none empty -> minima [n, BANDS * ROWS] uint32

    Each column is the minimum under another multiply-xorshift permutation of the 32-bit hashes.
    """
    minima = np.empty((len(bounds) - 1, BANDS * ROWS), np.uint32)
    for column in range(BANDS * ROWS):
        mixed = (hashes ^ np.uint32(0x9E3779B9 * (column + 1) & 0xFFFFFFFF)) * np.uint32(0x2C1B3C6D + 2 * column)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(0x297A2D39)
        minima[:, column] = np.minimum.reduceat(mixed, bounds[:-1])
    return minima


def band_keys(minima: np.ndarray) -> np.ndarray:
    """[n, BANDS * ROWS] -> [n, BANDS] uint32: the minima of a band mixed into one key"""
    keys = np.zeros((len(minima), BANDS), np.uint32)
    for row in range(ROWS):
        keys = (keys ^ minima[:, row::ROWS]) * np.uint32(0x01000193)
        keys ^= keys >> np.uint32(15)
    return keys


def similarity_of(one: np.ndarray, other: np.ndarray) -> float:
    """Jaccard similarity of two folded texts' shingle sets; 0 when their digits differ."""
    if not np.array_equal(one[_is_digit(one)], other[_is_digit(other)]):
        return 0.0
    first, second = (np.unique(shingle_hashes(text.astype(np.uint32))) for text in (one, other))
    shared = len(np.intersect1d(first, second, assume_unique=True))
    return shared / max(1, len(first) + len(second) - shared)


def _is_digit(codes: np.ndarray) -> np.ndarray:
    return (codes >= 0x30) & (codes <= 0x39)
