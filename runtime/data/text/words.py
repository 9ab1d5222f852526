"""Which texts of a batch hold which of many literal words: one pass over the characters, however many words there are.

In:  lower-case words of all rules.
Out: for a batch, turn numbers by word.
Words are found by a hash of their first (up to four) characters looked up in a table; shorter groups cost a pass each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

_FACTORS = (0x79B1, 0xCA77, 0xAE3D, 0x2F2F)


class WordFinder:
    """A fixed set of words, found in either case."""

    def __init__(self, words: Iterable[str]) -> None:
        wanted = sorted({word.lower() for word in words if word})
        groups = (
            (4, [word for word in wanted if len(word) >= 4]),
            (2, [word for word in wanted if 2 <= len(word) < 4]),
            (1, [word for word in wanted if len(word) == 1]),
        )
        self._tables = [_PrefixTable(length, group) for length, group in groups if group]

    def find(self, text: str, codes: np.ndarray) -> dict[str, list[int]]:
        """Word (in lower case) -> positions in the text, for the words that are in it. codes: the text's code points"""
        found: dict[str, list[int]] = {}
        # 16 bits a place: half the memory to go through, and the hash needs no more
        narrow = codes.astype(np.uint16) | _CASE
        for table in self._tables:
            table.find(text, narrow, found)
        return found


class _PrefixTable:
    """Words by the hash of their first characters."""

    def __init__(self, length: int, words: list[str]) -> None:
        self._length = length
        self._by_prefix: dict[str, list[str]] = {}
        for word in words:
            self._by_prefix.setdefault(word[:length], []).append(word)
        self._table = np.zeros(1 << 16, bool)
        prefixes = np.array([[ord(character) & 0xFFFF for character in prefix] for prefix in self._by_prefix], np.uint16) | _CASE
        self._table[_hashes(list(prefixes.T))] = True

    def find(self, text: str, narrow: np.ndarray, found: dict[str, list[int]]) -> None:
        count = len(narrow) - self._length + 1
        if count <= 0:
            return
        hashes = _hashes([narrow[place : place + count] for place in range(self._length)])
        for at in np.flatnonzero(self._table.take(hashes)).tolist():
            for word in self._by_prefix.get(text[at : at + self._length].lower(), ()):
                if text[at : at + len(word)].lower() == word:
                    found.setdefault(word, []).append(at)


_CASE = np.uint16(0x20)
"""Bit 5, which is set everywhere: that makes the two cases of A to Z one."""


def _hashes(columns: Sequence[np.ndarray]) -> np.ndarray:
    """[places][n] uint16 -> [n] uint16: places of the table"""
    total = columns[0] * np.uint16(_FACTORS[0])
    for column, factor in zip(columns[1:], _FACTORS[1:]):
        total += column * np.uint16(factor)
    return total
