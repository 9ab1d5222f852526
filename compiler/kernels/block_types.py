"""GGUF block types as the kernels read them: 32 weights of one row, w = scale · q + minimum.

In:  a u8 weight buffer w[N, K/32, bytes] and the indices of a block.
Out: TIR expressions for its scale, its minimum and its quants.
Byte l of the quants holds weight l in its low and weight 16 + l in its high nibble (ggml's block_q4_0, block_q4_1); a 5-bit
type has bit j of a 32-bit word as the highest bit of weight j (block_q5_0, block_q5_1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm.script import tirx as T

from ...runtime.gguf.types import BLOCK_ELEMENTS, TENSOR_TYPES
from .expressions import half_at

BLOCK = BLOCK_ELEMENTS
HALF_BLOCK = BLOCK // 2
"""weights that stand in the low nibbles of a block, and in the high ones"""


@dataclass(frozen=True)
class BlockType:
    """One way GGUF stores 32 weights."""

    name: str
    quants_at: int
    """offset of the first quant byte"""
    layout: Literal["nibbles", "bytes"]
    zero_point: int
    """what is subtracted from an unsigned quant"""
    has_minimum: bool
    fifth_bits_at: int | None = None
    """offset of the word with each weight's highest bit"""

    @property
    def bytes(self) -> int:
        """bytes per block"""
        return TENSOR_TYPES[self.name].block_bytes

    def scale(self, w, n, g):
        """fp32 scale of block [n, g]."""
        return half_at(lambda at: w[n, g, at], 0)

    def minimum(self, w, n, g):
        """fp32 constant that is added to every weight of block [n, g], zero point included."""
        if self.has_minimum:
            return half_at(lambda at: w[n, g, at], 2)
        return self.scale(w, n, g) * T.float32(-self.zero_point) if self.zero_point else T.float32(0)

    def quant(self, w, n, g, upper, lane, across_rows: bool = False):
        """fp32 quant of weight HALF_BLOCK · upper + lane of block [n, g], before zero point and minimum.

        across_rows: the vector runs over n and not over lane, so that one byte per row is all that is loaded.
        """
        if self.layout == "bytes":
            return T.Cast("float32", T.reinterpret("int8", w[n, g, self.quants_at + HALF_BLOCK * upper + lane]))
        byte = w[n, g, self.quants_at + lane]
        nibble = T.Select(upper == 1, byte >> T.uint8(4), byte & T.uint8(15))
        if self.fifth_bits_at is None:
            return T.Cast("float32", nibble)
        if across_rows:
            bits = w[n, g, self.fifth_bits_at + 2 * upper + lane // 8] >> T.Cast("uint8", lane % 8)
            return T.Cast("float32", nibble | ((bits & T.uint8(1)) << T.uint8(4)))
        bits = self._fifth_bits(w, n, g) >> T.Cast("uint32", HALF_BLOCK * upper + lane)
        return T.Cast("float32", T.Cast("uint32", nibble) | ((bits & T.uint32(1)) << T.uint32(4)))

    def _fifth_bits(self, w, n, g):
        """The word of block [n, g]: one scalar for the whole block."""
        parts = [T.Cast("uint32", w[n, g, self.fifth_bits_at + i]) << T.uint32(8 * i) for i in range(4)]
        return parts[0] | parts[1] | parts[2] | parts[3]


BLOCK_TYPES = {
    t.name: t
    for t in (
        BlockType("Q4_0", 2, "nibbles", 8, False),
        BlockType("Q4_1", 4, "nibbles", 0, True),
        BlockType("Q5_0", 6, "nibbles", 16, False, 2),
        BlockType("Q5_1", 8, "nibbles", 0, True, 4),
        BlockType("Q8_0", 2, "bytes", 0, False),
    )
}
