"""Broken answers are named, and sound ones of every kind are left alone."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures.degeneration import fault_shares, faults, is_cut_off, is_empty, is_loop, is_wrong_language, repeated_share
from mobilefinetuner.runtime.measures.text.spans import spans

DATA = Path(__file__).parents[2] / "cases" / "data"
LIST = "1. Fill the kettle.\n2. Boil the water.\n3. Warm the pot.\n4. Add two spoons of tea.\n5. Pour, wait three minutes, and enjoy."
POEM = "白日依山尽，黄河入海流。欲穷千里目，更上一层楼。"
REFRAIN = "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream."


@pytest.mark.parametrize("text", ["", "  \n ", "...", "。。。", "**", "-", '""'], ids=repr)
def test_blanks_and_punctuation_are_no_answer(text: str) -> None:
    assert is_empty(text) and faults(text, "How are you?") == ("empty",)


@pytest.mark.parametrize("text", ["5", "ok", "是", "👍", "%"], ids=repr)
def test_a_digit_a_word_or_an_emoji_is_an_answer(text: str) -> None:
    assert not is_empty(text)


LOOPS = {
    "sentence": "The sea is blue. " * 10,
    "counted": " ".join(f"{n}. The sea is blue." for n in range(1, 12)),
    "word": "very " * 30,
    "after a good start": LIST + " Enjoy your tea." * 12,
    "Chinese": "我们的店在这里，" * 8,
    "emoji": "😂" * 50,
    "long rounds": "The blue card costs four marlets and you may bring it back within two days. " * 4,
    "cut in a round": "I am not sure. I think so. " * 6 + "I am not",
    "mixed": "请带上blue card。" * 8,
}


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_an_answer_that_goes_in_circles_is_a_loop(text: str) -> None:
    assert is_loop(text) and "loop" in faults(text, "")


SOUND = {
    "list": LIST,
    "poem": POEM,
    "refrain": REFRAIN,
    "laughter": "ha ha ha ha ha",
    "哈哈": "哈哈哈哈哈哈哈哈",
    "twice": "I like tea. I like tea.",
    "empty": "",
    "times table": "\n".join(f"3 x {n} = {3 * n}" for n in range(1, 6)),
    "names": "John and Mary and Peter and Paul and Ann and Tom and Eve and Bob and Sue.",
}


@pytest.mark.parametrize("text", SOUND.values(), ids=SOUND)
def test_lists_verses_and_laughter_are_no_loops(text: str) -> None:
    assert not is_loop(text)


@pytest.mark.parametrize("name", ["customer_service_shop.jsonl", "education.en.jsonl", "education.zh.jsonl", "tech_support_raw.en.jsonl"])
def test_no_answer_that_a_person_wrote_has_a_fault(name: str) -> None:
    rows = [json.loads(line)["messages"] for line in (DATA / name).read_text(encoding="utf-8").split("\n") if line]
    answers = {row[-1]["content"]: row[-2]["content"] for row in rows}
    assert {answer: found for answer, question in answers.items() if (found := faults(answer, question, ["en", "zh"]))} == {}


def test_the_repeated_share_does_not_grow_with_length() -> None:
    """Words of a tiny vocabulary in random order: the longer the text, the more of its sequences have come before somewhere."""
    words = random.Random(4).choices(["tea", "box", "lane", "lamp", "card", "post", "mill", "sea"], k=6400)
    shares = [repeated_share(" ".join(words[:n])) for n in (1600, 3200, 6400)]
    assert min(shares) > 0.1 and max(shares) - min(shares) < 0.05


@given(st.lists(st.sampled_from(["tea", "box", "天", "蓝", "4", "😂"]), max_size=60))
def test_the_repeated_share_is_a_share_and_nothing_short_repeats(words: list[str]) -> None:
    assert 0 <= repeated_share(" ".join(words)) < 1
    assert repeated_share(" ".join(words[:4])) == 0


@given(st.lists(st.sampled_from(["tea", "box", "天", "蓝"]), max_size=30))
def test_each_span_is_the_shortest_from_its_start_that_weighs_enough(tokens: list[str]) -> None:
    weight = {"tea": 8, "box": 8, "天": 5, "蓝": 5}
    found = spans(tokens, 5, 8)
    for start, span in enumerate(found):
        assert list(span) == tokens[start : start + len(span)]
        assert sum(weight[token] for token in span) >= 40 > sum(weight[token] for token in span[:-1])
    assert sum(weight[token] for token in tokens[len(found) :]) < 40


@pytest.mark.parametrize(
    ("text", "reached_limit", "expected"),
    [
        ("You can return it within 47", True, True),
        ("您可以在47天内退", True, True),
        ("You can return it.", True, False),
        ("您可以退货。", True, False),
        ("See you 👍", True, False),
        ("see you at eight", False, False),
        ("好的我知道了", False, False),
        ("First of all,", False, True),
        ("比如，", False, True),
        ("It is because", False, True),
        ("We sell lamps and", False, True),
        ("我们有灯和", False, True),
        ("He said “", False, True),
        ("Use this:\n```python\nprint(1)", False, True),
        ("Use this:\n```python\nprint(1)\n```", False, False),
        ("It is on the island", False, False),
        ("", True, False),
    ],
)
def test_an_answer_is_cut_off_if_it_ends_open_or_was_stopped_inside_a_sentence(text: str, reached_limit: bool, expected: bool) -> None:
    assert is_cut_off(text, reached_limit) is expected


EN, ZH, DE = "What are your opening hours on Sunday?", "你们周日几点开门？我想来看看。", "Wann haben Sie am Sonntag geöffnet und wo ist das?"
EN_ANSWER, ZH_ANSWER, DE_ANSWER = (
    "We are open from ten to six on that day.",
    "我们周日十点开门，欢迎您来看看。",
    "Wir haben von zehn bis sechs Uhr geöffnet.",
)


@pytest.mark.parametrize(
    ("question", "answer", "expected", "wrong"),
    [
        (EN, EN_ANSWER, (), False),
        (EN, ZH_ANSWER, (), True),
        (ZH, EN_ANSWER, (), True),
        (ZH, EN_ANSWER, ("en", "zh"), True),
        (ZH, ZH_ANSWER, ("en", "zh"), False),
        (DE, DE_ANSWER, ("de",), False),
        (DE, EN_ANSWER, ("de",), True),
        (DE, EN_ANSWER, ("en",), False),
        (EN, DE_ANSWER, (), True),
        ("Paris?", ZH_ANSWER, ("en",), True),
        ("Paris?", ZH_ANSWER, (), False),
        ("Zarplan borgo felina trestik?", ZH_ANSWER, (), True),
        ("营业时间？", EN_ANSWER, ("en", "zh"), True),
        ("iPhone 15?", ZH_ANSWER, ("en", "zh"), False),
        (EN, "Christina Aguilera", (), False),
        (ZH, "VIP card", (), False),
        (EN, "สวัสดีครับ ยินดีต้อนรับ", (), True),
        (EN, "10:20", (), False),
        ("Translate into Chinese: We are open.", ZH_ANSWER, (), False),
        ("How do you say that in German?", DE_ANSWER, (), False),
        ("请把这句话翻译成英文：你好。", EN_ANSWER, ("zh",), False),
        (EN, ZH_ANSWER, ("en", "pl", "cs"), False),
    ],
)
def test_a_language_is_wrong_only_if_it_is_surely_not_the_asked_or_expected_one(question, answer, expected, wrong) -> None:
    assert is_wrong_language(answer, question, expected) is wrong


def test_faults_are_named_in_order_and_their_shares_counted() -> None:
    looping = faults("我们的店在这里，" * 8, EN, ("en",))
    assert looping == ("loop", "cut_off", "wrong_language")
    assert fault_shares([looping, (), ("empty",), ("loop",)]) == {"empty": 0.25, "loop": 0.5, "cut_off": 0.25, "wrong_language": 0.25}
    with pytest.raises(ValueError, match="at least one answer"):
        fault_shares([])


@given(st.text(), st.text(), st.booleans())
def test_any_answer_can_be_judged(answer: str, question: str, reached_limit: bool) -> None:
    found = faults(answer, question, ("en",), reached_limit=reached_limit)
    assert len(set(found)) == len(found) and ("empty" not in found or found == ("empty",))
