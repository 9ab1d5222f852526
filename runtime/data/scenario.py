"""scenario.json of a bundle, typed: what kind of data is expected and how it becomes samples.

In:  scenario.json, which the compiler writes from configs/scenario/NAME.yaml and templates/NAME/ (rules.json is the
     `rules` object below, system_prompt.txt the default of `system_prompt`).
Out: Scenario, a frozen dataclass tree; to_json() of it is the schema.
Rules are data only (regular expressions and counts): nothing in a scenario can run code on the phone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from ..plain_data import bind, plain
from .text.languages import SCRIPTS_OF_LANGUAGE
from .text.redact import REDACTIONS


@dataclass(frozen=True)
class PatternRule:
    """Keep from learning what a regular expression finds."""

    name: str
    """the reason that the report shows, e.g. "advertising" """
    regex: str
    """Python regular expression, case-insensitive; matches count in each turn's text"""
    contains: tuple[str, ...] = ()
    """literal words, one of which must be in the text before the regex is tried: keeps gigabytes fast; empty: every text"""
    min_matches: int = 1
    """how many matches in one turn before the rule applies"""
    applies_to: Literal["any", "assistant", "user"] = "any"
    """whose turns are looked at"""
    action: Literal["unlearn", "take_out"] = "unlearn"
    """unlearn: the answer, or the answers to the turn, are not learned and stay as context | take_out: the turn is left out (notices,
    placeholders), with the answers to it; a conversation of which nothing is left to learn is dropped"""

    def __post_init__(self) -> None:
        _at_least("min_matches", self.min_matches, 1)
        try:
            re.compile(self.regex)
        except re.error as error:
            raise ValueError(f"regex {self.regex!r} does not compile: {error}") from None


@dataclass(frozen=True)
class DataRules:
    """Every rule of a scenario; the defaults keep short factual answers and drop what teaches nothing.

    A rule's reason counts records when the whole conversation is dropped, which it is when none of its answers is left to learn.
    """

    min_answer_chars: int = 1
    """an answer with fewer visible characters is not learned (reason too_short)"""
    max_answer_chars: int = 100_000
    """an answer with more characters is not learned (reason too_long)"""
    min_note_chars: int = 20
    """a plain-text note with fewer visible characters is dropped (reason too_short)"""
    max_character_run: int = 12
    """longest run of one letter or sign, e.g. "哈哈哈哈" (reason repeated_characters); digits, spaces, rules (---) and dots do not count"""
    max_repeated_ngram_share: float = 0.5
    """share of a long text that may consist of repeats of earlier 4-grams (reason repeated_text)"""
    repeated_ngram_min_chars: int = 80
    """texts shorter than this are not tested for repeated n-grams: a refrain is not spam"""
    min_language_share: float = 0.5
    """share of letters that must be in the expected languages' scripts (reason other_language)"""
    language_min_letters: int = 8
    """texts with fewer letters are not tested for language: "1963" and "OK" belong everywhere"""
    drop_link_only: bool = True
    """a turn that is nothing but links is taken out (reason link_only)"""
    drop_echo: bool = False
    """an answer that only repeats its question is not learned (reason echo)"""
    duplicates: Literal["off", "exact", "near"] = "near"
    """off: none are looked for; exact: the same text; near: also texts that are almost the same"""
    near_duplicate_similarity: float = 0.9
    """Jaccard similarity of character 5-gram sets from which two conversations count as the same (reason near_duplicate)"""
    near_duplicate_min_chars: int = 60
    """shorter conversations are compared exactly only: in a short text one word is a different fact"""
    patterns: tuple[PatternRule, ...] = ()
    """advertising, boilerplate and whatever else the scenario names"""
    redact: tuple[str, ...] = ()
    """kinds replaced by a placeholder: phone, email, id_card_cn, bank_card, iban"""
    join_gap_minutes: float = 10.0
    """chat logs: messages of one speaker within this gap are one turn"""
    silence_gap_minutes: float = 240.0
    """chat logs: a longer silence starts a new conversation"""
    note_prompt_titled: str = "Write the text titled “{title}”."
    """what a note with a title answers; {title} and {author} are filled in"""
    note_prompt_untitled: str = "Write a text the way I write."
    """what a note without a title answers"""

    def __post_init__(self) -> None:
        for name in ("min_answer_chars", "min_note_chars", "near_duplicate_min_chars", "repeated_ngram_min_chars"):
            _at_least(name, getattr(self, name), 1)
        _at_least("max_character_run", self.max_character_run, 2)
        if self.max_answer_chars < self.min_answer_chars:
            raise ValueError(f"max_answer_chars {self.max_answer_chars} is below min_answer_chars {self.min_answer_chars}")
        for name in ("max_repeated_ngram_share", "min_language_share", "near_duplicate_similarity"):
            _share(name, getattr(self, name))
        _at_least("join_gap_minutes", self.join_gap_minutes, 0)
        _at_least("silence_gap_minutes", self.silence_gap_minutes, self.join_gap_minutes)
        for kind in self.redact:
            _one_of("redact", kind, tuple(REDACTIONS))


