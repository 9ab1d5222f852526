"""Row-wise and element-wise kernels against their definitions in double precision, gradients against central differences.

Tolerance: 1e-6 of the largest result for values, 1e-5 of the gradient's norm for gradients.
"""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.compiler.kernels import rows

from tests.support.directional import check_gradient
from tests.support.kernel_trial import FLAT, GROUPS, HEADS, NORMS, ROPE, label
from tests.support.kernel_values import close, normal

TOLERANCE = 1e-6


def rms_norm(x, w, epsilon):
    return x * w / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)


def silu_product(gate, up):
    return gate / (1 + np.exp(-gate)) * up


@pytest.mark.parametrize(("m", "d", "epsilon"), NORMS)
def test_rms_norm_and_its_gradient_have_a_kernel_for_each_epsilon(trial, m, d, epsilon):
    x, w, dy = normal(m, d), normal(d, seed=2), normal(m, d, seed=3)
    close(trial.run(label(rows.rms_norm, m, d, epsilon), x, w)[-1], rms_norm(x.astype(np.float64), w, epsilon), TOLERANCE)
    dx = trial.run(label(rows.rms_norm_grad, m, d, epsilon), dy, x, w)[-1]
    check_gradient(lambda x: rms_norm(x, w.astype(np.float64), epsilon), [x], dy, [dx])


def test_rms_norm_of_a_row_of_zeros_is_zero(trial):
    y = trial.run(label(rows.rms_norm, 5, 64), np.zeros((5, 64), np.float32), normal(64))[-1]
    assert not y.any()


@pytest.mark.parametrize("size", ROPE)
def test_rope_turns_neighbouring_pairs_as_complex_numbers_turn(trial, size):
    b, t, heads, width = size
    angles = np.random.default_rng(4).uniform(-3, 3, (t, width // 2))
    x, cos, sin = normal(b, t, heads, width), np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    pairs = x.astype(np.float64).reshape(b, t, heads, -1, 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)[None, :, None]
    y = trial.run(label(rows.rope, *size), x, cos, sin)[-1]
    close(y, np.stack([turned.real, turned.imag], -1), TOLERANCE)
    back = trial.run(label(rows.rope, *size, inverse=True), y, cos, sin)[-1]
    close(back.reshape(x.shape), x, TOLERANCE)


@pytest.mark.parametrize("n", FLAT)
def test_add_and_swiglu_and_its_gradient(trial, n):
    gate, up, dy = 3 * normal(n), normal(n, seed=2), normal(n, seed=3)
    np.testing.assert_array_equal(trial.run(label(rows.add, n), gate, up)[-1], gate + up)
    close(trial.run(label(rows.swiglu, n), gate, up)[-1], silu_product(gate.astype(np.float64), up), TOLERANCE)
    gradients = trial.run(label(rows.swiglu_grad, n), dy, gate, up)[-2:]
    check_gradient(silu_product, [gate, up], dy, gradients)


def test_swiglu_survives_gates_that_no_exponential_can_hold(trial):
    gate = np.array([-1e30, -200, -90, 0, 90, 200, 1e30], np.float32)
    up = np.ones(7, np.float32)
    found = trial.run(label(rows.swiglu, 7), gate, up)[-1]
    np.testing.assert_allclose(found[3:], gate[3:], rtol=1e-6)
    # Below −87 the formula clamps the exponential: a result of at most 1e-8 of the gate instead of 0.
    assert (np.abs(found[:3]) <= np.abs(gate[:3]) * 1e-8).all()
    assert np.isfinite(np.concatenate(trial.run(label(rows.swiglu_grad, 7), up, gate, up)[-2:])).all()


@pytest.mark.parametrize("size", GROUPS)
def test_group_sum_adds_neighbours_and_group_spread_repeats_them(trial, size):
    m, groups, width = size
    x = normal(m, groups, width)
    close(trial.run(label(rows.group_sum, *size), x)[-1], x.astype(np.float64).sum(-1), TOLERANCE)
    np.testing.assert_array_equal(trial.run(label(rows.group_spread, *size), x[..., 0])[-1], np.repeat(x[..., :1], width, -1))


@pytest.mark.parametrize("size", HEADS)
def test_sum_heads_adds_up_the_query_heads_of_each_key_head(trial, size):
    x = normal(*size)
    close(trial.run(label(rows.sum_heads, *size), x)[-1], x.astype(np.float64).sum(2), TOLERANCE)
