"""Pack samples into the static shape of a bucket, and shift their labels once.

In:  samples: token ids and a mask that says which tokens are to be predicted.
Out: PackedBatch: what one micro-step computes on.
Several short samples share a row; `start` keeps attention inside each of them. Token i of a sample is predicted from
position i − 1, so the target of a position is its successor where that is labelled, and nothing otherwise.
"""

# Shapes: B rows · T tokens per row · M = B·T

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

NO_TARGET = -1


class Tokens(Protocol):
    """What packing needs of a sample: token_ids [n] i32, label_mask [n] u8 (1: this token is to be predicted)."""

    @property
    def token_ids(self) -> np.ndarray: ...
    @property
    def label_mask(self) -> np.ndarray: ...


@dataclass(frozen=True)
class PackedBatch:
    """One micro-batch in the shape of a bucket."""

    ids: np.ndarray
    """[M] i32; padding is token 0, which nothing attends to and nothing predicts"""
    start: np.ndarray
    """[B,T] i32: first position of the sample that a position belongs to"""
    targets: np.ndarray
    """[M] i32: the next token where it is labelled, else NO_TARGET"""
    tokens: int
    """tokens that are not padding"""

    @property
    def labels(self) -> int:
        """Label tokens of the micro-batch."""
        return int((self.targets != NO_TARGET).sum())


def label_count(sample: Tokens) -> int:
    """Label tokens that can be trained: the first token of a sample has no position that could predict it."""
    return int(sample.label_mask[1:].sum())


def rows_first_fit(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Indices of the samples that share a row of `width` tokens: first fit, longest first; deterministic."""
    rows: list[list[int]] = []
    free: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        row = next((r for r, space in enumerate(free) if space >= lengths[index]), None)
        if row is None:
            rows.append([])
            free.append(width)
            row = len(rows) - 1
        rows[row].append(index)
        free[row] -= lengths[index]
    return rows


def pack(samples: Sequence[Tokens], batch: int, width: int) -> list[PackedBatch]:
    """Samples, none longer than `width`, as micro-batches of `batch` rows."""
    rows = rows_first_fit([len(s.token_ids) for s in samples], width)
    return [_fill([[samples[i] for i in row] for row in rows[at : at + batch]], batch, width) for at in range(0, len(rows), batch)]


def _fill(rows: Sequence[Sequence[Tokens]], batch: int, width: int) -> PackedBatch:
    ids = np.zeros((batch, width), np.int32)
    targets = np.full((batch, width), NO_TARGET, np.int32)
    start = np.tile(np.arange(width, dtype=np.int32), (batch, 1))
    used = 0
    for r, row in enumerate(rows):
        at = 0
        for sample in row:
            n = len(sample.token_ids)
            ids[r, at : at + n] = sample.token_ids
            start[r, at : at + n] = at
            labelled = sample.label_mask[1:].astype(bool)
            targets[r, at : at + n - 1][labelled] = sample.token_ids[1:][labelled]
            at += n
        used += at
    return PackedBatch(ids.reshape(-1), start, targets.reshape(-1), used)
