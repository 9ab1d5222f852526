"""chrF against sacrebleu: recorded scores always, sacrebleu itself where it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures.chrf import chrf

GOLDEN = json.loads((Path(__file__).parents[2] / "cases" / "measures" / "chrf_golden.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-9
TEXTS = st.text(st.sampled_from("ab cd.，蓝卡天 \n\u3000é😂👍ж한"), max_size=40) | st.text(max_size=20)


@pytest.mark.parametrize(("answer", "references", "score"), GOLDEN["cases"], ids=lambda value: str(value)[:30] if isinstance(value, str) else "")
def test_the_score_is_the_one_that_sacrebleu_gave(answer: str, references: list[str], score: float) -> None:
    assert chrf(answer, references) == pytest.approx(score, abs=TOLERANCE)


@pytest.mark.oracle
@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_any_texts_get_the_score_of_sacrebleu(answer: str, references: list[str]) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    assert chrf(answer, references) == pytest.approx(sacrebleu.sentence_chrf(answer, references).score, abs=TOLERANCE)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_the_score_is_the_best_over_the_references_and_within_bounds(answer: str, references: list[str]) -> None:
    scores = [chrf(answer, [reference]) for reference in references]
    assert chrf(answer, references) == max(scores) and all(0 <= score <= 100 + TOLERANCE for score in scores)


@given(TEXTS.filter(lambda text: text.split()))
def test_a_text_scores_all_against_itself_and_nothing_against_an_empty_one(text: str) -> None:
    assert chrf(text, [text]) == pytest.approx(100)
    assert chrf(text, [""]) == chrf("", [text]) == 0


@pytest.mark.parametrize("references", [[], "one text"], ids=["none", "a text"])
def test_references_that_are_no_list_of_texts_are_refused(references: object) -> None:
    with pytest.raises(ValueError, match="list of at least one reference"):
        chrf("answer", references)  # type: ignore[arg-type]
