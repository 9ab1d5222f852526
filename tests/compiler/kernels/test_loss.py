"""The loss, AdamW and the gradient's norm against their definitions in double precision.

Tolerance: 2e-6 relative, and for the loss absolute as well: its value is a difference of numbers of the logits' size.
"""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.compiler.kernels import head, optimizer
from mobilefinetuner.runtime.bundle.plan import Hyperparameters

from tests.support.kernel_trial import ADAM, LOSS, SQUARES, label
from tests.support.kernel_values import close, normal

TOLERANCE = 2e-6


@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("size", LOSS)
def test_softmax_loss_and_the_gradient_that_takes_the_logits_place(trial, size, spread):
    c, v = size
    logits, scale = spread * normal(c, v), np.linspace(-0.5, 0.125, c).astype(np.float32)
    targets = np.array([v - 1, -1, 0, 5], np.int32)[:c]
    changed, _, _, loss = trial.run(label(head.softmax_loss, *size), logits, targets, scale)
    exact = logits.astype(np.float64)
    log_sum = np.log(np.exp(exact - exact.max(1, keepdims=True)).sum(1)) + exact.max(1)
    picked = exact[np.arange(c), np.maximum(targets, 0)]
    np.testing.assert_allclose(loss, np.where(targets >= 0, log_sum - picked, 0), atol=TOLERANCE * np.abs(exact).max())
    gradient = np.exp(exact - log_sum[:, None])
    gradient[np.arange(c), np.maximum(targets, 0)] -= 1
    close(changed, np.where(targets[:, None] >= 0, gradient, 0) * scale[:, None], TOLERANCE)


def test_a_row_without_a_target_gives_no_loss_and_no_gradient(trial):
    changed, _, _, loss = trial.run(label(head.softmax_loss, 3, 512), normal(3, 512), np.full(3, -1, np.int32), np.ones(3, np.float32))
    assert not loss.any() and not changed.any()


@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("size", LOSS)
def test_distill_loss_is_the_divergence_from_the_teacher_and_leaves_its_gradient_in_the_logits_place(trial, size, spread):
    c, v = size
    logits, teacher, scale = spread * normal(c, v), spread * normal(c, v, seed=2), np.linspace(-0.5, 0.125, c).astype(np.float32)
    changed, kept, _, loss = trial.run(label(head.distill_loss, *size), logits, teacher, scale)
    q, p = log_softmax(logits), log_softmax(teacher)
    np.testing.assert_allclose(loss, (np.exp(p) * (p - q)).sum(1), atol=2 * TOLERANCE * np.abs(np.stack([q, p])).max())
    close(changed, scale[:, None] * (np.exp(q) - np.exp(p)), TOLERANCE)
    np.testing.assert_array_equal(kept, teacher)


def test_a_student_that_is_its_teacher_has_no_loss_to_the_bit_and_no_gradient(trial):
    """Not to the bit: of the two products whose difference the gradient is, a fused multiply-add rounds only one."""
    logits = 30.0 * normal(3, 512)
    changed, _, _, loss = trial.run(label(head.distill_loss, 3, 512), logits, logits, np.ones(3, np.float32))
    assert not loss.any() and np.abs(changed).max() < 1e-7


def log_softmax(logits: np.ndarray) -> np.ndarray:
    exact = logits.astype(np.float64)
    exact = exact - exact.max(1, keepdims=True)
    return exact - np.log(np.exp(exact).sum(1, keepdims=True))


def adamw(w, m, v, g, hyper):
    """arXiv 1711.05101, with a scale on the gradient and a limit on the update."""
    h = Hyperparameters(*hyper)
    g = g * h.gradient_scale
    m, v = h.beta1 * m + (1 - h.beta1) * g, h.beta2 * v + (1 - h.beta2) * g**2
    update = h.learning_rate * (m / h.bias_correction1 / (np.sqrt(v / h.bias_correction2) + h.epsilon) + h.weight_decay * w)
    return w - np.clip(update, -h.max_update, h.max_update), m, v


@pytest.mark.parametrize("limit", [1e9, 1e-3], ids=["free", "limited"])
@pytest.mark.parametrize("size", ADAM)
def test_adamw_moves_parameters_and_moments(trial, size, limit):
    w, m, g = normal(size), normal(size, seed=2), normal(size, seed=3)
    v = np.abs(normal(size, seed=4))
    numbers = Hyperparameters(
        learning_rate=1e-2, beta1=0.9, beta2=0.98, epsilon=1e-8, weight_decay=0.1, bias_correction1=1 - 0.9**3, bias_correction2=1 - 0.98**3,
        gradient_scale=0.5, max_update=limit,
    )  # fmt: skip
    hyper = np.array(numbers, np.float32)
    found = trial.run(label(optimizer.adamw_step, size), w, m, v, g, hyper)
    for ours, wanted in zip(found, adamw(*(x.astype(np.float64) for x in (w, m, v, g, hyper)))):
        close(ours, wanted, TOLERANCE)


def test_sum_squares_adds_up_in_one_order(trial):
    g = normal(SQUARES)
    exact = (g.astype(np.float64) ** 2).sum()
    total = trial.run(label(optimizer.sum_squares, SQUARES), g, threads=1)[-1]
    np.testing.assert_allclose(total, exact, rtol=TOLERANCE)
    np.testing.assert_array_equal(total, trial.run(label(optimizer.sum_squares, SQUARES), g, threads=2)[-1])
