"""AdamW on the flat adapter vector, and the norm that gradient clipping needs.

In:  the vector's length.
Out: TIR functions.
The order of the optimizer's numbers is that of runtime.bundle.plan.Hyperparameters, which the runtime fills in.
"""

# Shapes: P adapter parameters, a multiple of PARTIALS

from __future__ import annotations

from tvm.script import tirx as T

from ...runtime.bundle.plan import Hyperparameters
from .isa import Isa, largest_divisor
from .kernel_set import template
from .lanes import fill

PLACE = Hyperparameters(*range(len(Hyperparameters._fields)))
"""index of each number in the vector `hyper`"""
HYPER_COUNT = len(PLACE)
VECTORS_PER_TASK = 4096
PARTIALS = 64
"""partial sums of sum_squares"""


@template("adamw")
def adamw_step(size: int, *, isa: Isa):
    """m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², u = lr · ((m/c₁) / (√(v/c₂) + ε) + decay · w), w ← w − clip(u, ±max_update)    (arXiv 1711.05101)

    w, m, v [P] (read and overwritten) · g [P] · hyper [9], see Hyperparameters; g is multiplied by gradient_scale first.
    """
    lanes = isa.lanes
    chunk = largest_divisor(size // lanes, VECTORS_PER_TASK) * lanes

    @T.prim_func
    def func(
        w: T.Buffer((size,), "float32"),
        m: T.Buffer((size,), "float32"),
        v: T.Buffer((size,), "float32"),
        g: T.Buffer((size,), "float32"),
        hyper: T.Buffer((HYPER_COUNT,), "float32"),
    ):
        for task in T.parallel(size // chunk):
            for part in range(chunk // lanes):
                update = T.alloc_buffer((lanes,), "float32", scope="local")
                beta1, beta2 = T.meta_var(hyper[PLACE.beta1]), T.meta_var(hyper[PLACE.beta2])
                # 1. The moving averages of the gradient and of its square.
                for lane in T.vectorized(lanes):
                    at = T.meta_var(task * chunk + part * lanes + lane)
                    gradient = T.meta_var(g[at] * hyper[PLACE.gradient_scale])
                    m[at] = beta1 * m[at] + (T.float32(1) - beta1) * gradient
                for lane in T.vectorized(lanes):
                    at = T.meta_var(task * chunk + part * lanes + lane)
                    gradient = T.meta_var(g[at] * hyper[PLACE.gradient_scale])
                    v[at] = beta2 * v[at] + (T.float32(1) - beta2) * (gradient * gradient)
                # 2. The update that they ask for, and the decay of the weight.
                for lane in T.vectorized(lanes):
                    at = T.meta_var(task * chunk + part * lanes + lane)
                    mean = T.meta_var(m[at] / hyper[PLACE.bias_correction1])
                    spread = T.meta_var(T.sqrt(v[at] / hyper[PLACE.bias_correction2]) + hyper[PLACE.epsilon])
                    update[lane] = hyper[PLACE.learning_rate] * (mean / spread + hyper[PLACE.weight_decay] * w[at])
                # 3. The weight moves, by no more than it may.
                for lane in T.vectorized(lanes):
                    limit = T.meta_var(hyper[PLACE.max_update])
                    w[task * chunk + part * lanes + lane] -= T.max(T.min(update[lane], limit), T.float32(0) - limit)

    return func


@template("sum_squares")
def sum_squares(size: int):
    """total[0] = Σ g², added up in one fixed order

    g [P]  →  total [1]
    """

    @T.prim_func
    def func(g: T.Buffer((size,), "float32"), total: T.Buffer((1,), "float32")):
        partial = T.alloc_buffer((PARTIALS,), "float32", scope="local")
        fill(partial, PARTIALS, 0)
        for part in range(size // PARTIALS):
            for lane in T.vectorized(PARTIALS):
                partial[lane] += g[part * PARTIALS + lane] * g[part * PARTIALS + lane]
        total[0] = T.float32(0)
        for lane in range(PARTIALS):
            total[0] += partial[lane]

    return func
