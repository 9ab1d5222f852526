"""How the next token is picked from the logits."""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.runtime.engine.decode import greedy, sampler

LOGITS = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
DRAWS = 4000


def drawn(logits: np.ndarray, temperature: float, seed: int = 0, draws: int = DRAWS) -> list[int]:
    pick = sampler(temperature, seed)
    return [pick(logits) for _ in range(draws)]


@pytest.mark.parametrize(
    ("logits", "token"),
    [
        pytest.param([0.0, 3.0, 2.0], 1, id="the largest"),
        pytest.param([1.0, 2.0, 2.0], 1, id="the lowest id of equals"),
        pytest.param([-5.0, -4.0, -6.0], 1, id="all below zero"),
        pytest.param([-np.inf, -np.inf, -1e30], 2, id="the only possible one"),
    ],
)
def test_greedy_takes_the_most_likely_token(logits, token):
    assert greedy(np.array(logits, np.float32)) == token


@pytest.mark.parametrize(
    ("temperature", "shares"),
    [
        pytest.param(1.0, (0.1, 0.2, 0.3, 0.4), id="as the model says"),
        pytest.param(0.5, (1 / 30, 4 / 30, 9 / 30, 16 / 30), id="half squares the probabilities"),
        pytest.param(1e6, (0.25, 0.25, 0.25, 0.25), id="very hot is even"),
    ],
)
def test_tokens_are_drawn_as_often_as_the_softmax_over_the_temperature_says(temperature, shares):
    """Tolerance: four standard errors of a share."""
    found = np.bincount(drawn(LOGITS, temperature), minlength=4) / DRAWS
    for token, share in enumerate(shares):
        assert abs(found[token] - share) <= 4 * np.sqrt(share * (1 - share) / DRAWS), token


def test_a_temperature_near_zero_is_greedy():
    assert set(drawn(LOGITS, 1e-3, draws=200)) == {greedy(LOGITS)}


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_logits_of_any_height_are_drawn_from_alike(offset):
    """Without taking off the largest first, exp() of these would be infinite or 0."""
    steps = np.array([0.0, 1.0, 2.0, 3.0], np.float32)
    assert drawn(steps + np.float32(offset), 1.0, draws=100) == drawn(steps, 1.0, draws=100)


def test_an_impossible_token_is_never_drawn():
    assert 0 not in drawn(np.array([-np.inf, 0.0, 0.0], np.float32), 2.0)


def test_the_seed_decides_the_draws_and_each_sampler_has_its_own_generator():
    first = drawn(LOGITS, 1.0, seed=1, draws=50)
    other = sampler(1.0, 2)
    pick = sampler(1.0, 1)
    interleaved = [(pick(LOGITS), other(LOGITS))[0] for _ in range(50)]
    assert interleaved == first
    assert drawn(LOGITS, 1.0, seed=2, draws=50) != first


def test_logits_are_left_as_they_are():
    logits = LOGITS.copy()
    drawn(logits, 0.7, draws=1)
    np.testing.assert_array_equal(logits, LOGITS)
