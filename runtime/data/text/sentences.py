"""Where sentences end, in Chinese and English (and whatever else uses their signs).

In:  a text.
Out: character offsets just behind each sentence, closing quotes included; the last one is always the text's end.
Every offset lies in the text, they grow, and the slices between them are the text: nothing is lost by cutting there.
"""

from __future__ import annotations

import re

_CLOSERS = "\"'”’」』）)】》〉］]}»"
_ABBREVIATIONS = frozenset(
    """mr mrs ms dr prof st sr jr vs e.g i.e eg ie cf al inc ltd corp dept approx rep sen gov capt lt rev hon ave blvd u.s u.k
    u.n ph.d b.a m.a z.b d.h bzw p.ex""".split()
)
_BEFORE_NUMBERS = frozenset(
    "no nos fig figs vol p pp ch sec art eq jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun".split()
)
"""Words that are abbreviations only when a number follows: "no. 5", but "I said no. Then" """
# Chinese enders end wherever they stand; English ones need white space or the text's end behind them.
_END = re.compile(
    rf"(?:(?:[。！？；…｡]+|[.!?;]+(?=[{re.escape(_CLOSERS)}]*(?:\s|$)))[{re.escape(_CLOSERS)}]*)?[ \t\r]*\n+"
    rf"|(?:[。！？；…｡]+|[.!?;]+(?=[{re.escape(_CLOSERS)}]*(?:\s|$)))[{re.escape(_CLOSERS)}]*"
)
_CLAUSE = re.compile(rf"(?:[，、：,:]|——|–|—)[{re.escape(_CLOSERS)}]*")
_WORD_BEFORE = re.compile(r"([A-Za-z](?:[A-Za-z.]*[A-Za-z])?)$")
_LONGEST_WORD = 24


def sentence_ends(text: str) -> list[int]:
    """Offsets behind each sentence. A line break ends one too: verses and list items have no full stop."""
    ends: list[int] = []
    for match in _END.finditer(text):
        if _is_end(text, match):
            ends.append(match.end())
    if text and (not ends or ends[-1] != len(text)):
        ends.append(len(text))
    return ends


def _is_end(text: str, match: re.Match) -> bool:
    """A line break and a Chinese sign always end; a Latin one does not before a small letter, and a full stop may only abbreviate."""
    sign = match.group()
    if sign.endswith("\n") or sign[0] in "。！？；…｡":
        return True
    following = text[match.end() : match.end() + 8].lstrip()[:1]
    if following.islower() or not sign.startswith(".") or sign.startswith(".."):
        return not following.islower()
    word = _WORD_BEFORE.search(text[max(0, match.start() - _LONGEST_WORD) : match.start()])
    if word is None:
        return not _is_item_number(text, match.start())
    token = word.group(1)
    is_initial = len(token) == 1 and token.isupper()
    return not (token.lower() in _ABBREVIATIONS or is_initial or (token.lower() in _BEFORE_NUMBERS and following.isdigit()))


def _is_item_number(text: str, dot: int) -> bool:
    """ "3. " at the beginning of a line numbers an item."""
    start = dot
    while start > 0 and dot - start < 4 and text[start - 1].isdigit():
        start -= 1
    return start < dot and (start == 0 or text[start - 1] == "\n")


def clause_ends(text: str) -> list[int]:
    """Offsets behind each clause (commas, colons, dashes) for a sentence that is too long by itself; decimals stay whole."""
    ends = [match.end() for match in _CLAUSE.finditer(text) if not _inside_number(text, match)]
    if text and (not ends or ends[-1] != len(text)):
        ends.append(len(text))
    return ends


def _inside_number(text: str, match: re.Match) -> bool:
    return match.group() in (",", ":") and text[match.start() - 1 : match.start()].isdigit() and text[match.end() : match.end() + 1].isdigit()
