"""What attention and its gradient do to a strip of query rows: scores, softmax, weighted sums, and the way back.

In:  sizes.
Out: inline pieces for TIR functions, as attributes of Strips.
A strip is [STRIP, T] scores of one head; only its columns from first · COLUMNS to last · COLUMNS are ever touched. `task` numbers
the pairs of sample and query head: sample task // heads, head task % heads.
"""

# Shapes: B batch · T tokens · H query heads · KV key-value heads · d head width

from __future__ import annotations

from tvm.script import tirx as T

from .expressions import exp
from .isa import Isa, largest_divisor
from .tile import register_tile

STRIP = 16
"""query rows whose scores are kept at once; T is a multiple of it"""
COLUMNS = 32
"""score columns are computed in multiples of it; T is a multiple of it"""
MASKED = -1e30


class Strips:
    """The pieces for one set of sizes."""

    def __init__(self, t: int, heads: int, kv_heads: int, width: int, isa: Isa) -> None:
        self.t, self.heads, self.width, self.isa = t, heads, width, isa
        self.share = heads // kv_heads
        self.rows = largest_divisor(STRIP, isa.tile_rows)
        self.columns = largest_divisor(width, isa.tile_columns, isa.lanes)
        self.output_tile = register_tile(self.rows, self.columns, isa.lanes)
        self.transpose = self._transpose()
        self.scores = self._scores()
        self.softmax = _softmax(width**-0.5, isa.lanes)
        self.score_gradient = _score_gradient(width**-0.5, isa.lanes)
        self.weigh = self._weigh()
        self.scatter = self._scatter()

    def _transpose(self):
        """transpose(x, task, out): out[c, j] = x[b, j, kv head, c]"""
        t, width, heads, share = self.t, self.width, self.heads, self.share

        @T.inline
        def transpose(x, task, out):
            for j in range(t):
                for c in range(width):
                    out[c, j] = x[task // heads, j, task % heads // share, c]

        return transpose

    def _scores(self):
        """scores(x, task, s, packed, strip, first, last): strip[i, j] = Σ over c of x[row s · STRIP + i, c] · packed[c, j]"""
        heads, width, rows, step = self.heads, self.width, self.rows, self.isa.tile_columns
        tile = register_tile(rows, min(step, COLUMNS), self.isa.lanes)

        @T.inline
        def scores(x, task, s, packed, strip, first, last):
            for jo in range((last - first) * (COLUMNS // step)):
                for i in range(STRIP // rows):
                    tile(
                        lambda i, c: x[task // heads, s * STRIP + i, task % heads, c],
                        lambda c, j: packed[c, j],
                        lambda i, j, value: T.buffer_store(strip, value, [i, j]),
                        i * rows,
                        0,
                        width,
                        first * COLUMNS + jo * step,
                    )

        return scores

    def _weigh(self):
        """weigh(strip, x, task, s, out, first, last): out[row s · STRIP + i] = Σ over j of strip[i, j] · x[j, kv head]"""
        heads, share, width, rows, columns, tile = self.heads, self.share, self.width, self.rows, self.columns, self.output_tile

        @T.inline
        def weigh(strip, x, task, s, out, first, last):
            for i in range(STRIP // rows):
                for c in range(width // columns):
                    tile(
                        lambda i, j: strip[i, j],
                        lambda j, c: x[task // heads, j, task % heads // share, c],
                        lambda i, c, value: T.buffer_store(out, value, [task // heads, s * STRIP + i, task % heads, c]),
                        i * rows,
                        first * COLUMNS,
                        (last - first) * COLUMNS,
                        c * columns,
                    )

        return weigh

    def _scatter(self):
        """scatter(strip, x, task, s, out, first, last): out[j] += Σ over the strip's rows i of strip[i, j] · x[row s · STRIP + i]"""
        heads, width, rows, columns, tile = self.heads, self.width, self.rows, self.columns, self.output_tile

        @T.inline
        def scatter(strip, x, task, s, out, first, last):
            for j in range((last - first) * (COLUMNS // rows)):
                for c in range(width // columns):
                    tile(
                        lambda j, i: strip[i, j],
                        lambda i, c: x[task // heads, s * STRIP + i, task % heads, c],
                        lambda j, c, value: T.buffer_store(out, out[task // heads, j, task % heads, c] + value, [task // heads, j, task % heads, c]),
                        first * COLUMNS + j * rows,
                        0,
                        STRIP,
                        c * columns,
                    )

        return scatter


def _softmax(scale: float, lanes: int):
    """Inline piece softmax(p, start, b, s, first, last): rows of raw scores become weights that sum to 1; hidden columns become 0."""

    @T.inline
    def softmax(p, start, b, s, first, last):
        for i in range(STRIP):
            top = T.alloc_buffer((lanes,), "float32", scope="local")
            total = T.alloc_buffer((lanes,), "float32", scope="local")
            for e in T.vectorized(lanes):
                top[e] = T.float32(MASKED)
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    p[i, first * COLUMNS + jv * lanes + e] = T.Select(
                        T.And(first * COLUMNS + jv * lanes + e >= start[b, s * STRIP + i], first * COLUMNS + jv * lanes + e <= s * STRIP + i),
                        p[i, first * COLUMNS + jv * lanes + e] * T.float32(scale),
                        T.float32(MASKED),
                    )
                for e in T.vectorized(lanes):
                    top[e] = T.max(top[e], p[i, first * COLUMNS + jv * lanes + e])
            for e in T.unroll(lanes - 1):
                top[0] = T.max(top[0], top[e + 1])
            for e in T.vectorized(lanes):
                total[e] = T.float32(0)
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    p[i, first * COLUMNS + jv * lanes + e] = T.Select(
                        p[i, first * COLUMNS + jv * lanes + e] > T.float32(0.5 * MASKED),
                        exp(p[i, first * COLUMNS + jv * lanes + e] - top[0]),
                        T.float32(0),
                    )
                for e in T.vectorized(lanes):
                    total[e] += p[i, first * COLUMNS + jv * lanes + e]
            for e in T.unroll(lanes - 1):
                total[0] += total[e + 1]
            total[0] = T.float32(1) / total[0]
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    p[i, first * COLUMNS + jv * lanes + e] *= total[0]

    return softmax


def _score_gradient(scale: float, lanes: int):
    """Inline piece score_gradient(p, ds, first, last): ds, holding dP, becomes p ∘ (dP − Σ p ∘ dP) · scale."""

    @T.inline
    def score_gradient(p, ds, first, last):
        for i in range(STRIP):
            total = T.alloc_buffer((lanes,), "float32", scope="local")
            for e in T.vectorized(lanes):
                total[e] = T.float32(0)
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    total[e] += p[i, first * COLUMNS + jv * lanes + e] * ds[i, first * COLUMNS + jv * lanes + e]
            for e in T.unroll(lanes - 1):
                total[0] += total[e + 1]
            for jv in range((last - first) * (COLUMNS // lanes)):
                for e in T.vectorized(lanes):
                    ds[i, first * COLUMNS + jv * lanes + e] = (
                        p[i, first * COLUMNS + jv * lanes + e] * (ds[i, first * COLUMNS + jv * lanes + e] - total[0]) * T.float32(scale)
                    )

    return score_gradient
