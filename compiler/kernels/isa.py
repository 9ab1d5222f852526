"""What the kernel templates need to know of an instruction set: vector width and register tile.

In:  architecture and CPU features of a device profile.
Out: Isa.
A register tile of mr x tn accumulators, tn / lanes vectors of the panel and one broadcast must fit into the register file.
"""

from __future__ import annotations

from dataclasses import dataclass

from .block_types import BLOCK

PANEL_COLUMNS = BLOCK
"""Width of an unpacked weight panel: one GGUF block, so that dy·W unpacks whole blocks."""


@dataclass(frozen=True)
class Isa:
    """Tile sizes, in fp32 elements."""

    name: str
    lanes: int
    """fp32 values per vector register"""
    tile_rows: int
    tile_columns: int
    """columns of a register tile; divides PANEL_COLUMNS"""
    tile_steps: int = 1
    """reduction steps per round of a tile's loop, whose inputs are loaded together; the order of the sum stays the same"""


AVX512 = Isa("avx512", lanes=16, tile_rows=8, tile_columns=32)
AVX2 = Isa("avx2", lanes=8, tile_rows=4, tile_columns=16)
SSE4 = Isa("sse4", lanes=4, tile_rows=4, tile_columns=8)
NEON = Isa("neon", lanes=4, tile_rows=8, tile_columns=8, tile_steps=2)
"""16 accumulators hide the latency of up to four FMA pipes; two steps at once need 1.4 to 1.6 instructions per FMA instead of
1.9, and four would spill"""


def isa_for(arch: str, features: tuple[str, ...]) -> Isa:
    """The widest Isa that `features` (names as in /proc/cpuinfo) allow on `arch` (x86_64 or aarch64)."""
    if arch == "aarch64":
        return NEON
    if arch != "x86_64":
        raise ValueError(f"no kernel templates for architecture {arch!r}")
    if "avx512f" in features:
        return AVX512
    return AVX2 if "avx2" in features else SSE4


def largest_divisor(n: int, limit: int, multiple_of: int = 1) -> int:
    """The largest divisor of n that is at most `limit` and a multiple of `multiple_of` (which must divide n)."""
    return max(d for d in range(1, min(n, limit) + 1) if n % d == 0 and d % multiple_of == 0)


def lanes_for(columns: int, isa: Isa) -> int:
    """Vector lanes for rows of `columns` values: the largest power of two up to isa.lanes that divides it."""
    lanes = isa.lanes
    while columns % lanes:
        lanes //= 2
    return lanes
