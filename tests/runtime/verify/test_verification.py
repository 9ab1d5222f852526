"""Every verdict on a new version, with the reasons that are given for it."""

from __future__ import annotations

import dataclasses

import pytest
from mobilefinetuner.runtime.verify.evaluation import Answer
from mobilefinetuner.runtime.verify.verification import Scores, compare_merge, judge

UNKNOWN = "too few conversations to hold some back: the loss on unseen text is unknown"
QUESTIONS = 84


def answered(found: int, missed: int = 0, text: str = "") -> tuple[Answer, ...]:
    """One answer with so many of the wanted entities."""
    return (Answer("?", text or f"{found} found", "", ("x",) * found, ("x",) * missed, 0.5),)


def scores(loss: float | None = 1.0, found: int = 80, missed: int = 20, ability: tuple[float, ...] = (), text: str = "") -> Scores:
    return Scores(loss, answered(found, missed, text), ability)


def bare(loss: float | None) -> Scores:
    """Of a scenario without test conversations and questions."""
    return Scores(loss, (), ())


ABLE, FORGETFUL, WORSE = (0.6,) * QUESTIONS, (0.1,) * QUESTIONS, (0.5,) * QUESTIONS

VERDICTS = {
    "a lower loss alone": (bare(1.0), bare(0.5), None, "promote", ["held-out perplexity 2.72 → 1.65"]),
    "the same loss": (bare(1.0), bare(1.0), None, "keep", ["held-out perplexity 2.72 → 2.72"]),
    "a higher loss": (bare(1.0), bare(2.0), None, "keep", ["held-out perplexity 2.72 → 7.39"]),
    "no held-out text": (bare(None), bare(None), None, "warn", [UNKNOWN]),
    "no held-out text before": (bare(None), bare(0.5), None, "warn", [UNKNOWN]),
    "no held-out text after": (bare(1.0), bare(None), None, "warn", [UNKNOWN]),
    "more entities": (
        scores(1.0, 50, 50), scores(0.5, 80, 20), None, "promote", ["held-out perplexity 2.72 → 1.65", "entity recall 0.50 → 0.80"],
    ),
    "two of a hundred entities fewer": (
        scores(1.0, 80, 20), scores(0.5, 79, 21), None, "promote", ["held-out perplexity 2.72 → 1.65", "entity recall 0.80 → 0.79"],
    ),
    "three of a hundred entities fewer": (
        scores(1.0, 80, 20), scores(0.5, 77, 23), None, "keep", ["entity recall 0.80 → 0.77", "held-out perplexity 2.72 → 1.65"],
    ),
    "none of the entities, and none before": (
        scores(1.0, 0, 5), scores(0.5, 0, 5), None, "promote", ["held-out perplexity 2.72 → 1.65", "entity recall 0.00 → 0.00"],
    ),
    "conversations that ask for no entity": (scores(1.0, 0, 0), scores(0.5, 0, 0), None, "promote", ["held-out perplexity 2.72 → 1.65"]),
    "the merge lost nothing": (
        bare(1.0), bare(0.5), bare(0.5), "promote",
        ["held-out perplexity 2.72 → 1.65", "the merge kept what was learned: held-out loss 0.5000 mounted, 0.5000 merged"],
    ),
    "the merge lost what was learned": (
        bare(1.0), bare(0.9), bare(0.5), "keep",
        ["the merge lost what was learned: held-out loss 0.5000 mounted, 0.9000 merged", "held-out perplexity 2.72 → 2.46"],
    ),
    "a merge that nothing measures": (
        bare(None), bare(None), bare(None), "warn",
        [UNKNOWN, "the merge kept what was learned: nothing was held back to measure it with"],
    ),
    "the same ability": (
        scores(1.0, 0, 0, ABLE), scores(0.5, 0, 0, ABLE), None, "promote",
        ["held-out perplexity 2.72 → 1.65", "base ability 0.60 → 0.60 (p = 1.000, 84 questions)"],
    ),
    "a little ability lost": (
        scores(1.0, 0, 0, ABLE), scores(0.5, 0, 0, WORSE), None, "warn",
        ["base ability 0.60 → 0.50 (p = 0.000, 84 questions)", "held-out perplexity 2.72 → 1.65"],
    ),
    "most of the ability lost": (
        scores(1.0, 0, 0, ABLE), scores(0.5, 0, 0, FORGETFUL), None, "keep",
        ["base ability 0.60 → 0.10 (p = 0.000, 84 questions)", "held-out perplexity 2.72 → 1.65"],
    ),
    "ability that only one side measured": (
        scores(1.0, 0, 0, ABLE), scores(0.5, 0, 0, ()), None, "promote", ["held-out perplexity 2.72 → 1.65"],
    ),
    "a doubt beside what is better": (
        scores(None, 50, 50, ABLE), scores(None, 80, 20, WORSE), None, "warn",
        [UNKNOWN, "base ability 0.60 → 0.50 (p = 0.000, 84 questions)", "entity recall 0.50 → 0.80"],
    ),
    "one thing worse outweighs the rest": (
        scores(None, 80, 20, ABLE), scores(None, 70, 30, ABLE), None, "keep",
        ["entity recall 0.80 → 0.70", UNKNOWN, "base ability 0.60 → 0.60 (p = 1.000, 84 questions)"],
    ),
    "all worse": (
        scores(1.0, 80, 20, ABLE), scores(2.0, 70, 30, FORGETFUL), dataclasses.replace(scores(0.5, 80, 20), answers=()), "keep",
        ["held-out perplexity 2.72 → 7.39", "the merge lost what was learned: held-out loss 0.5000 mounted, 2.0000 merged",
         "entity recall 0.80 → 0.70", "base ability 0.60 → 0.10 (p = 0.000, 84 questions)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", VERDICTS)
def test_the_verdict_and_its_reasons_the_gravest_first(case):
    before, after, mounted, verdict, reasons = VERDICTS[case]
    found = judge(before, after, mounted)
    assert (found.verdict, list(found.reasons)) == (verdict, reasons)
    assert (found.before, found.after) == (before, after)


MERGES = {
    "exactly one per cent more loss": (bare(1.0), bare(1.01), True, "held-out loss 1.0000 mounted, 1.0100 merged"),
    "more than one per cent more loss": (bare(1.0), bare(1.0101), False, "held-out loss 1.0000 mounted, 1.0101 merged"),
    "less loss": (bare(1.0), bare(0.9), True, "held-out loss 1.0000 mounted, 0.9000 merged"),
    "nothing to compare": (bare(1.0), bare(None), True, "nothing was held back to measure it with"),
    "answers of one side only": (bare(1.0), scores(1.0), True, "held-out loss 1.0000 mounted, 1.0000 merged"),
    "the same answers": (scores(None, text="hi"), scores(None, text="hi"), True, "1 of 1 answers unchanged"),
    "other answers with as many entities": (scores(None, text="hi"), scores(None, text="hello"), True, "0 of 1 answers unchanged"),
    "answers with fewer entities": (scores(None, 80, 20), scores(None, 77, 23), False, "0 of 1 answers unchanged"),
    "more loss cannot be made good by the answers": (
        scores(1.0, text="hi"), scores(1.1, text="hi"), False, "held-out loss 1.0000 mounted, 1.1000 merged, 1 of 1 answers unchanged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MERGES)
def test_a_merge_kept_what_was_learned_within_its_tolerances(case):
    mounted, merged, kept, found = MERGES[case]
    comparison = compare_merge(mounted, merged)
    assert comparison.kept is kept
    assert str(comparison) == f"the merge {'kept' if kept else 'lost'} what was learned: {found}"


def test_scores_that_are_kept_are_rounded_and_name_both_sides():
    judgement = judge(scores(1.23456789, 1, 2), scores(0.5, 3, 0), None)
    assert judgement.scores() == {
        "heldout_loss": 0.5, "heldout_loss_before": 1.234568, "entity_recall": 1.0, "entity_recall_before": 0.333333,
    }  # fmt: skip


def test_perplexity_stays_a_number_however_large_the_loss():
    assert bare(1e6).perplexity == pytest.approx(1.0142320547350045e304)
    assert bare(None).perplexity is None
