"""The words that graph.py writes a model in: a function for each operator that stands in a forward graph.

In:  Relax expressions.
Out: calls of operators that relax.transform.Gradient differentiates and lower.py turns into kernel calls.
Every operator is one kernel, and the set is closed under differentiation. Relax's own operators would differentiate too, into
some 170 small ones that patterns would then have to find together again; here nothing is ever taken apart.
"""

from __future__ import annotations

from .operators.activation import swiglu
from .operators.add import add
from .operators.attention import attention, decode_attention
from .operators.embedding import gather
from .operators.groups import group_sum
from .operators.linear import linear
from .operators.loss import distill_loss, seed, softmax_loss
from .operators.matmul import matmul
from .operators.norm import rms_norm
from .operators.operator import shape_of
from .operators.rope import rope
from .operators.table import register_operators

__all__ = [
    "add", "attention", "decode_attention", "distill_loss", "gather", "group_sum", "linear", "matmul", "register_operators", "rms_norm",
    "rope", "seed", "shape_of", "softmax_loss", "swiglu",
]  # fmt: skip
