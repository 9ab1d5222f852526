"""Which texts of a batch hold which of many literal words: one pass over the characters, however many words there are.

In:  lower-case words of all rules.
Out: for a batch, turn numbers by word.
Words are found by a hash of their first (up to four) characters looked up in a table; shorter groups cost a pass each.
"""

from __future__ import annotations

from typing import Iterable

import numpy as np

_TABLE_BITS = 16
_FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)


class WordFinder:
    """A fixed set of words, found in either case."""

    def __init__(self, words: Iterable[str]) -> None:
        wanted = sorted({word.lower() for word in words if word})
        groups = ((4, [word for word in wanted if len(word) >= 4]), (2, [word for word in wanted if 2 <= len(word) < 4]),
                  (1, [word for word in wanted if len(word) == 1]))
        self._tables = [_PrefixTable(length, group) for length, group in groups if group]

    def find(self, text: str, codes: np.ndarray) -> dict[str, list[int]]:
        """Word (in lower case) -> positions in the text, for the words that are in it. codes: the text's code points"""
        found: dict[str, list[int]] = {}
        for table in self._tables:
            table.find(text, codes, found)
        return found


class _PrefixTable:
    """Words by the hash of their first characters."""

    def __init__(self, length: int, words: list[str]) -> None:
        self._length = length
        self._by_prefix: dict[str, list[str]] = {}
        for word in words:
            self._by_prefix.setdefault(word[:length], []).append(word)
        self._table = np.zeros(1 << _TABLE_BITS, bool)
        prefixes = np.array([[ord(character) for character in prefix] for prefix in self._by_prefix], np.uint32)
        self._table[_hashes(prefixes.T)] = True

    def find(self, text: str, codes: np.ndarray, found: dict[str, list[int]]) -> None:
        count = len(codes) - self._length + 1
        if count <= 0:
            return
        hashes = _hashes(codes[place:place + count] for place in range(self._length))
        for at in np.flatnonzero(self._table[hashes]).tolist():
            for word in self._by_prefix.get(text[at:at + self._length].lower(), ()):
                if text[at:at + len(word)].lower() == word:
                    found.setdefault(word, []).append(at)


def _hashes(columns: Iterable[np.ndarray]) -> np.ndarray:
    """Code points place by place -> table places; bit 5 is left out, which makes the two cases of A to Z one"""
    total = np.uint32(0)
    for column, factor in zip(columns, _FACTORS):
        total = total + (column | np.uint32(0x20)) * np.uint32(factor)
    return total >> np.uint32(32 - _TABLE_BITS)
