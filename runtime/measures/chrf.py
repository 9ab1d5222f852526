"""chrF: how many character n-grams an answer shares with a reference (Popović 2015, https://aclanthology.org/W15-3049).

In:  an answer and one or more references.
Out: 0..100, the number that sacrebleu's `sentence_chrf` gives with its default settings: n = 1..6, beta = 2, white space left out.
An order counts only where both texts are long enough to have n-grams of it, so two short equal texts score 100. Case and width count;
fold the texts first if they should not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

MAX_ORDER = 6
BETA = 2
"""recall weighs four times as much as precision"""


def chrf(answer: str, references: Sequence[str]) -> float:
    """The score against the reference that fits best. ValueError without a reference."""
    if isinstance(references, str) or not references:
        raise ValueError("chrF needs a list of at least one reference")
    counts = _ngram_counts(answer)
    return max(_f_score(counts, _ngram_counts(reference)) for reference in references)


def _ngram_counts(text: str) -> list[Counter[str]]:
    letters = "".join(text.split())
    return [Counter(letters[i : i + n] for i in range(len(letters) - n + 1)) for n in range(1, MAX_ORDER + 1)]


def _f_score(answer: list[Counter[str]], reference: list[Counter[str]]) -> float:
    orders = [(a, r) for a, r in zip(answer, reference, strict=True) if a and r]
    if not orders:
        return 0.0
    shared = [sum(min(count, r[ngram]) for ngram, count in a.items() if ngram in r) for a, r in orders]
    precision = sum(s / a.total() for s, (a, _) in zip(shared, orders, strict=True)) / len(orders)
    recall = sum(s / r.total() for s, (_, r) in zip(shared, orders, strict=True)) / len(orders)
    if not precision + recall:
        return 0.0
    return 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
