"""The paired comparison against scipy: p-values, the interval, and what a margin makes of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures import paired
from mobilefinetuner.runtime.measures.paired import PairedComparison, compare, mean_interval, sign_flip_p, standing

stats = pytest.importorskip("scipy.stats")


def scores(seed: int, n: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    before = rng.normal(1, 1, n)
    return before, before + rng.normal(shift, 1, n)


def scipy_p(before, after, alternative: str, **options) -> float:
    return stats.permutation_test(
        (after, before), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", alternative=alternative, vectorized=True, **options
    ).pvalue


@pytest.mark.parametrize(("n", "shift"), [(2, -1), (3, -2), (5, -0.5), (9, 0.0), (12, -0.8), (14, 0.3)])
def test_exact_p_values_are_those_of_scipy(n: int, shift: float) -> None:
    before, after = scores(n, n, shift)
    result = compare(before, after)
    assert result.p_worse == pytest.approx(scipy_p(before, after, "less", n_resamples=np.inf), abs=1e-12)
    assert result.p_better == pytest.approx(scipy_p(before, after, "greater", n_resamples=np.inf), abs=1e-12)
    assert result.mean_change == pytest.approx(np.mean(after - before))


def test_equal_and_tied_changes_count_as_scipy_counts_them() -> None:
    before, after = np.zeros(6), np.array([-0.1, -0.1, 0.1, 0.0, -0.3, 0.2])
    assert compare(before, after).p_worse == pytest.approx(scipy_p(before, after, "less", n_resamples=np.inf), abs=1e-12)


@pytest.mark.parametrize("shift", [-0.25, -0.1, 0.2])
def test_sampled_p_values_are_those_of_scipy_within_three_standard_errors(shift: float) -> None:
    before, after = scores(84, 84, shift)
    expected = scipy_p(before, after, "less", n_resamples=29_999, rng=np.random.default_rng(1))
    error = math.sqrt(expected * (1 - expected) * (1 / paired.RESAMPLES + 1 / 29_999))
    assert abs(compare(before, after).p_worse - expected) <= 3 * error + 1e-4


def test_the_same_scores_give_the_same_comparison_each_time() -> None:
    before, after = scores(1, 150, -0.1)
    assert compare(before, after) == compare(before, after)


def test_no_p_value_is_zero_however_large_the_drop() -> None:
    assert compare(np.zeros(84), np.full(84, -1.0)).p_worse == 1 / (1 + paired.RESAMPLES)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=10))
def test_worse_and_better_are_mirror_images(pairs: list[tuple[float, float]]) -> None:
    before, after = zip(*pairs, strict=True)
    changes = np.subtract(after, before)
    assert sign_flip_p(changes) + sign_flip_p(-changes) >= 1 - 1e-9  # what was observed counts on both sides
    assert sign_flip_p(changes * 3) == sign_flip_p(changes)


# The interval


@pytest.mark.parametrize("n", [8, 20, 84, 300])
def test_the_interval_is_scipys_percentile_bootstrap_widened_for_few_pairs(n: int) -> None:
    """Both are random: their ends may differ by a few per cent of the width."""
    changes = np.random.default_rng(n).exponential(1, n)
    theirs = stats.bootstrap((changes,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2)).confidence_interval
    widening = math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1) / stats.norm.ppf(0.975)
    mean = changes.mean()
    expected = (mean + (theirs.low - mean) * widening, mean + (theirs.high - mean) * widening)
    assert mean_interval(changes) == pytest.approx(expected, abs=0.04 * (expected[1] - expected[0]))


def test_the_interval_of_many_pairs_is_the_normal_one() -> None:
    changes = np.random.default_rng(5).normal(-0.1, 0.3, 1000)
    half = 1.96 * changes.std(ddof=1) / math.sqrt(1000)
    assert mean_interval(changes) == pytest.approx((changes.mean() - half, changes.mean() + half), abs=0.1 * half)


def test_the_interval_holds_the_true_change_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(8)
    intervals = [mean_interval(rng.normal(0.2, 1, 20)) for _ in range(200)]
    held = sum(low <= 0.2 <= high for low, high in intervals)
    assert stats.binom.ppf(0.001, 200, 0.95) <= held <= stats.binom.ppf(0.999, 200, 0.95)


def test_a_single_pair_tells_nothing_about_the_mean() -> None:
    assert mean_interval(np.array([0.3])) == (-math.inf, math.inf)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30))
def test_the_interval_holds_the_mean_change(changes: list[float]) -> None:
    low, high = mean_interval(np.array(changes))
    assert low - 1e-9 <= np.mean(changes) <= high + 1e-9


# The margin


def comparison(mean_before: float, low: float, high: float) -> PairedComparison:
    return PairedComparison(mean_before, mean_before + (low + high) / 2, 0.5, 0.5, low, high, 100)


@pytest.mark.parametrize(
    ("mean_before", "low", "high", "margin_share", "verdict"),
    [
        (0.4, -0.01, 0.02, 0.05, "not_worse"),
        (0.4, -0.02, 0.02, 0.05, "not_worse"),
        (0.4, -0.03, 0.02, 0.05, "undecided"),
        (0.4, -0.10, -0.01, 0.05, "undecided"),
        (0.4, -0.10, -0.03, 0.05, "worse"),
        (0.4, -0.10, -0.03, 0.5, "not_worse"),
        (0.4, 0.01, 0.02, 0.0, "not_worse"),
        (0.4, 0.0, 0.0, 0.0, "not_worse"),
        (-0.2, -0.01, 0.02, 0.5, "undecided"),
        (-0.2, 0.0, 0.02, 0.5, "not_worse"),
        (0.4, -math.inf, math.inf, 0.05, "undecided"),
    ],
)
def test_the_standing_follows_from_where_the_margin_lies_in_the_interval(mean_before, low, high, margin_share, verdict) -> None:
    assert standing(comparison(mean_before, low, high), margin_share) == verdict


def test_few_items_are_undecided_and_many_are_not_worse_at_the_same_small_loss() -> None:
    rng = np.random.default_rng(3)
    few, many = (compare(before, before - 0.005 + rng.normal(0, 0.05, n)) for n, before in ((15, rng.random(15)), (600, rng.random(600))))
    assert standing(few, 0.05) == "undecided" and standing(many, 0.05) == "not_worse"
    assert many.p_worse < 0.5  # a loss inside the margin may still be a loss


@pytest.mark.parametrize("margin_share", [-0.1, 1.0, math.nan])
def test_a_margin_that_is_no_share_is_refused(margin_share: float) -> None:
    with pytest.raises(ValueError, match="allowed: a share"):
        standing(comparison(0.4, 0, 0), margin_share)


@pytest.mark.parametrize(("before", "after"), [([], []), ([1.0], [1.0, 2.0]), ([math.nan], [0.0])], ids=["empty", "unequal", "nan"])
def test_scores_that_cannot_be_paired_are_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match="paired"):
        compare(before, after)
