"""The conversations that a chat template is tried on.

In:  nothing.
Out: sequences of roles to derive the segments from, and conversations with difficult texts to prove them on.
Usual conversations must be representable; unusual orders of roles may turn out not to be, and are then refused on the phone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

Turns = list[tuple[str, str]]

ROLES = ("system", "user", "assistant", "tool")
LONGEST_UNUSUAL = 4
"""Turns in the longest unusual sequence: enough for every pair of neighbours to occur first, in the middle and last."""

DIFFICULT_TEXTS = (
    "plain",
    "",
    " ",
    "\n",
    " leading and trailing ",
    "\n\nnewlines around\n\n",
    "\t tab and newline \n",
    "two\n\n\nparagraphs\n  indented",
    "你好，世界！请问今天营业吗？",
    "emoji 👩‍👩‍👧 🇨🇳 e\u0301",
    "a line separator \u2028 and a no-break space\u00a0",
    "{{ braces }} {% raw %} {# comment #} ${x} \\n",
    "<b>&amp; \"quotes\" 'single'</b>",
    "12,345.67 and 2024-02-29",
)


def usual_sequences(with_system: bool) -> Iterator[tuple[tuple[str, ...], bool]]:
    """(roles, add_generation_prompt) of ordinary dialogues of one to three rounds, complete or waiting for an answer."""
    head = ("system",) if with_system else ()
    for rounds in (1, 2, 3):
        dialogue = head + ("user", "assistant") * rounds
        yield dialogue, False
        yield dialogue[:-1], True
        yield dialogue[:-1], False


def unusual_sequences() -> Iterator[tuple[tuple[str, ...], bool]]:
    """Every order of roles up to LONGEST_UNUSUAL turns."""
    for length in range(1, LONGEST_UNUSUAL + 1):
        for roles in itertools.product(ROLES, repeat=length):
            yield roles, False
            yield roles, True


def proof_conversations(with_system: bool) -> Iterator[tuple[Turns, bool]]:
    """Dialogues in which every difficult text stands in every kind of turn."""
    count = len(DIFFICULT_TEXTS)
    for systems in (False, True) if with_system else (False,):
        for shift, first in enumerate(DIFFICULT_TEXTS):
            for rounds in (1, 2, 4):
                turns: Turns = [("system", DIFFICULT_TEXTS[(3 * shift + 1) % count])] if systems else []
                for index in range(rounds):
                    turns.append(("user", first if index == 0 else DIFFICULT_TEXTS[(shift + 5 * index) % count]))
                    turns.append(("assistant", DIFFICULT_TEXTS[(shift + 2 * index + 1) % count]))
                yield turns, False
                yield turns[:-1], True
