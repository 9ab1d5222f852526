"""Attention, its gradient and its decoding form against softmax(q·kᵀ/√d)·v in double precision.

Tolerance: 2e-6 of the largest result for values, 1e-5 of the gradient's norm for gradients (central differences).
"""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.compiler.kernels import attention as templates

from tests.support.directional import check_gradient
from tests.support.kernel_trial import ATTENTION, DECODE, label
from tests.support.kernel_values import close, normal

TOLERANCE = 2e-6


def attention(q, k, v, start):
    """q [B,T,H,d] · k, v [B,T,KV,d] · start [B,T]  →  o [B,T,H,d]"""
    share, (t, width) = q.shape[2] // k.shape[2], (q.shape[1], q.shape[3])
    scores = np.einsum("bihc,bjhc->bhij", q, np.repeat(k, share, 2)) / np.sqrt(width)
    column = np.arange(t)
    seen = (column[None, None] >= start[:, :, None]) & (column[None, None] <= column[None, :, None])
    scores = np.where(seen[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bjhc->bihc", weights / weights.sum(-1, keepdims=True), np.repeat(v, share, 2))


def inputs(size) -> list[np.ndarray]:
    b, t, heads, kv_heads, width = size
    return [3 * normal(b, t, heads, width), normal(b, t, kv_heads, width, seed=2), normal(b, t, kv_heads, width, seed=3)]


def starts(size, lengths: list[int]) -> np.ndarray:
    """Rows that hold samples of these lengths, then padding that sees only itself."""
    t = size[1]
    row = np.arange(t, dtype=np.int32)
    at = 0
    for length in lengths:
        row[at : at + length] = at
        at += length
    return np.stack([row, np.zeros(t, np.int32)][: size[0]])


LAYOUTS = {"one sample": [10_000], "three samples and padding": [7, 17, 5], "padding only": [], "a sample per token": [1] * 96}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", ATTENTION)
def test_attention_sees_its_own_sample_up_to_itself_and_nothing_else(trial, size, layout):
    q, k, v = inputs(size)
    start = starts(size, LAYOUTS[layout])
    wanted = attention(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64), start)
    close(trial.run(label(templates.attention, *size), q, k, v, start)[-1], wanted, TOLERANCE)


@pytest.mark.parametrize("layout", ["one sample", "three samples and padding"])
@pytest.mark.parametrize("size", ATTENTION)
def test_the_gradient_of_attention(trial, size, layout):
    b, t, heads, kv_heads, width = size
    q, k, v = inputs(size)
    start, do = starts(size, LAYOUTS[layout]), normal(b, t, heads, width, seed=4)
    dq, dk, dv = trial.run(label(templates.attention_grad, *size), do, q, k, v, start)[-3:]
    dk, dv = (x.reshape(b, t, kv_heads, heads // kv_heads, width).sum(3) for x in (dk, dv))
    check_gradient(lambda q, k, v: attention(q, k, v, start), [q, k, v], do, [dq, dk, dv])


@pytest.mark.parametrize("position", ["first", "last"])
@pytest.mark.parametrize("size", DECODE)
def test_decoding_attention_is_the_last_row_of_attention(trial, size, position):
    context, heads, kv_heads, width = size
    q, keys, values = inputs((1, context, heads, kv_heads, width))
    at = 0 if position == "first" else context - 1
    wanted = attention(*(x.astype(np.float64) for x in (q, keys, values)), np.zeros((1, context), np.int32))[0, at]
    keys[0, at + 1 :] = values[0, at + 1 :] = np.nan  # rows of the cache that hold nothing yet
    found = trial.run(label(templates.decode_attention, *size), q[0, at], keys[0], values[0], np.array([at], np.int32))[-1]
    close(found.reshape(wanted.shape), wanted, TOLERANCE)


def test_scores_far_apart_leave_weights_of_zero_and_one(trial):
    size = ATTENTION[0]
    q, k, v = inputs(size)
    wanted = attention(*(x.astype(np.float64) for x in (1e4 * q, k, v)), starts(size, [64]))
    close(trial.run(label(templates.attention, *size), 1e4 * q, k, v, starts(size, [64]))[-1], wanted, 1e-5)
