"""What kernels do with one vector's worth of partial results: fill it, add it up, find its largest.

In:  a local buffer with one value per lane.
Out: inline pieces for TIR functions.
Lanes are combined one after the other, from the first to the last: that order is part of every result.
"""

from __future__ import annotations

from tvm.script import tirx as T


@T.inline
def fill(partial, lanes, value):
    """Every lane becomes `value`."""
    for lane in T.vectorized(lanes):
        partial[lane] = T.float32(value)


@T.inline
def lane_sum(partial, lanes):
    """partial[0] becomes the sum of all lanes."""
    for lane in T.unroll(lanes - 1):
        partial[0] += partial[lane + 1]


@T.inline
def lane_max(partial, lanes):
    """partial[0] becomes the largest of all lanes."""
    for lane in T.unroll(lanes - 1):
        partial[0] = T.max(partial[0], partial[lane + 1])


@T.inline
def add_lanes(total, partial, lanes):
    """total[0] += the sum of all lanes, which stay as they are."""
    for lane in T.unroll(lanes):
        total[0] += partial[lane]
