"""The register tile that every matrix product is made of.

In:  tile sizes.
Out: an inline piece for a TIR function.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm.script import tirx as T


def register_tile(rows: int, columns: int, lanes: int, steps: int = 1) -> Callable:
    """Inline piece tile(a, b, put, i0, r0, length, j0): a [rows × columns] block of a product, summed in registers.

    steps: so many values of a row of `a`, side by side in memory, are loaded with one instruction; must divide `length`.
    put(i, j, Σ a(i, r) · b(r, j)) for i in [i0, i0 + rows), j in [j0, j0 + columns), summed over r in [r0, r0 + length) in that order: the
    result does not depend on how tiles are spread over threads.
    """

    advance = _one_step(rows, columns, lanes) if steps == 1 else _several_steps(rows, columns, lanes, steps)

    @T.inline
    def tile(a, b, put, i0, r0, length, j0):
        acc = T.alloc_buffer((rows, columns), "float32", scope="local")
        for i in T.unroll(rows):
            for part in T.unroll(columns // lanes):
                for lane in T.vectorized(lanes):
                    acc[i, part * lanes + lane] = T.float32(0)
        advance(acc, a, b, i0, r0, length, j0)
        for i in T.unroll(rows):
            for part in T.unroll(columns // lanes):
                for lane in T.vectorized(lanes):
                    put(i0 + i, j0 + part * lanes + lane, acc[i, part * lanes + lane])

    return tile


def _one_step(rows: int, columns: int, lanes: int) -> Callable:
    """Inline piece: one r after the other."""

    @T.inline
    def advance(acc, a, b, i0, r0, length, j0):
        for r in range(length):
            for i in T.unroll(rows):
                for part in T.unroll(columns // lanes):
                    for lane in T.vectorized(lanes):
                        acc[i, part * lanes + lane] += a(i0 + i, r0 + r) * b(r0 + r, j0 + part * lanes + lane)

    return advance


def _several_steps(rows: int, columns: int, lanes: int, steps: int) -> Callable:
    """Inline piece: `steps` values of each row of `a` are loaded at once, then used one after the other."""

    @T.inline
    def advance(acc, a, b, i0, r0, length, j0):
        ahead = T.alloc_buffer((rows, steps), "float32", scope="local")
        for r in range(length // steps):
            for i in T.unroll(rows):
                for s in T.vectorized(steps):
                    ahead[i, s] = a(i0 + i, r0 + r * steps + s)
            for s in T.unroll(steps):
                for i in T.unroll(rows):
                    for part in T.unroll(columns // lanes):
                        for lane in T.vectorized(lanes):
                            acc[i, part * lanes + lane] += ahead[i, s] * b(r0 + r * steps + s, j0 + part * lanes + lane)

    return advance
