"""Word sequences that are long enough to be told from chance, across scripts.

In:  tokens (tokens.tokens), and how many words or how many single characters make a sequence long enough.
Out: for every start the shortest long-enough sequence. Two texts share a long-enough sequence exactly if they share one of these.
A mixed sequence adds up: with 5 words or 8 characters, 3 words and 4 characters are enough (3/5 + 4/8 ≥ 1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .normal_form import SINGLE

_SINGLE = re.compile(f"[{SINGLE}]")


def spans(tokens: Sequence[str], words: int, characters: int) -> list[tuple[str, ...]]:
    """The shortest sequence from each start that weighs enough; as many as there are starts, fewer than tokens."""
    weights = [words if _SINGLE.fullmatch(token) else characters for token in tokens]
    found, end, weight = [], 0, 0
    for start in range(len(tokens)):
        while end < len(tokens) and weight < words * characters:
            weight += weights[end]
            end += 1
        if weight < words * characters:
            break
        found.append(tuple(tokens[start:end]))
        weight -= weights[start]
    return found
