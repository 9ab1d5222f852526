"""The head, a chunk of rows at a time: losses of the positions that have a target and, in training, their gradient.

In:  a bound head program, hidden states, targets.
Out: losses in nats; the full logits never exist.
"""

# Shapes: M rows of the bucket · D model width

from __future__ import annotations

import numpy as np

from .kernel_library import Program
from .packing import NO_TARGET
from .tensors import TensorMemory


def score_rows(
    program: Program,
    memory: TensorMemory,
    hidden: np.ndarray,
    targets: np.ndarray,
    d_hidden: np.ndarray | None = None,
    base: np.ndarray | None = None,
) -> np.ndarray:
    """Send the rows that have a target through the head, a chunk at a time; returns their losses in nats, in order.

    hidden [M,D] · targets [M] · base [M,D], the base's hidden states where the head compares with them;
    d_hidden [M,D] receives the gradient of these rows  →  [labels] f32
    """
    chunk = len(memory["targets"])
    rows = np.flatnonzero(targets != NO_TARGET)
    losses = np.empty(len(rows), np.float32)
    for at in range(0, len(rows), chunk):
        part = rows[at : at + chunk]
        n = len(part)
        memory["head_x"][:n] = hidden[part]
        memory["head_x"][n:] = 0
        if base is not None:
            memory["teacher_x"][:n] = base[part]
            memory["teacher_x"][n:] = 0
        memory["targets"][:n] = targets[part]
        memory["targets"][n:] = NO_TARGET
        program.run()
        losses[at : at + n] = memory["loss"][:n]
        if d_hidden is not None:
            d_hidden[part] = memory["head_dx"][:n]
    return losses
