"""The loss at the end of the model.

In:  sizes.
Out: TIR functions.
softmax_loss and distill_loss turn the logits of one chunk into their gradient where they stand, so a chunk is all that ever exists.
"""

# Shapes: C rows of one chunk · V vocabulary

from __future__ import annotations

from tvm.script import tirx as T

from .expressions import exp, log
from .isa import Isa, lanes_for
from .kernel_set import template
from .lanes import fill, lane_max, lane_sum


@template("softmax_loss")
def softmax_loss(c: int, v: int, *, isa: Isa):
    """loss[i] = log Σ e^logits[i] − logits[i, target], logits[i] ← scale[i] · (softmax(logits[i]) − onehot(target)); target < 0: all 0

    logits [C,V] f32 (read and overwritten) · targets [C] i32 · scale [C] f32  →  loss [C] f32, not scaled
    """
    lanes = lanes_for(v, isa)

    @T.prim_func
    def func(
        logits: T.Buffer((c, v), "float32"), targets: T.Buffer((c,), "int32"), scale: T.Buffer((c,), "float32"), loss: T.Buffer((c,), "float32")
    ):
        for i in T.parallel(c):
            top = T.alloc_buffer((lanes,), "float32", scope="local")
            total = T.alloc_buffer((lanes,), "float32", scope="local")
            picked = T.alloc_buffer((1,), "float32", scope="local")
            # The target's logit, while it is still there.
            picked[0] = logits[i, T.max(targets[i], 0)]
            # 1. The largest logit, which keeps every exponential at most 1.
            for lane in T.vectorized(lanes):
                top[lane] = logits[i, lane]
            for part in range(v // lanes):
                for lane in T.vectorized(lanes):
                    top[lane] = T.max(top[lane], logits[i, part * lanes + lane])
            lane_max(top, lanes)
            # 2. The exponentials, in place of the logits, and their sum.
            fill(total, lanes, 0)
            for part in range(v // lanes):
                for lane in T.vectorized(lanes):
                    at = T.meta_var(part * lanes + lane)
                    logits[i, at] = exp(logits[i, at] - top[0])
                for lane in T.vectorized(lanes):
                    total[lane] += logits[i, part * lanes + lane]
            lane_sum(total, lanes)
            loss[i] = T.Select(targets[i] >= 0, log(total[0]) + top[0] - picked[0], T.float32(0))
            # 3. The gradient: each share of the sum, times scale, less scale at the target; zero in a row without one.
            total[0] = T.Select(targets[i] >= 0, scale[i] / total[0], T.float32(0))
            for part in range(v // lanes):
                for lane in T.vectorized(lanes):
                    logits[i, part * lanes + lane] *= total[0]
            if targets[i] >= 0:
                logits[i, targets[i]] -= scale[i]

    return func


@template("distill_loss")
def distill_loss(c: int, v: int, *, isa: Isa):
    """loss[i] = KL(p ‖ q) in nats with p = softmax(teacher[i]), q = softmax(logits[i]); logits[i] ← scale[i] · (q − p)

    logits [C,V] f32 (read and overwritten) · teacher [C,V] f32 · scale [C] f32  →  loss [C] f32, not scaled
    With a = logits − max and b = teacher − max: KL = Σ e^b·(b − a) / Σ e^b + log Σ e^a − log Σ e^b, so equal rows give 0 exactly.
    """
    lanes = lanes_for(v, isa)

    @T.prim_func
    def func(
        logits: T.Buffer((c, v), "float32"), teacher: T.Buffer((c, v), "float32"), scale: T.Buffer((c,), "float32"), loss: T.Buffer((c,), "float32")
    ):
        for i in T.parallel(c):
            top_a = T.alloc_buffer((lanes,), "float32", scope="local")
            top_b = T.alloc_buffer((lanes,), "float32", scope="local")
            total_a = T.alloc_buffer((lanes,), "float32", scope="local")
            total_b = T.alloc_buffer((lanes,), "float32", scope="local")
            between = T.alloc_buffer((lanes,), "float32", scope="local")
            # 1. The largest logit of each, which keeps every exponential at most 1.
            for lane in T.vectorized(lanes):
                top_a[lane] = logits[i, lane]
                top_b[lane] = teacher[i, lane]
            for part in range(v // lanes):
                for lane in T.vectorized(lanes):
                    top_a[lane] = T.max(top_a[lane], logits[i, part * lanes + lane])
                    top_b[lane] = T.max(top_b[lane], teacher[i, part * lanes + lane])
            lane_max(top_a, lanes)
            lane_max(top_b, lanes)
            # 2. Σ e^a, Σ e^b and Σ e^b·(b − a).
            fill(total_a, lanes, 0)
            fill(total_b, lanes, 0)
            fill(between, lanes, 0)
            for part in range(v // lanes):
                for lane in T.vectorized(lanes):
                    total_a[lane] += exp(logits[i, part * lanes + lane] - top_a[0])
                for lane in T.vectorized(lanes):
                    total_b[lane] += exp(teacher[i, part * lanes + lane] - top_b[0])
                for lane in T.vectorized(lanes):
                    at = T.meta_var(part * lanes + lane)
                    between[lane] += exp(teacher[i, at] - top_b[0]) * ((teacher[i, at] - top_b[0]) - (logits[i, at] - top_a[0]))
            lane_sum(total_a, lanes)
            lane_sum(total_b, lanes)
            lane_sum(between, lanes)
            loss[i] = between[0] / total_b[0] + log(total_a[0]) - log(total_b[0])
            # 3. The gradient in place of the logits.
            total_a[0] = scale[i] / total_a[0]
            total_b[0] = scale[i] / total_b[0]
            for part in range(v // lanes):
                for lane in T.vectorized(lanes):
                    at = T.meta_var(part * lanes + lane)
                    logits[i, at] = exp(logits[i, at] - top_a[0]) * total_a[0] - exp(teacher[i, at] - top_b[0]) * total_b[0]

    return func
