"""Compare two versions' scores on the same items: by how much, by chance or not, and whether the loss stays inside a margin.

In:  two lists of scores of the same items, where more is better.
Out: PairedComparison: mean change, one-sided p-values, a 95 % interval; a Standing for a margin that is a share of the base's mean.
A large p-value does not say that nothing was lost, only that few items cannot tell; that nothing (or little) was lost is what
`standing` says, from the interval.
"""

# Shapes: n pairs · R resamples · K rows of one chunk

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

Standing = Literal["not_worse", "undecided", "worse"]

EXACT_MAX_PAIRS = 16
"""up to here all 2^n sign patterns are tried"""
RESAMPLES = 9999
"""random patterns beyond that: the p-value's own error is then at most 0.005"""
RESAMPLES_PER_CHUNK = 1000
SEED = 20240229
COVERAGE = 0.95


@dataclass(frozen=True)
class PairedComparison:
    """How the scores changed from one version to another."""

    mean_before: float
    mean_after: float
    p_worse: float
    """one-sided: how often chance alone would look at least this much worse"""
    p_better: float
    """the same for better"""
    low: float
    """lower end of the 95 % interval of the mean change; minus infinity for a single pair"""
    high: float
    n: int
    """pairs"""

    @property
    def mean_change(self) -> float:
        """Negative is worse."""
        return self.mean_after - self.mean_before


def compare(before: Sequence[float], after: Sequence[float]) -> PairedComparison:
    """The whole comparison of two lists of scores. ValueError if they cannot be paired."""
    if len(before) != len(after):
        raise ValueError(f"paired scores must be as many before as after, not {len(before)} and {len(after)}")
    changes = np.subtract(after, before, dtype=np.float64)
    if changes.ndim != 1 or not len(changes) or not np.isfinite(changes).all():
        raise ValueError("a paired comparison needs finite scores and at least one pair")
    low, high = mean_interval(changes)
    return PairedComparison(
        float(np.mean(before)), float(np.mean(after)), sign_flip_p(changes), sign_flip_p(-changes), low, high, len(changes)
    )  # fmt: skip


def sign_flip_p(changes: np.ndarray) -> float:
    """How likely a sum as low as that of `changes` is if every change could as well have had the other sign.

    p = P(Σ sᵢ·dᵢ ≤ Σ dᵢ) over independent signs s = ±1, by all 2ⁿ patterns if n is small, else p = (1 + hits) / (1 + R) over R random
    ones with a fixed seed, which is never too small. changes [n] f64.
    Fisher, The Design of Experiments (1935), §21; Phipson and Smyth, doi:10.2202/1544-6115.1585, for the ones.
    """
    limit = changes.sum() + _tie(changes)
    if len(changes) <= EXACT_MAX_PAIRS:
        sums = np.zeros(1)
        for change in changes:
            sums = np.concatenate([sums + change, sums - change])
        return float((sums <= limit).mean())
    generator, hits = np.random.default_rng(SEED), 0
    for rows in _chunks():
        signs = generator.integers(0, 2, (rows, len(changes)), dtype=np.int8) * np.int8(2) - np.int8(1)
        hits += int((signs @ changes <= limit).sum())
    return (1 + hits) / (1 + RESAMPLES)


def mean_interval(changes: np.ndarray) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean, widened by √(n/(n−1))·t/z because few pairs vary too little among themselves.

    The widening is that of the expanded percentile interval, Hesterberg, What Teachers Should Know About the Bootstrap (2015),
    arXiv 1411.5279, §5. Below some 15 pairs of very uneven changes it still covers less than 95 %. changes [n] f64.
    """
    n = len(changes)
    if n == 1:
        return -np.inf, np.inf
    generator = np.random.default_rng(SEED)
    means = np.concatenate([changes[generator.integers(0, n, (rows, n))].mean(1) for rows in _chunks()])
    mean = changes.mean()
    tail = (1 - COVERAGE) / 2
    low, high = mean + (np.quantile(means, (tail, 1 - tail)) - mean) * np.sqrt(n / (n - 1)) * _student_over_normal(1 - tail, n - 1)
    return float(low), float(high)


def _student_over_normal(probability: float, freedom: int) -> float:
    """Quantile of Student's t over that of the normal distribution: its expansion in 1/freedom (Abramowitz and Stegun, 26.7.5), first two terms."""
    z = NormalDist().inv_cdf(probability)
    return 1 + (z**2 + 1) / (4 * freedom) + (5 * z**4 + 16 * z**2 + 3) / (96 * freedom**2)


def standing(comparison: PairedComparison, margin_share: float) -> Standing:
    """Whether the new version is not worse than the base by more than `margin_share` of the base's mean (0.05: five per cent).

    `not_worse`: the whole interval lies above the margin; `worse`: all of it below; `undecided`: the margin is inside, more items would tell.
    A base without a positive mean has nothing to lose: its margin is 0.
    """
    if not 0 <= margin_share < 1:
        raise ValueError(f"the margin is {margin_share}, allowed: a share from 0 to below 1")
    margin = -margin_share * max(comparison.mean_before, 0.0)
    if comparison.low >= margin:
        return "not_worse"
    return "worse" if comparison.high < margin else "undecided"


def _chunks() -> Iterator[int]:
    for at in range(0, RESAMPLES, RESAMPLES_PER_CHUNK):
        yield min(RESAMPLES_PER_CHUNK, RESAMPLES - at)


def _tie(changes: np.ndarray) -> float:
    """Sums that differ by no more than this are equal but for rounding."""
    return float(np.abs(changes).sum()) * len(changes) * float(np.finfo(np.float64).eps)