@dataclass(frozen=True)
class Scenario:
    """One scenario as the phone sees it."""

    name: str
    """customer_service, education, writing or the user's own"""
    system_prompt: str
    """put before every conversation that has no system turn of its own; empty: none"""
    window_tokens: int
    """no sample is longer"""
    chat: dict[str, Any]
    """ChatFormat as its to_dict gives it: the compiled chat template"""
    template: str = ""
    """the folder under templates/ it came from"""
    languages: tuple[str, ...] = ("en", "zh")
    """expected languages (ISO 639-1)"""
    overlap_share: float = 0.125
    """share of a window that repeats the end of the one before as unlabelled context, in whole sentences or turns"""
    heldout_share: float = 0.1
    """share of the kept conversations that is never trained on and measures perplexity"""
    max_drop_share: float = 0.5
    """ingest stops when a larger share of the records is dropped"""
    decode_tokens: int = 128
    """most new tokens of an answer"""
    epochs: int | None = None
    """the scenario's own number of passes; null: the recipe's"""
    rules: DataRules = field(default_factory=DataRules)
    """how files become samples"""

    def __post_init__(self) -> None:
        _at_least("window_tokens", self.window_tokens, 16)
        _at_least("decode_tokens", self.decode_tokens, 1)
        for name in ("overlap_share", "heldout_share", "max_drop_share"):
            _share(name, getattr(self, name))
        if self.overlap_share > 0.5:
            raise ValueError(f"overlap_share {self.overlap_share} is not between 0 and 0.5")
        for language in self.languages:
            _one_of("languages", language, tuple(SCRIPTS_OF_LANGUAGE))

    @classmethod
    def from_json(cls, value: Any, where: str = "scenario.json") -> Scenario:
        return bind(cls, value, where)

    @classmethod
    def load(cls, path: str | Path) -> Scenario:
        """Read a bundle's scenario.json."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(str(path), f"cannot be read ({error.strerror})", remedy="compile the bundle again") from None
        except ValueError as error:
            raise UserError(str(path), f"is not JSON ({error})", remedy="compile the bundle again") from None
        return cls.from_json(document, Path(path).name)

    def to_json(self) -> dict:
        return plain(self)


def scenario_document(template_dir: str | Path, settings: dict, chat: dict) -> dict:
    """What the compiler writes as scenario.json: the template folder's files under the recipe's settings.

    settings: Scenario's fields from the recipe; an empty system_prompt means the template's system_prompt.txt, and
    settings["rules"] overrides single keys of the template's rules.json. Everything is checked before it is returned.
    """
    folder = Path(template_dir)
    document = {key: value for key, value in settings.items() if value is not None}
    rules = json.loads((folder / "rules.json").read_text(encoding="utf-8"))
    document["rules"] = {**rules, **dict(settings.get("rules") or {})}
    if not document.get("system_prompt"):
        document["system_prompt"] = (folder / "system_prompt.txt").read_text(encoding="utf-8").strip()
    document["chat"] = chat
    return Scenario.from_json(document, f"scenario {settings.get('name', folder.name)}").to_json()


def _one_of(name: str, value: Any, allowed: tuple) -> None:
    if value not in allowed:
        raise ValueError(f"{name} {value!r} is not one of {', '.join(map(str, allowed))}")


def _at_least(name: str, value: float, low: float) -> None:
    if value < low:
        raise ValueError(f"{name} {value} is below {low}")


def _share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} {value} is not between 0 and 1")
