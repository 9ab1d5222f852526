"""The trainable adapter: its start values and its matrices as views of the flat vector.

In:  AdapterPlan, the flat fp32 vector.
Out: start values; AdapterTensors for merging.
A is drawn from U(−1/√k, 1/√k) over its k columns (PEFT's default, kaiming_uniform with a = √5), B is zero: the run starts at the base.
"""

from __future__ import annotations

import math

import numpy as np

from .adapter_tensors import AdapterTensors
from .plan import AdapterPlan


def initialise(plan: AdapterPlan, vector: np.ndarray, seed: int) -> None:
    """Fill the flat vector; the same seed gives the same bytes."""
    vector[:] = 0
    for index, tensor in enumerate(plan.tensors):
        if tensor.name.endswith(":A"):
            bound = 1.0 / math.sqrt(tensor.shape[1])
            values = np.random.default_rng([seed, index]).uniform(-bound, bound, tensor.shape)
            view(vector, plan, index)[:] = values.astype(np.float32)


def view(vector: np.ndarray, plan: AdapterPlan, index: int) -> np.ndarray:
    """One matrix inside the flat vector."""
    tensor = plan.tensors[index]
    size = tensor.shape[0] * tensor.shape[1]
    return vector[tensor.offset : tensor.offset + size].reshape(tensor.shape)


def tensors_of(plan: AdapterPlan, vector: np.ndarray) -> AdapterTensors:
    """The matrices by the name of the weight they change; views, not copies."""
    matrices = {tensor.name: view(vector, plan, index) for index, tensor in enumerate(plan.tensors)}
    names = [name[:-2] for name in matrices if name.endswith(":A")]
    return AdapterTensors(plan.kind, plan.scale, {name: (matrices[f"{name}:A"], matrices[f"{name}:B"]) for name in names})
