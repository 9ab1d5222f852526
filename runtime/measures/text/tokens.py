"""Token F1 as SQuAD counts it (Rajpurkar et al. 2016, arXiv 1606.05250), for texts that mix scripts.

In:  an answer and one or more references.
Out: 0..1, the harmonic mean of the shares of the answer's and the reference's tokens that the other one has too.
Tokens are words of alphabetic scripts, whole numbers, and single characters of scripts without spaces and of Hangul, whose words end in particles.
Unlike SQuAD's script, 3.5 stays apart from 35, and "well-known" is two words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from .normal_form import EMOJI, SINGLE, WORD_CHARACTER, fold
from .number_forms import canonical_number

ARTICLES = frozenset(("a", "an", "the"))
"""left out, as in SQuAD"""
_TOKEN = re.compile(rf"(?P<number>\d+(?:[.,:']\d+)*)|{WORD_CHARACTER}+(?:'{WORD_CHARACTER}+)*|[{SINGLE}]|[%$€£¥₹₩฿₫{EMOJI}]")


@lru_cache(maxsize=1024)
def tokens(text: str) -> tuple[str, ...]:
    """The text's tokens in one case and width, without punctuation; "don't" is "dont", 1,000 is 1000."""
    return tuple(_canonical(match) for match in _TOKEN.finditer(fold(text)))


def _canonical(match: re.Match[str]) -> str:
    if match["number"] and ":" not in match[0]:
        return canonical_number(match[0])
    return match[0].replace("'", "")


def token_f1(answer: str, references: Sequence[str]) -> float:
    """F1 against the reference that fits best; 1 if both have no token, 0 if only one has none. ValueError without a reference."""
    if isinstance(references, str) or not references:
        raise ValueError("token F1 needs a list of at least one reference")
    return max(_f1(_counts(answer), _counts(reference)) for reference in references)


def _counts(text: str) -> Counter[str]:
    return Counter(token for token in tokens(text) if token not in ARTICLES)


def _f1(answer: Counter[str], reference: Counter[str]) -> float:
    if not answer or not reference:
        return float(not answer and not reference)
    return 2 * (answer & reference).total() / (answer.total() + reference.total())
