"""What shows that a model is broken, whatever the right answer would be: empty, looping, cut-off answers and the wrong language.

In:  an answer, its question, the languages that are expected, and whether the answer was stopped by the length limit.
Out: the answer's faults; over many answers the share of each fault.
Everything here errs on the side of no fault: a language that cannot be told is not wrong, and a refrain is no loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args

from .text.language_guess import LANGUAGES, guess_language
from .text.spans import spans
from .text.tokens import tokens

Fault = Literal["empty", "loop", "cut_off", "wrong_language"]

LOOP_WORDS, LOOP_CHARACTERS = 4, 6
"""a sequence of so many is a repetition when it comes again"""
LOOK_BACK_TOKENS = 200
"""it has to come again within so many, or a long answer would repeat itself more than a short one"""
LOOP_SHARE = 0.5
LOOP_MIN_TOKENS = 20
"""ha ha ha is no loop"""
TAIL_ROUNDS, TAIL_MAX_PERIOD = 3, 40
"""an answer that ends in so many equal rounds will not have stopped by itself"""
MIN_LANGUAGE_UNITS = 6
"""units of evidence (language_guess) under which no script is called wrong: a name may stand in any script"""
MIN_HAN_UNITS = 3
"""the same for a question in Han characters, which are no foreign names"""

SCRIPTS = {"zh": "HAN", "ja": "HAN", "ko": "HANGUL", "ru": "CYRILLIC", "ar": "ARABIC"}
"""of the known languages; all others are LATIN"""
_COUNTER = re.compile(r"(?:\A|(?<=\s))\d{1,3}[.)、:](?=\s|[^\W\d])")
"""1. 2. 3. before the items of a list do not tell its rounds apart"""
_OPEN_END = re.compile(r"[,、，(（\[【{“‘「『《\-]\Z")
_JOINING_END = re.compile(
    r"\b(?:and|or|the|your|our|my|because|und|oder|weil|dan|atau|yang|karena|pero|porque|et|ou|mais|и|или|но)\Z|(?:和|与|或|因为|但是|而且|以及|を)\Z",
    re.I,
)
"""words that no sentence ends with"""
_ASKS_FOR_LANGUAGE = re.compile(
    r"translat|traduc|tradui|übersetz|terjemah|перевед|перевод|ترجم|翻译|翻譯|訳|번역|怎么说|怎麼說|"
    r"\b(?:in|into|en|auf|ke|dalam|bahasa|to|на) (?:the )?(?:bahasa )?(?:english|chinese|mandarin|german|french|spanish|russian|arabic|japanese|"
    r"korean|indonesian?|italian|portuguese|dutch|englisch|deutsch|französisch|spanisch|chinesisch|inggris|jerman|prancis|inglés|alemán|francés|anglais|allemand|"
    r"espagnol|chinois|английск|немецк)|"
    r"[英中德法俄日韩韓西汉漢阿印][语語文]",
    re.I,
)


def faults(answer: str, question: str, expected: Sequence[str] = (), *, reached_limit: bool = False) -> tuple[Fault, ...]:
    """The answer's faults. expected: ISO 639-1 codes of the scenario; reached_limit: the answer was stopped by its length limit."""
    if is_empty(answer):
        return ("empty",)
    found: dict[Fault, bool] = {
        "loop": is_loop(answer), "cut_off": is_cut_off(answer, reached_limit), "wrong_language": is_wrong_language(answer, question, expected)
    }  # fmt: skip
    return tuple(fault for fault, is_there in found.items() if is_there)


def fault_shares(all_faults: Sequence[Sequence[Fault]]) -> dict[Fault, float]:
    """Share of the answers with each fault. ValueError without an answer."""
    if not all_faults:
        raise ValueError("shares of faults need at least one answer")
    return {fault: sum(fault in one for one in all_faults) / len(all_faults) for fault in get_args(Fault)}


def is_empty(text: str) -> bool:
    """Nothing but white space and punctuation; an emoji is an answer."""
    return not tokens(text)


def repeated_share(text: str) -> float:
    """Share of the tokens inside sequences of 4 words (6 characters) that stood already in the 200 tokens before."""
    words = tokens(_COUNTER.sub(" ", text))
    last_seen: dict[tuple[str, ...], int] = {}
    repeated = [False] * len(words)
    for start, span in enumerate(spans(words, LOOP_WORDS, LOOP_CHARACTERS)):
        if start - last_seen.get(span, -LOOK_BACK_TOKENS - 1) <= LOOK_BACK_TOKENS:
            repeated[start : start + len(span)] = [True] * len(span)
        last_seen[span] = start
    return sum(repeated) / len(words) if words else 0.0


def is_loop(text: str) -> bool:
    """Half of the answer repeats itself, or it ends in three equal rounds."""
    words = tokens(_COUNTER.sub(" ", text))
    if len(words) < LOOP_MIN_TOKENS:
        return False
    return repeated_share(text) >= LOOP_SHARE or any(_ends_in_rounds(words, period) for period in range(1, TAIL_MAX_PERIOD + 1))


def _ends_in_rounds(words: Sequence[str], period: int) -> bool:
    length = max(TAIL_ROUNDS * period, LOOP_MIN_TOKENS)
    tail = words[-length:]
    return len(tail) == length and tail[period:] == tail[:-period]


def is_cut_off(text: str, reached_limit: bool) -> bool:
    """Ends in a comma, an open bracket, an open block of code or a joining word; after the length limit also in any letter or digit."""
    text = text.rstrip()
    if not text:
        return False
    is_open = text.count("```") % 2 == 1 or _OPEN_END.search(text) or _JOINING_END.search(text)
    return bool(is_open) or (reached_limit and text[-1].isalnum())


def is_wrong_language(answer: str, question: str, expected: Sequence[str] = ()) -> bool:
    """Whether the answer is surely in no language that fits.

    That is the question's, if it can be told and is expected; else the expected ones in the question's script; else all expected ones.
    Never, if the question asks for a language or a translation, or a language is expected that the guess does not know.
    """
    if _ASKS_FOR_LANGUAGE.search(question) or any(code not in LANGUAGES for code in expected):
        return False
    asked, given = guess_language(question), guess_language(answer)
    has_script = asked.units >= (MIN_HAN_UNITS if asked.script == "HAN" else MIN_LANGUAGE_UNITS)
    wanted = tuple(expected)
    if asked.language and (not expected or asked.language in expected):
        wanted = (asked.language,)
    elif has_script and not asked.language:
        wanted = tuple(code for code in expected if _script(code) == asked.script) or wanted
    if given.language and wanted:
        return given.language not in wanted
    scripts = {_script(code) for code in wanted} or ({asked.script} if has_script else {given.script})
    return given.units >= MIN_LANGUAGE_UNITS and given.script not in scripts


def _script(code: str) -> str:
    return SCRIPTS.get(code, "LATIN")
