"""How a collection of texts sounds, as numbers that do not grow with their length or count, and how far two collections are apart.

In:  texts of one voice, such as the answers of one version or what the owner wrote.
Out: Tone: a value per name in NAMES; distances; the share of the way to a target that a new version went.
A feature that a collection cannot show (capitals in Chinese, variety of fewer than 50 tokens) is NaN and left out of every comparison.
Compare collections of one language: a rate per token means something else for Chinese characters than for English words.
"""

# Shapes: F features · n texts · N tokens of all texts

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .text.tokens import tokens
from .tone_features import FEATURES, CountedText

WINDOW_TOKENS = 50
"""of the type-token ratio"""
VARIETY_SCALE = 0.06
NAMES: tuple[str, ...] = (*FEATURES, "variety")
SCALES: np.ndarray = np.array([*(feature.scale for feature in FEATURES.values()), VARIETY_SCALE])
"""a difference of each feature that a reader notices"""
MIN_SCRIPT_SHARE = 0.2
"""of the tokens: with fewer words (or Han characters) the features of words (or Han characters) are NaN"""
CLIP = 3.0
"""no feature counts for more than so many of its scales, or one habit would hide all others"""
MIN_DISTANCE = 0.1
"""nearer than this to the target there is no way left to go"""


@dataclass(frozen=True)
class Tone:
    """A collection's features and how sure they are."""

    values: np.ndarray
    """[F] f64, in the order of NAMES"""
    errors: np.ndarray
    """[F] f64: their standard errors over the texts; 0 where a single text leaves them unknown"""


@dataclass(frozen=True)
class ToneMove:
    """How a new version stands to a target tone, compared with the old one."""

    old_distance: float
    new_distance: float
    share: float | None
    """of the old distance that was covered: 1 arrived, 0 no nearer, below 0 farther away; None if the old one was there already"""


def tone(texts: Iterable[str]) -> Tone:
    """The value of every feature. ValueError if no text holds a word."""
    counted = [CountedText(text.strip()) for text in texts if tokens(text)]
    if not counted:
        raise ValueError("a tone needs at least one text with a word in it")
    totals = {per: sum(text.count(per) for text in counted) for per in ("token", "word", "han")}
    rare = {per: totals[per] < MIN_SCRIPT_SHARE * totals["token"] for per in ("word", "han")}
    pairs = []
    for feature in FEATURES.values():
        value, error = _quotient([feature.count(text) for text in counted], [text.count(feature.per) for text in counted])
        is_missing = rare["han"] if feature.per == "han" else feature.per in ("word", "letter", "start") and rare["word"]
        if feature.is_logarithm:
            value, error = float(np.log2(value)), error / value / float(np.log(2))
        pairs.append((np.nan, 0.0) if is_missing else (feature.times * value, feature.times * error))
    values, errors = np.array([*pairs, _variety([text.tokens for text in counted])], dtype=np.float64).T
    return Tone(values, errors)


def _quotient(counts: Sequence[float], per: Sequence[float]) -> tuple[float, float]:
    """Σ counts / Σ per and its standard error over the texts (the ratio estimator: Cochran, Sampling Techniques, 1977, eq. 2.46)."""
    total, n = sum(per), len(per)
    if not total:
        return np.nan, 0.0
    value = sum(counts) / total
    squares = float(np.sum((np.asarray(counts) - value * np.asarray(per)) ** 2))
    return value, float(np.sqrt(squares * n / (n - 1)) / total) if n > 1 else 0.0


def _variety(texts: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Mean share of different tokens over all windows of 50, and its standard error.

    The texts form a ring, so that saying everything twice changes nothing. It is the moving-average type-token ratio, Covington and McFall
    2010, doi:10.1080/09296171003643098.
    """
    words = [token for text in texts for token in text]
    if len(words) < WINDOW_TOKENS:
        return np.nan, 0.0
    window, different = Counter(words[:WINDOW_TOKENS]), np.empty(len(words))
    for at, word in enumerate(words):
        different[at] = len(window)
        window[word] -= 1
        if not window[word]:
            del window[word]
        window[words[(at + WINDOW_TOKENS) % len(words)]] += 1
    lengths = [len(text) for text in texts]
    starts = np.cumsum([0, *lengths[:-1]])
    return _quotient(np.add.reduceat(different / WINDOW_TOKENS, starts), lengths)  # type: ignore[arg-type]


def tone_distance(a: Tone, b: Tone, scales: np.ndarray = SCALES) -> float:
    """Root mean square of the differences in scales, each at most CLIP, over the features that both have; scales [F] f64.

    What the standard errors explain is taken off, so that few texts do not look farther from a target than many.
    """
    return _distance(a, b, scales, ~np.isnan(a.values) & ~np.isnan(b.values))


def tone_move(old: Tone, new: Tone, target: Tone, scales: np.ndarray = SCALES) -> ToneMove:
    """How much of the distance from old to target the new version covered, over the features that all three have."""
    usable = ~np.isnan(old.values) & ~np.isnan(new.values) & ~np.isnan(target.values)
    before, after = _distance(old, target, scales, usable), _distance(new, target, scales, usable)
    return ToneMove(before, after, (before - after) / before if before >= MIN_DISTANCE else None)


def largest_differences(a: Tone, b: Tone, count: int, scales: np.ndarray = SCALES) -> list[tuple[str, float]]:
    """The features in which b differs most from a, as (name, signed difference in scales), the largest first."""
    steps = zip(NAMES, (b.values - a.values) / scales, strict=True)
    return sorted(((name, float(step)) for name, step in steps if not np.isnan(step)), key=lambda pair: -abs(pair[1]))[:count]


def _distance(a: Tone, b: Tone, scales: np.ndarray, usable: np.ndarray) -> float:
    if not usable.any():
        raise ValueError("the collections have no feature in common")
    steps = np.clip((a.values - b.values)[usable] / scales[usable], -CLIP, CLIP)
    chance = np.minimum((a.errors**2 + b.errors**2)[usable] / scales[usable] ** 2, CLIP**2)
    return float(np.sqrt(max(0.0, float(np.mean(steps**2 - chance)))))
