"""The trainable adapter: its start values and its matrices as views of the flat vector.

In:  AdapterPlan, the flat fp32 vector.
Out: start values; AdapterTensors for merging.
A is drawn from U(−1/√k, 1/√k) over its k columns (PEFT's default, kaiming_uniform with a = √5), B is zero: the run starts at the base.
"""

from __future__ import annotations

import math

import numpy as np

from ..bundle.plan import AdapterPlan
from ..errors import UserError
from .tensors import AdapterTensors


def initialise(plan: AdapterPlan, vector: np.ndarray, seed: int) -> None:
    """Fill the flat vector; the same seed gives the same bytes."""
    vector[:] = 0
    for index, tensor in enumerate(plan.tensors):
        if tensor.name.matrix == "A":
            bound = 1.0 / math.sqrt(tensor.shape[1])
            values = np.random.default_rng([seed, index]).uniform(-bound, bound, tensor.shape)
            view(vector, plan, index)[:] = values.astype(np.float32)


def view(vector: np.ndarray, plan: AdapterPlan, index: int) -> np.ndarray:
    """One matrix inside the flat vector."""
    tensor = plan.tensors[index]
    size = tensor.shape[0] * tensor.shape[1]
    return vector[tensor.offset : tensor.offset + size].reshape(tensor.shape)


def load_into(plan: AdapterPlan, vector: np.ndarray, adapter: AdapterTensors) -> None:
    """Fill the flat vector with an adapter; UserError when this bundle's kernels compute another kind, rank or scale."""
    ranks = {a.shape[0] for a, _ in adapter.pairs.values()}
    if (adapter.kind, adapter.scale, ranks) != (plan.kind, plan.scale, {plan.rank}):
        found = f"is {adapter.kind} of rank {', '.join(map(str, sorted(ranks)))} and scale {adapter.scale:g}"
        raise UserError("adapter", found, f"{plan.kind} of rank {plan.rank} and scale {plan.scale:g}", "use the bundle that it was trained with")
    names = {tensor.name.weight for tensor in plan.tensors}
    if names != set(adapter.pairs):
        raise UserError(
            "adapter", f"changes other tensors: {sorted(names ^ set(adapter.pairs))[0]} and more", remedy="use the bundle that it was trained with"
        )
    for index, tensor in enumerate(plan.tensors):
        matrix = adapter.pairs[tensor.name.weight]["AB".index(tensor.name.matrix)]
        if matrix.shape != tensor.shape:
            raise UserError("adapter", f"{tensor.name} has the shape {matrix.shape}", f"{tensor.shape}", "use the bundle that it was trained with")
        view(vector, plan, index)[:] = matrix


def tensors_of(plan: AdapterPlan, vector: np.ndarray) -> AdapterTensors:
    """The matrices by the name of the weight they change; views, not copies."""
    matrices = {tensor.name: view(vector, plan, index) for index, tensor in enumerate(plan.tensors)}
    pairs = {name.weight: (a, matrices[name._replace(matrix="B")]) for name, a in matrices.items() if name.matrix == "A"}
    return AdapterTensors(plan.kind, plan.scale, pairs)
