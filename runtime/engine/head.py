"""The head, a chunk of rows at a time: losses of the positions that have a target and, in training, their gradient.

In:  a bound head program, hidden states, targets.
Out: losses in nats; the full logits never exist.
"""

# Shapes: M rows of the bucket · D model width

from __future__ import annotations

import numpy as np

from .kernel_library import Program
from .packing import NO_TARGET
from .tensors import Arena


def score_rows(program: Program, arena: Arena, hidden: np.ndarray, targets: np.ndarray, d_hidden: np.ndarray | None = None) -> np.ndarray:
    """Send the rows that have a target through the head, a chunk at a time; returns their losses in nats, in order.

    hidden [M,D] · targets [M]; d_hidden [M,D] receives the gradient of these rows  →  [labels] f32
    """
    chunk = len(arena["targets"])
    rows = np.flatnonzero(targets != NO_TARGET)
    losses = np.empty(len(rows), np.float32)
    for at in range(0, len(rows), chunk):
        part = rows[at : at + chunk]
        n = len(part)
        arena["head_x"][:n] = hidden[part]
        arena["head_x"][n:] = 0
        arena["targets"][:n] = targets[part]
        arena["targets"][n:] = NO_TARGET
        program.run()
        losses[at : at + n] = arena["loss"][:n]
        if d_hidden is not None:
            d_hidden[part] = arena["head_dx"][:n]
    return losses
