"""Kernel templates: each function returns one TIR function for one static shape and one instruction set.

In:  sizes, a GGUF block type where weights are read, an Isa.
Out: tirx.PrimFunc with the inputs first and the outputs last.
The loops are written out, not derived by schedule primitives: one panel is unpacked and then used by all rows, for any
reduction length, and that order is the whole point of these kernels.
"""

from .macro_lookup import use_quick_lookup

use_quick_lookup()
