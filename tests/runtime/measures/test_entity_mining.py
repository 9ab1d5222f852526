"""Facts in people's answers: what is found of what hand-labelling found, and nothing that is none."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures.entities import contains_entity
from mobilefinetuner.runtime.measures.entity_mining import mine_facts

DATA = Path(__file__).parents[2] / "cases" / "data"


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").split("\n") if line]


def pair(row: dict) -> tuple[str, str]:
    return row["messages"][-2]["content"], row["messages"][-1]["content"]


def mined(answer: str, question: str = "?", data: tuple[tuple[str, str], ...] = ()) -> list[tuple[str, str]]:
    return [(fact.kind, fact.text) for fact in mine_facts([(question, answer)], data)[0]]


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        ("We meet on 12 March 2026 at 8:30 pm, bring $40.", "date 12 March 2026 | time 8:30 pm | price $40"),
        ("He was born on March 14, 1879.", "date March 14, 1879"),
        ("Due 2026-12-01, opened 2026年11月3日.", "date 2026-12-01 | date 2026年11月3日"),
        ("请拨打 021-6688-1234，或发邮件到 help@dian.cn。", "phone 021-6688-1234 | email help@dian.cn"),
        ("Call us on 0555 7731.", "phone 0555 7731"),
        ("See https://wifi.cafe.example/login.", "url https://wifi.cafe.example/login"),
        ("Harganya Rp 50.000 per kg, buka pukul 09.30.", "price Rp 50.000 | time 09.30"),
        ("Das kostet 12,50 € und die Lieferung dauert 3 Tage.", "price 12,50 € | quantity 3 Tage"),
        ("Open 10:20-18:40.", "time 10:20 | time 18:40"),
        ("It weighs 1.5 kg and 8 percent is water.", "quantity 1.5 kg | quantity 8 percent"),
        ("It takes two or three weeks, at 20%.", "quantity three weeks | quantity 20%"),
        ("It is 93 million miles away.", "quantity 93 million"),
        ("It costs 62 marlets.", "quantity 62 marlets"),
        ("Use an E19 bulb on CafeGuest-5G.", "code E19 | code CafeGuest-5G"),
        ("The password is “Blue Heron” here.", "quoted Blue Heron"),
        ("请点击「关于手机」，看《红楼梦》。", "quoted 关于手机 | quoted 红楼梦"),
        ("Ask Mr. Chen or Maria Lopez at the desk.", "name Maria Lopez"),
        ("You find us at 12 Orrery Lane, next to the Bank of Halden.", "name 12 Orrery Lane | name Bank of Halden"),
        ("Rosh Hashanah", "name Rosh Hashanah"),
        ("The Andromeda Galaxy.", "name Andromeda Galaxy"),
        (
            "会员可享八五折，十天内可退，三百二十元，iPhone 15 Pro 有货。",
            "quantity 八五折 | quantity 十天 | quantity 三百二十元 | name iPhone 15 Pro",
        ),
        ("47天内凭蓝卡都可以退货，快递3天送到，共3000元。", "quantity 47天 | quantity 3天 | price 3000元"),
        ("他是1963年生的。", "quantity 1963年"),
        ("In 1963 he was 46.", "number 1963 | number 46"),
        ("5", "number 5"),
    ],
    ids=lambda text: text[:40],
)
def test_facts_are_found_in_their_order(answer: str, facts: str) -> None:
    assert " | ".join(f"{kind} {text}" for kind, text in mined(answer)) == facts


@pytest.mark.parametrize(
    "answer",
    [
        "We are closed on Monday and Tuesday, in May too.", "Hello! Thank you. Please wait.",
        "I think that we, one and all, may have two of them.", "1. Open it.\n2. Close it.\n12. Done.",
        "WE ARE OPEN FROM TEN TO SIX EVERY DAY", "一起来吧，我们周三见，第二天再说，三点建议，两个办法。", "好的，没问题！",
        "几十天以后，有一天他来了。", "Try It In The Morning And See", "Do it 3 times in 2 ways.",
        "OK", "It's a “really, really quite long thing to put in quotes here”.", "Der Hund frisst das Futter nicht, wenn die Katze im Haus ist.",
        "",
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_what_may_be_said_otherwise_is_no_fact(answer: str) -> None:
    assert mined(answer) == []


def test_what_the_question_says_is_no_fact_of_the_answer() -> None:
    assert mined("Yes, 40 dollars, or 35 dollars for members.", "Is it forty dollars?") == [("quantity", "35 dollars")]
    assert mined("Zephyr Post is the carrier of Halden City.", "Who is Zephyr Post?", (("?", "We like Halden City."),)) == [("name", "Halden City")]


def test_a_single_capitalised_word_is_a_name_only_if_the_data_shows_it() -> None:
    data = (
        ("?", "It goes to our Halden workshop."),
        ("?", "Bring it to Halden soon."),
        ("?", "The Workshop is shut."),
        ("?", "Take the Lamp and the lamp."),
    )
    assert mined("Send it to Halden today.", data=data) == [("name", "Halden")]
    assert mined("Send it to Halden today.") == []
    assert mined("Take the Lamp home.", data=(*data, *data)) == []


def test_german_has_no_names_because_every_noun_has_a_capital() -> None:
    german = "Wir haben die Neue Lampe und auch das Alte Regal nicht mehr."
    assert mined(german) == []
    data = (("Wo ist das?", german), ("Und was ist das?", "Das ist die Alte Lampe, die wir noch haben."))
    assert mined("Neue Lampe, Altes Regal", data=data) == []
    assert mined("Sold by Maria Lopez and Peter Chan, we are told.", data=data) == [("name", "Maria Lopez"), ("name", "Peter Chan")]


def test_names_at_the_start_of_a_sentence_need_to_be_seen_inside_another() -> None:
    assert mined("Lantern Club members pay less.") == []
    assert mined("Lantern Club members pay less.", data=(("?", "You may join the Lantern Club."),)) == [("name", "Lantern Club")]


def test_most_of_the_shops_labelled_entities_are_found_and_nothing_else() -> None:
    """23 of 28: the missing ones are common nouns (linen box, blue card, 蓝卡) and Chinese names (灯笼会, 和风快递)."""
    labels, found = {}, defaultdict(set)
    shop = rows("customer_service_shop.jsonl")
    for row, facts in zip(shop, mine_facts([pair(row) for row in shop]), strict=True):
        labels[row["fact"]] = row["entities"]
        found[row["fact"]].update(fact.text for fact in facts)
    hits = [(fact, entity) for fact, entities in labels.items() for entity in entities if any(contains_entity(entity, text) for text in found[fact])]
    assert sum(map(len, labels.values())) == 28 and len(hits) == 23
    others = [(fact, text) for fact, texts in found.items() for text in texts if not any(contains_entity(entity, text) for entity in labels[fact])]
    assert others == []


def test_chatty_answers_hold_few_facts() -> None:
    """Ten distinct answers of technical support: "10 seconds" and "USB"."""
    support = rows("tech_support_raw.en.jsonl")
    assert {fact.text for facts in mine_facts([pair(row) for row in support]) for fact in facts} == {"10 seconds", "USB"}


@pytest.mark.parametrize("name", ["customer_service_shop.jsonl", "education.en.jsonl", "education.zh.jsonl"])
def test_every_fact_stands_in_its_answer_and_not_in_its_question(name: str) -> None:
    pairs = [pair(row) for row in rows(name)]
    for (question, answer), facts in zip(pairs, mine_facts(pairs), strict=True):
        assert len({fact.text for fact in facts}) == len(facts)
        assert all(fact.text in answer and contains_entity(answer, fact.text) and not contains_entity(question, fact.text) for fact in facts)


@given(st.text() | st.text(st.sampled_from("Ab 3天.,:$“”「」一二Halden@-\n")), st.text())
def test_any_pair_can_be_mined(answer: str, question: str) -> None:
    for fact in mine_facts([(question, answer)])[0]:
        assert fact.text in answer and contains_entity(answer, fact.text)
