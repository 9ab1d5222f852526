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
from .lanes import fill, lane_max, lane_sum
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
            sample, kv_head = T.meta_var(task // heads), T.meta_var(task % heads // share)
            for j in range(t):
                for c in range(width):
                    out[c, j] = x[sample, j, kv_head, c]

        return transpose

    def _scores(self):
        """scores(x, task, s, packed, strip, first, last): strip[i, j] = Σ over c of x[row s · STRIP + i, c] · packed[c, j]"""
        heads, width, rows, step = self.heads, self.width, self.rows, self.isa.tile_columns
        tile = register_tile(rows, min(step, COLUMNS), self.isa.lanes)

        @T.inline
        def scores(x, task, s, packed, strip, first, last):
            sample, head = T.meta_var(task // heads), T.meta_var(task % heads)
            for jo in range((last - first) * (COLUMNS // step)):
                for i in range(STRIP // rows):
                    tile(
                        lambda i, c: x[sample, s * STRIP + i, head, c],
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
            sample, head, kv_head = T.meta_var(task // heads), T.meta_var(task % heads), T.meta_var(task % heads // share)
            for i in range(STRIP // rows):
                for c in range(width // columns):
                    tile(
                        lambda i, j: strip[i, j],
                        lambda j, c: x[sample, j, kv_head, c],
                        lambda i, c, value: T.buffer_store(out, value, [sample, s * STRIP + i, head, c]),
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
            sample, head = T.meta_var(task // heads), T.meta_var(task % heads)
            for j in range((last - first) * (COLUMNS // rows)):
                for c in range(width // columns):
                    tile(
                        lambda j, i: strip[i, j],
                        lambda i, c: x[sample, s * STRIP + i, head, c],
                        lambda j, c, value: T.buffer_store(out, out[sample, j, head, c] + value, [sample, j, head, c]),
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
            row = T.meta_var(s * STRIP + i)
            top = T.alloc_buffer((lanes,), "float32", scope="local")
            total = T.alloc_buffer((lanes,), "float32", scope="local")
            # 1. Scale the scores, mask the columns that this row does not see, find the largest score.
            fill(top, lanes, MASKED)
            for part in range((last - first) * (COLUMNS // lanes)):
                for lane in T.vectorized(lanes):
                    j = T.meta_var(first * COLUMNS + part * lanes + lane)
                    p[i, j] = T.Select(T.And(j >= start[b, row], j <= row), p[i, j] * T.float32(scale), T.float32(MASKED))
                for lane in T.vectorized(lanes):
                    top[lane] = T.max(top[lane], p[i, first * COLUMNS + part * lanes + lane])
            lane_max(top, lanes)
            # 2. The exponentials and their sum.
            fill(total, lanes, 0)
            for part in range((last - first) * (COLUMNS // lanes)):
                for lane in T.vectorized(lanes):
                    j = T.meta_var(first * COLUMNS + part * lanes + lane)
                    p[i, j] = T.Select(p[i, j] > T.float32(0.5 * MASKED), exp(p[i, j] - top[0]), T.float32(0))
                for lane in T.vectorized(lanes):
                    total[lane] += p[i, first * COLUMNS + part * lanes + lane]
            lane_sum(total, lanes)
            # 3. Each one's share of the sum.
            total[0] = T.float32(1) / total[0]
            for part in range((last - first) * (COLUMNS // lanes)):
                for lane in T.vectorized(lanes):
                    p[i, first * COLUMNS + part * lanes + lane] *= total[0]

    return softmax


def _score_gradient(scale: float, lanes: int):
    """Inline piece score_gradient(p, ds, first, last): ds, holding dP, becomes p ∘ (dP − Σ p ∘ dP) · scale."""

    @T.inline
    def score_gradient(p, ds, first, last):
        for i in range(STRIP):
            total = T.alloc_buffer((lanes,), "float32", scope="local")
            # 1. The row's Σ p ∘ dP.
            fill(total, lanes, 0)
            for part in range((last - first) * (COLUMNS // lanes)):
                for lane in T.vectorized(lanes):
                    j = T.meta_var(first * COLUMNS + part * lanes + lane)
                    total[lane] += p[i, j] * ds[i, j]
            lane_sum(total, lanes)
            # 2. What is left of dP without it.
            for part in range((last - first) * (COLUMNS // lanes)):
                for lane in T.vectorized(lanes):
                    j = T.meta_var(first * COLUMNS + part * lanes + lane)
                    ds[i, j] = p[i, j] * (ds[i, j] - total[0]) * T.float32(scale)

    return score_gradient
