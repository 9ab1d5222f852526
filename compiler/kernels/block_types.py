"""GGUF block types as the kernels read them: 32 weights of one row, w = scale · q + minimum.

In:  a u8 weight buffer w[N, K/32, bytes] and the indices of a block.
Out: TIR expressions for its scale, its minimum and its quants.
Byte l of the quants holds weight l in its low and weight 16 + l in its high nibble (ggml's block_q4_0, block_q4_1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm.script import tirx as T

from .expressions import half_at

BLOCK = 32
"""weights per block"""


@dataclass(frozen=True)
class BlockType:
    """One way GGUF stores 32 weights."""

    name: str
    bytes: int
    """bytes per block"""
    quants_at: int
    """offset of the first quant byte"""
    layout: Literal["nibbles", "bytes"]
    zero_point: int
    """what is subtracted from an unsigned quant"""
    has_minimum: bool

    def scale(self, w, n, g):
        """fp32 scale of block [n, g]."""
        return half_at(lambda at: w[n, g, at], 0)

    def minimum(self, w, n, g):
        """fp32 constant that is added to every weight of block [n, g], zero point included."""
        if self.has_minimum:
            return half_at(lambda at: w[n, g, at], 2)
        return self.scale(w, n, g) * T.float32(-self.zero_point) if self.zero_point else T.float32(0)

    def quant(self, w, n, g, upper, lane):
        """fp32 quant of weight 16 · upper + lane of block [n, g], before zero point and minimum."""
        if self.layout == "bytes":
            return T.Cast("float32", T.reinterpret("int8", w[n, g, self.quants_at + 16 * upper + lane]))
        byte = w[n, g, self.quants_at + lane]
        return T.Cast("float32", T.Select(upper == 1, byte >> T.uint8(4), byte & T.uint8(15)))


BLOCK_TYPES = {
    t.name: t
    for t in (
        BlockType("Q4_0", 18, 2, "nibbles", 8, False),
        BlockType("Q4_1", 20, 4, "nibbles", 0, True),
        BlockType("Q8_0", 34, 2, "bytes", 0, False),
    )
}
