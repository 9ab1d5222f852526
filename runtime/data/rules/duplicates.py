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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from .batch import SAMPLE_ONE_IN, SHINGLE_CHARS, shingle_hashes

BANDS, ROWS = 4, 3
"""Two texts of similarity 0.9 share one of 4 bands of 3 minima with probability 0.995."""
_GENERATION_TEXTS = 250_000
_GENERATION_BYTES = 128 << 20
"""Near duplicates are looked for among the last one to two generations; exact ones among all."""
_RUN_KEYS = 1 << 18
_EXACT_BITS, _BAND_BITS = 24, 21
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
    """A growing map from hashes to record numbers as a few sorted arrays: 8 or 12 bytes an entry.

    Whether some key with the same first bits is in it at all is looked up first, which answers most questions.
    """

    def __init__(self, first_bits: int) -> None:
        """first_bits: 2 to this power should be a few times the number of keys"""
        self._first_bits = first_bits
        self._taken = np.zeros(1 << (first_bits - 3), np.uint8)
        """a bit for each possible beginning of a key"""
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._runs)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """keys [n] -> [n] int64 record numbers, -1 where there is none"""
        found = np.full(len(keys), -1, np.int64)
        places, bits = self._places(keys)
        possible = np.flatnonzero(self._taken.take(places) & bits)
        # Looked up in their order, keys find most of a run in the processor's cache.
        order = possible.take(np.argsort(keys.take(possible)))
        sought = keys.take(order)
        for run, records in self._runs:
            at = np.searchsorted(run, sought)
            hit = np.flatnonzero(run.take(at, mode="clip") == sought)
            found[order.take(hit)] = records.take(at.take(hit))
        return found

    def _places(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """keys [n] -> byte numbers [n] int64 and bits [n] uint8 in the table of what is taken"""
        beginnings = (keys >> keys.dtype.type(8 * keys.itemsize - self._first_bits)).astype(np.int64)
        return beginnings >> 3, np.left_shift(1, beginnings & 7).astype(np.uint8)

    def add(self, keys: np.ndarray, records: np.ndarray) -> None:
        """Append; runs are merged while they are small, so that there are few and a merge never needs much memory."""
        if not len(keys):
            return
        order = np.argsort(keys, kind="stable")
        run = keys[order], records[order].astype(np.uint32)
        places, bits = self._places(run[0])
        first = np.flatnonzero(np.diff(places, prepend=-1))
        self._taken[places[first]] |= np.bitwise_or.reduceat(bits, first)
        while self._runs and len(self._runs[-1][0]) <= 2 * len(run[0]) and len(self._runs[-1][0]) + len(run[0]) <= _RUN_KEYS:
            run = _merged(self._runs.pop(), run)
        self._runs.append(run)


def _merged(before: tuple[np.ndarray, np.ndarray], run: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Two sorted runs as one; of equal keys those from before come first. A stable sort finds the two by itself."""
    joined = np.concatenate([before[0], run[0]])
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate([before[1], run[1]])[order]


class ExactDuplicates:
    """All conversations so far by hash."""

    def __init__(self) -> None:
        self._index = KeyIndex(_EXACT_BITS)

    def check(self, keys: np.ndarray, records: np.ndarray) -> np.ndarray:
        """keys [n], records [n] -> [n] int64: the record that had the key first, also within this batch, itself for a new one;
        new ones are remembered."""
        different, first_at, which = np.unique(keys, return_index=True, return_inverse=True)
        first, known = records.take(first_at), self._index.find(different)
        is_new = known < 0
        self._index.add(different[is_new], first[is_new])
        return np.where(is_new, first, known).take(which)


@dataclass(frozen=True)
class FoldedTexts:
    """Folded texts of a batch, one behind the other."""

    codes: np.ndarray
    """[F] uint16"""
    bounds: np.ndarray
    """[n + 1] int64 where each begins and ends"""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def limits(self) -> list[int]:
        return self.bounds.tolist()

    def text(self, number: int) -> np.ndarray:
        return self.codes[self.limits[number] : self.limits[number + 1]]

    def chosen(self, numbers: np.ndarray) -> FoldedTexts:
        """Those alone, in a copy; numbers [k] rise"""
        lengths = np.diff(self.bounds)
        is_chosen = np.zeros(len(lengths), bool)
        is_chosen[numbers] = True
        return FoldedTexts(np.compress(np.repeat(is_chosen, lengths), self.codes), np.concatenate([[0], np.cumsum(lengths[numbers])]))


class _Generation:
    """Some hundred thousand texts in a temporary file, and their band keys in memory."""

    def __init__(self, spool_dir: Path) -> None:
        self._file = tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=str(spool_dir))  # noqa: SIM115 (close() closes it)
        self._bands = [KeyIndex(_BAND_BITS) for _ in range(BANDS)]
        self._offsets, self._records = array("I", [0]), array("I")

    @property
    def is_full(self) -> bool:
        return len(self._records) >= _GENERATION_TEXTS or self._offsets[-1] >= _GENERATION_BYTES

    def add(self, texts: FoldedTexts, records: np.ndarray, band_keys: np.ndarray) -> None:
        """records [n] int64; band_keys [n, BANDS] uint32"""
        self._file.seek(self._offsets[-1])
        numbers = np.arange(len(self._records), len(self._records) + len(texts))
        self._file.write(texts.codes.tobytes())
        self._offsets.frombytes((texts.bounds[1:] * _CODE_BYTES + self._offsets[-1]).astype(np.uint32).tobytes())
        self._records.frombytes(records.astype(np.uint32).tobytes())
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

    def check(self, texts: FoldedTexts, chosen: np.ndarray, records: np.ndarray, minima: np.ndarray) -> dict[int, Twin]:
        """Number of a text -> its twin, of those that have one. New ones are remembered.

        chosen [k] numbers of the texts that are asked for; records [n] of all texts; minima [k, BANDS * ROWS] uint32 from `minhash`
        """
        keys = band_keys(minima)
        earlier = self._earlier(texts, chosen, keys)
        suspects = _shared(keys)
        suspects |= np.isin(chosen, list(earlier))
        twins: dict[int, Twin] = {}
        fresh: list[dict[int, int]] = [{} for _ in range(BANDS)]
        for place in np.flatnonzero(suspects).tolist():
            number, row = int(chosen[place]), keys[place].tolist()
            at_hand = list(dict.fromkeys(band[key] for band, key in zip(fresh, row) if key in band))
            likeness = similarities([texts.text(number)] * len(at_hand), list(map(texts.text, at_hand)), self._similarity)
            found = [Twin(int(records[at]), similarity) for at, similarity in zip(at_hand, likeness)]
            found += earlier.get(number, ())[: max(0, _CANDIDATES_MAX - len(found))]
            best = max(found, key=lambda twin: (twin.similarity, -twin.record), default=None)
            if best is not None and best.similarity >= self._similarity:
                twins[number] = best
            else:
                for band, key in zip(fresh, row):
                    band[key] = number
        is_new = ~np.isin(chosen, list(twins))
        self._remember(texts, chosen[is_new], records, keys[is_new])
        return twins

    def _earlier(self, texts: FoldedTexts, chosen: np.ndarray, keys: np.ndarray) -> dict[int, list[Twin]]:
        """Number of a text -> what it may repeat of the batches before, compared with it"""
        candidates: list[tuple[int, np.ndarray, int]] = []
        for generation in self._generations:
            found = generation.candidates(keys)
            for place in np.flatnonzero((found >= 0).any(axis=1)).tolist():
                candidates += [(int(chosen[place]), *generation.text(at)) for at in dict.fromkeys(found[place].tolist()) if at >= 0]
        likeness = similarities([texts.text(number) for number, _, _ in candidates], [text for _, text, _ in candidates], self._similarity)
        twins: dict[int, list[Twin]] = {}
        for (number, _, record), similarity in zip(candidates, likeness):
            twins.setdefault(number, []).append(Twin(record, similarity))
        return twins

    def _remember(self, texts: FoldedTexts, numbers: np.ndarray, records: np.ndarray, keys: np.ndarray) -> None:
        """numbers [k] of texts; keys [k, BANDS]"""
        if self._generations[-1].is_full:
            self._generations.append(_Generation(self._spool_dir))
            while len(self._generations) > 2:
                self._generations.pop(0).close()
        if len(numbers):
            self._generations[-1].add(texts.chosen(numbers), records[numbers], keys)

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


def exact_keys(texts: FoldedTexts, numbers: Iterable[int]) -> np.ndarray:
    """The hashes of some of the texts, uint64"""
    data, limits, hashed = np.ascontiguousarray(texts.codes, "<u2").data, texts.limits, hashlib.blake2b
    digests = [hashed(data[limits[number] : limits[number + 1]], digest_size=8).digest() for number in numbers]
    return np.frombuffer(b"".join(digests), "<u8")


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


def similarities(ones: Sequence[np.ndarray], others: Sequence[np.ndarray], least: float = 0.0) -> list[float]:
    """Jaccard similarities of folded texts' shingle sets, pair by pair; 0 where they are below `least`, or the digits differ.

    |A ∪ B| + |A ∩ B| = |A| + |B|, so sets of similarity s differ in (1 - s) / (1 + s) of |A| + |B| shingles. Most pairs
    differ in more already where a sample of the shingles is looked at.
    """
    likely = list(range(len(ones)))
    if ones and least:
        most = 1e-6 + (1 - least) / (1 + least) * np.array([len(one) + len(other) for one, other in zip(ones, others)])
        n_first, n_second, n_shared = _set_sizes(ones, others, SAMPLE_ONE_IN)
        likely = np.flatnonzero(n_first + n_second - 2 * n_shared <= most).tolist()
    found = [0.0] * len(ones)
    if likely:
        n_first, n_second, n_shared = _set_sizes([ones[pair] for pair in likely], [others[pair] for pair in likely], 1)
        for pair, likeness in zip(likely, (n_shared / np.maximum(1, n_first + n_second - n_shared)).tolist()):
            one, other = ones[pair], others[pair]
            if likeness >= least and np.array_equal(one[_is_digit(one)], other[_is_digit(other)]):
                found[pair] = likeness
    return found


def _set_sizes(ones: Sequence[np.ndarray], others: Sequence[np.ndarray], one_in: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each pair [n] how many different shingles one has, the other has, and both have, of those whose hash divides by one_in"""
    first, second = _shingle_sets(ones, one_in), _shingle_sets(others, one_in)
    shared = np.intersect1d(first, second, assume_unique=True)
    sizes = [np.bincount(keys >> np.uint64(32), minlength=len(ones)) for keys in (first, second, shared)]
    return sizes[0], sizes[1], sizes[2]


def _shingle_sets(texts: Sequence[np.ndarray], one_in: int) -> np.ndarray:
    """[k] uint64: text number << 32 | hash of each of its shingles, each once, sorted"""
    lengths = np.array([len(text) for text in texts])
    hashes = shingle_hashes(np.concatenate(texts).astype(np.uint32))
    last = np.repeat(np.cumsum(lengths) - SHINGLE_CHARS, lengths)[: len(hashes)]
    is_used = (np.arange(len(hashes)) <= last) & (hashes & np.uint32(one_in - 1) == 0)
    owner = np.repeat(np.arange(len(texts), dtype=np.uint64), lengths)[: len(hashes)]
    return np.unique(owner[is_used] << np.uint64(32) | hashes[is_used])


def _is_digit(codes: np.ndarray) -> np.ndarray:
    return (codes >= 0x30) & (codes <= 0x39)
