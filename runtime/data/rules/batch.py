"""Counts over many texts at once, so that rules cost nanoseconds per character instead of microseconds per text.

In:  the turns of a few thousand conversations.
Out: TextBatch: per-turn counts of letters, digits and visible characters, long runs, hashed 5-character shingles.
All texts stand in one array of code points, each followed by one separator, so no turn's stretch is empty.
"""

# Shapes: C code points of the batch, separators included · T turns · S shingles

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from ..text.languages import DIGIT, OTHER, SCRIPTS, SPACE, class_table

SHINGLE_CHARS = 5
_SHINGLE_FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
SAMPLE_ONE_IN = 4
"""A power of two. Shingles whose hash divides by this are looked at; the choice depends on the shingle alone, so equal texts choose equally."""
_USUAL_FIRST = sorted(range(1, len(SCRIPTS) + 1), key=lambda number: SCRIPTS[number - 1] not in ("Latin", "Han"))
_RUN_EXEMPT = frozenset("-=_*.~#…─━—·•+|/\\<>")


class TextBatch:
    """Texts and what is counted in them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.joined = "\n".join(texts) + "\n"
        self.lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        self.codes = np.frombuffer(self.joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        self.stops = np.cumsum(self.lengths + 1) - 1
        """[T] where each turn's separator is"""
        self.starts = self.stops - self.lengths
        """[T]"""

    @cached_property
    def classes(self) -> np.ndarray:
        """[C] uint8"""
        return class_table().take(self.codes)

    def per_turn(self, is_counted: np.ndarray) -> np.ndarray:
        """is_counted [C] bool -> [T] how many characters of each turn are"""
        return np.add.reduceat(is_counted.view(np.uint8), self.starts, dtype=np.int64) if len(self.starts) else self.starts

    def count(self, numbers: Sequence[int]) -> np.ndarray:
        """[T] how many characters are of one of these classes"""
        is_counted = np.zeros(len(self.classes), bool)
        for number in numbers:
            is_counted |= self.classes == number
        return self.per_turn(is_counted)

    @cached_property
    def letters(self) -> np.ndarray:
        """[T] letters of any script"""
        return self.per_turn(self._is_letter)

    @cached_property
    def _is_letter(self) -> np.ndarray:
        """[C] bool"""
        return (self.classes > OTHER) & (self.classes < DIGIT)

    @cached_property
    def digits(self) -> np.ndarray:
        """[T]"""
        return self.per_turn(self.classes == DIGIT)

    @cached_property
    def visible(self) -> np.ndarray:
        """[T] characters that are not white space; the separator is white space"""
        return self.per_turn(self.classes != SPACE)

    @cached_property
    def letters_by_script(self) -> dict[str, int]:
        """Letters of the whole batch, scripts without any left out."""
        counts: dict[str, int] = {}
        left = int(np.count_nonzero(self._is_letter))
        for number in _USUAL_FIRST:
            if left == 0:
                break
            if count := int(np.count_nonzero(self.classes == number)):
                counts[SCRIPTS[number - 1]] = count
                left -= count
        return {name: counts[name] for name in SCRIPTS if name in counts}

    def turns_at(self, positions: Sequence[int]) -> list[int]:
        """The turns in which these positions of the joined text lie, each once."""
        return np.unique(np.searchsorted(self.stops, positions)).tolist()

    @cached_property
    def has_surrogate(self) -> bool:
        """Whether any text holds half of a surrogate pair, which no encoding of text allows."""
        return bool(((self.codes >= 0xD800) & (self.codes <= 0xDFFF)).any())

    def turns_with_run(self, longest: int) -> dict[int, str]:
        """Turns in which one character, not a digit, space or ruling sign, occurs more than `longest` times in a row."""
        same = self.codes[1:] == self.codes[:-1]
        width = 1  # same[i] now says: codes[i .. i+width] are all equal
        while width < longest and same.any():
            step = min(width, longest - width)
            same = same[step:] & same[:-step] if len(same) > step else same[:0]
            width += step
        found: dict[int, str] = {}
        for at in np.flatnonzero(same).tolist():
            character = chr(self.codes[at])
            if self.classes[at] not in (DIGIT, SPACE) and character not in _RUN_EXEMPT:
                found.setdefault(self.turn_at(at), character)
        return found

    def turn_at(self, position: int) -> int:
        """The turn in which a position of the joined text lies."""
        return int(np.searchsorted(self.stops, position))


@lru_cache(maxsize=1)
def fold_table() -> np.ndarray:
    """uint32 [0x110000]: case and width folded away, white space to 0 (left out of comparisons)."""
    table = np.arange(0x110000, dtype=np.uint32)
    table[0xFF01:0xFF5F] -= 0xFEE0
    for code in (*range(0x41, 0x3000), *range(0xFF21, 0xFF3B)):
        lowered = chr(table[code]).lower()
        if len(lowered) == 1:
            table[code] = ord(lowered)
    table[class_table() == SPACE] = 0
    return table


class FoldedBatch:
    """The batch as comparisons see it: folded, without white space and without system turns, turns marked by their role.

    Role marks are the code points 1 to 4, which no text holds in earnest.
    """

    def __init__(self, batch: TextBatch, role_marks: np.ndarray, skipped: np.ndarray) -> None:
        """role_marks [T] uint8; skipped [T] bool: turns left out"""
        folded = fold_table().take(batch.codes)
        folded[batch.stops] = role_marks
        for turn in np.flatnonzero(skipped).tolist():
            folded[batch.starts[turn] : batch.stops[turn] + 1] = 0
        is_kept = folded != 0
        self.codes = np.compress(is_kept, folded)
        """[F] uint32"""
        self.turn_bounds = np.concatenate([[0], np.cumsum(batch.per_turn(is_kept))])
        """[T + 1]"""

    @cached_property
    def codes16(self) -> np.ndarray:
        """[F] uint16, what texts are remembered and compared by: beyond the basic plane (emoji, rare Han) the code point modulo 65,536"""
        return self.codes.astype(np.uint16)

    @cached_property
    def shingles(self) -> np.ndarray:
        """[max(0, F - 4)] uint32: a hash of every 5 code points; those across two conversations are for the caller to leave out"""
        return shingle_hashes(self.codes)

    @cached_property
    def sampled(self) -> np.ndarray:
        """[S] positions of the shingles that are looked at"""
        return np.flatnonzero((self.shingles & np.uint32(SAMPLE_ONE_IN - 1)) == 0)

    @cached_property
    def sampled_shingles(self) -> np.ndarray:
        """[S] uint32 their hashes"""
        return self.shingles.take(self.sampled)


def shingle_hashes(codes: np.ndarray) -> np.ndarray:
    """codes [F] uint32 -> [max(0, F - 4)] uint32, multiply-add with odd constants and a final mix (Murmur3's)"""
    count = max(0, len(codes) - SHINGLE_CHARS + 1)
    hashes = codes[:count] * np.uint32(_SHINGLE_FACTORS[0])
    part = np.empty_like(hashes)
    for place, factor in enumerate(_SHINGLE_FACTORS[1:], start=1):
        hashes += np.multiply(codes[place : place + count], np.uint32(factor), out=part)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes ^= np.right_shift(hashes, np.uint32(shift), out=part)
        hashes *= np.uint32(factor)
    hashes ^= np.right_shift(hashes, np.uint32(16), out=part)
    return hashes
