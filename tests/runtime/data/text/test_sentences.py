"""Where sentences end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.text.sentences import clause_ends, sentence_ends


def _cut(text: str, ends: list[int]) -> list[str]:
    return [text[first:last] for first, last in zip([0, *ends], ends)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["One.", " Two!", " Three?"],
        ["他说：“你好。”", "然后走了！", "真的？……", "好吧；", "算了。"],
        ["价格是3.5元。", "很便宜。"],
        ["It costs $3.50 today.", " Good."],
        ["Mr. Smith and Dr. Lee met at 5 p.m. at no. 7, e.g. by car.", " They left."],
        ["I said no.", " Then I went."],
        ["J. K. Rowling wrote it.", " Yes."],
        ['He said "Stop!"', " She stopped."],
        ['"Really?" he asked.', " Yes."],
        ["Wait... what?", " Nothing."],
        ["第一行\n", "第二行\n\n", "第三行"],
        ["A verse without a stop\n", "Another one"],
        ["1. First thing.\n", "2. Second thing."],
        ["The U.S. team won.", " Hurra!"],
        ["（他走了。）", "她没走。"],
        ["See example.com for v1.2.3 now.", " Done."],
        ["そうです。", "はい！"],
    ],
    ids=lambda sentences: sentences[0].strip()[:20],
)
def test_text_is_cut_between_its_sentences(sentences: list[str]) -> None:
    text = "".join(sentences)
    assert _cut(text, sentence_ends(text)) == sentences


def test_clauses_end_at_commas_and_colons_but_not_inside_numbers() -> None:
    text = "首先，我们开门、打扫，10:20 前要 1,000 个, then this: that"
    assert _cut(text, clause_ends(text)) == ["首先，", "我们开门、", "打扫，", "10:20 前要 1,000 个,", " then this:", " that"]


@given(st.text() | st.text('ab.!?。！“”") \n3,，:;；'))
def test_slices_between_the_ends_are_the_text(text: str) -> None:
    for ends in (sentence_ends(text), clause_ends(text)):
        assert "".join(_cut(text, ends)) == text
        assert ends == sorted(set(ends)) and all(0 < end <= len(text) for end in ends)
