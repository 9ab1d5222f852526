"""Which facts an answer holds: names, numbers, prices, times and addresses that must appear in it, and those that must not.

In:  an answer, the entities that are required and those that are forbidden.
Out: EntityFindings.
An entity is found as whole words, never inside a longer word or number: `3 days` is not in "13 days", 47 not in "147", but `40 watts` is in
"forty watts" and 3天 in "三天". Characters of scripts without spaces have no such bounds: 蓝卡 is found in 天蓝卡片. Inflected words
(Russian, Arabic, German plurals) are different words here; only the English plural behind a number is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .text.entity_tokens import Token, entity_tokens, prepared
from .text.normal_form import fold

PHONE_MIN_DIGITS = 7
_PHONE = re.compile(r"\+?[\d(][\d\s\-()./]*")
_DECIMAL = re.compile(r"\d+\.\d+")
_EMAIL = re.compile(r"\S+@[a-z0-9\-]+(?:\.[a-z0-9\-]+)+")
_HOST = re.compile(r"(?:https?://)?(?:[a-z0-9][a-z0-9\-]*\.)+[a-z][a-z0-9\-]+(?:[/?#]\S*)?")
_PHONE_GAP = r"[\s\-()./,]{0,3}"


@dataclass(frozen=True)
class EntityFindings:
    """What of the required and the forbidden entities an answer holds, in the order they were given."""

    found: tuple[str, ...]
    missing: tuple[str, ...]
    forbidden: tuple[str, ...]
    """those that must not appear and do"""


def find_entities(answer: str, required: Iterable[str], forbidden: Iterable[str] = ()) -> EntityFindings:
    """ValueError for an entity without a letter, digit or sign."""
    found, missing = [], []
    for entity in required:
        (found if contains_entity(answer, entity) else missing).append(entity)
    return EntityFindings(tuple(found), tuple(missing), tuple(entity for entity in forbidden if contains_entity(answer, entity)))


def contains_entity(text: str, entity: str) -> bool:
    """Whether the entity stands in the text, in whatever form."""
    wanted, pattern = _sought(entity)
    if pattern and pattern.search(prepared(text)):
        return True
    if pattern and len(wanted) > 1:
        return False
    tokens = entity_tokens(text)
    if len(wanted) == 1:
        return any(_is_same(token, wanted[0]) and (wanted[0].is_spelled or not token.is_spelled) for token in tokens)
    places = range(len(tokens) - len(wanted) + 1)
    return any(all(map(_is_same, tokens[at : at + len(wanted)], wanted)) for at in places)


def recall(findings: Sequence[EntityFindings]) -> float | None:
    """Share of all required entities that are found; None if none is required."""
    found = sum(len(one.found) for one in findings)
    total = found + sum(len(one.missing) for one in findings)
    return found / total if total else None


@lru_cache(maxsize=4096)
def _sought(entity: str) -> tuple[tuple[Token, ...], re.Pattern[str] | None]:
    """The tokens to find, and the pattern that finds an address or a telephone number as a whole."""
    tokens = list(entity_tokens(entity))
    while tokens and tokens[-1].kind == "break":
        tokens.pop()
    while tokens and tokens[0].kind == "break":
        tokens.pop(0)
    if not tokens:
        raise ValueError(f"the entity {entity!r} has no letter, digit or sign to look for")
    return tuple(tokens), _phone(entity, tokens) or _address(entity)


def _is_same(token: Token, want: Token) -> bool:
    return want.text in (token.text, token.other)


def _phone(entity: str, tokens: Sequence[Token]) -> re.Pattern[str] | None:
    """The digits of a telephone number in their order with at most blanks, dashes, points, commas and brackets between them."""
    folded = fold(entity).strip()
    digits = re.sub(r"\D", "", folded)
    has_other_meaning = len(tokens) == 1 and tokens[0].kind != "number"  # a date
    if has_other_meaning or len(digits) < PHONE_MIN_DIGITS or not _PHONE.fullmatch(folded) or _DECIMAL.fullmatch(folded):
        return None
    return re.compile(rf"(?<!\d)(?<!\d[-.]){_PHONE_GAP.join(digits)}(?![-.]?\d)")


def _address(entity: str) -> re.Pattern[str] | None:
    """An e-mail address as it stands; a page or host with or without scheme and "www.", also where a longer path follows."""
    folded = prepared(entity).strip()
    if _EMAIL.fullmatch(folded):
        return re.compile(rf"(?<![a-z0-9._%+\-]){re.escape(folded)}(?![a-z0-9\-])(?!\.[a-z0-9])")
    if _HOST.fullmatch(folded):
        bare = re.sub(r"^(?:https?://)?(?:www\.)?", "", folded).rstrip("/")
        return re.compile(rf"(?<![a-z0-9@.\-])(?:www\.)?{re.escape(bare)}(?![a-z0-9\-])(?!\.[a-z0-9])")
    return None
