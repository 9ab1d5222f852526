"""Token F1 against the published SQuAD script, and on texts that it cannot cut."""

from __future__ import annotations

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures.text.tokens import token_f1, tokens


def squad_f1(prediction: str, truth: str) -> float:
    """f1_score of SQuAD's evaluate-v1.1.py (Rajpurkar et al. 2016), with evaluate-v2.0.py's rule for answers without a token."""

    def normalized(text: str) -> list[str]:
        text = "".join(character for character in text.lower() if character not in set(string.punctuation))
        return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split()).split()

    ours, theirs = normalized(prediction), normalized(truth)
    if not ours or not theirs:
        return float(ours == theirs)
    same = sum((Counter(ours) & Counter(theirs)).values())
    if not same:
        return 0.0
    precision, recall = same / len(ours), same / len(theirs)
    return 2 * precision * recall / (precision + recall)


WORDS = st.sampled_from(["the", "a", "an", "Shop", "shop", "OPEN", "open", "at", "12", "40", "1,000", "don't", "it's", "E19", "lane", "watts", "Ann"])
SENTENCES = st.lists(st.tuples(WORDS, st.sampled_from(["", "", ".", ",", "!", "?", ";", '"'])), max_size=12).map(
    lambda ws: " ".join(w + end for w, end in ws)
)


@given(SENTENCES, SENTENCES)
def test_english_sentences_get_the_score_of_the_squad_script(answer: str, reference: str) -> None:
    assert token_f1(answer, [reference]) == pytest.approx(squad_f1(answer, reference), abs=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A linen box costs 4 marlets.", "a linen box costs 4 marlets"),
        ("請帶上藍卡，47天内", "请 带 上 蓝 卡 47 天 内"),
        ("用E19灯泡", "用 e19 灯 泡"),
        ("１，０００元 = 1,000元", "1000 元 1000 元"),
        ("3.5kg at 10：20", "3.5 kg at 10:20"),
        ("Don’t “pay” well-known", "dont pay well known"),
        ("블루카드를 가져오세요", "블 루 카 드 를 가 져 오 세 요"),
        ("すぐカードで", "す ぐ カ ー ド で"),
        ("Größe café", "grösse café"),
        ("हिन्दी में", "हिन्दी में"),
        ("ok 👍🏽 8%", "ok 👍 8 %"),
        ("...!?", ""),
        ("", ""),
    ],
    ids=str,
)
def test_texts_are_cut_into_words_numbers_and_single_characters(text: str, expected: str) -> None:
    assert " ".join(tokens(text)) == expected


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        ("蓝卡", ["藍卡"], 1.0),
        ("带蓝卡", ["蓝卡"], 0.8),
        ("The box.", ["a BOX"], 1.0),
        ("4 marlets", ["40 marlets", "4 marks"], 0.5),
        ("3.5", ["35"], 0.0),
        ("", [""], 1.0),
        ("", ["yes"], 0.0),
        ("👍", ["👍🏽"], 1.0),
    ],
    ids=["traditional", "one too many", "articles", "best of two", "decimals", "both empty", "one empty", "skin tone"],
)
def test_the_score_is_the_best_over_the_references(answer: str, references: list[str], score: float) -> None:
    assert token_f1(answer, references) == pytest.approx(score)


@given(st.text(), st.text())
def test_the_score_is_a_share_the_same_both_ways_and_one_for_equal_texts(a: str, b: str) -> None:
    assert 0 <= token_f1(a, [b]) <= 1 and token_f1(a, [b]) == token_f1(b, [a]) and token_f1(a, [a]) == 1


@pytest.mark.parametrize("references", [[], "one text"], ids=["none", "a text"])
def test_references_that_are_no_list_of_texts_are_refused(references: object) -> None:
    with pytest.raises(ValueError, match="list of at least one reference"):
        token_f1("answer", references)  # type: ignore[arg-type]
