"""Entities in answers: every way to write one is found, and no longer word or number is taken for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures.entities import EntityFindings, contains_entity, find_entities, recall

SHOP = Path(__file__).parents[2] / "cases" / "data" / "customer_service_shop.jsonl"

FOUND = [
    # numbers
    ("It costs 1,000 rupiah.", "1000"), ("It costs 1000.", "1,000"), ("共１，０００个", "1000"), ("Rp 50.000 saja", "50,000"),
    ("just 62.00", "62"), ("um 3,5 Liter", "3.5"),
    ("1\u202f000 pieces", "1000"), ("sizes 38, 40 and 42", "40"), ("sizes 38,40,42", "40"), ("it is -5 outside", "-5"), ("五点之前付120元", "120"),
    ("rooms 12, 14", "12"),
    # spelled numbers
    ("in three days", "3 days"), ("in 3 days", "three days"), ("Forty watts at most", "40 watts"), ("twenty-five marlets", "25 marlets"),
    ("one year", "1 year"), ("1 year", "one year"),
    ("四十七天内退货", "47天"), ("47天内退货", "四十七天"), ("一百二十元", "120元"), ("共一百二十", "120"), ("两小时内", "2小时"),
    ("全场九二折", "92折"), ("3万元", "30000元"), ("第三天", "第3天"),
    # units and plurals
    ("a 5-year warranty", "5 years"), ("5 years of warranty", "5-year"), ("up to 40W", "40 W"), ("up to 40 watt", "40 watts"),
    ("40 watts", "watts"), ("62km away", "62"), ("12kg", "12 kg"),
    # per cent
    ("8% off", "8 percent"), ("8 percent off", "8%"), ("8 per cent", "8％"), ("8 ％", "8%"), ("百分之八", "8%"), ("8 Prozent", "8%"),
    ("diskon 8 persen", "8 %"),
    # currencies
    ("$40", "$ 40"), ("40 $", "$40"), ("40 dollars", "$40"), ("USD 40", "$40"), ("US$40.00", "$40"), ("€5", "5 EUR"), ("5€", "€ 5"),
    ("￥40", "40元"), ("40块钱", "¥40"), ("人民币40元", "40元"),
    ("Rp50.000,-", "Rp 50.000"), ("50 ribu atau Rp 50.000", "50.000 rupiah"), ("1.000 Euro", "€1,000"), ("四十美元", "$40"),
    # times and dates
    ("10：20开门", "10:20"), ("from 10:20", "10：20"), ("buka 10.20", "10:20"), ("um 10.20 Uhr", "10:20"), ("à 10h20", "10:20"),
    ("上午10点20分", "10:20"), ("until 6:40 pm", "18:40"), ("until 6.40 p.m.", "18:40"),
    ("at 6pm", "18:00"), ("at 12 am", "0:00"), ("at 08:05", "8:05"), ("pukul 10.20", "10:20 "), ("10:20-18:40", "18:40"),
    ("2026年12月1日", "2026-12-01"), ("2026/12/1", "2026-12-01"), ("12月1日", "12月1日"),
    # telephone numbers and long numbers
    ("it costs 1,500,000", "1500000"), ("Rp 1.500.000", "1500000"), ("it costs 1500000", "1,500,000"), ("1 500 000 pieces", "1500000"),
    ("1,500,000 pieces", "1 500 000"),
    ("Call 0555-7731.", "0555 7731"), ("Call (0555) 7731", "0555 7731"), ("call 05557731", "0555 7731"), ("call 0555.7731", "05557731"),
    ("电话：０５５５ ７７３１", "0555 7731"), ("+62 812 3456-7890", "+62-812-3456-7890"),
    ("Tel. 0555 7731 or", "0555-7731"), ("0555 7731 or 0555 7732", "0555 7732"),
    # addresses
    ("Write to order@lumiere.example.", "order@lumiere.example"), ("ORDER@Lumiere.Example", "order@lumiere.example"),
    ("order @ lumiere.example", "order@lumiere.example"),
    ("order (at) lumiere (dot) example", "order@lumiere.example"), ("请写信到order@lumiere.example。", "order@lumiere.example"),
    ("mailto:order@lumiere.example", "order@lumiere.example"),
    ("see https://www.lumiere.example/", "lumiere.example"), ("see lumiere.example", "https://www.lumiere.example/"),
    ("see http://lumiere.me/help?x=1", "lumiere.me"), ("see www.lumiere.example/help.", "lumiere.example/help"),
    # Chinese
    ("請帶上藍卡", "蓝卡"), ("请带上「蓝卡」", "藍卡"), ("和風快遞3天送到", "和风快递"), ("加入灯笼会", "燈籠會"), ("用Ｅ１９灯泡", "E19"),
    ("使用VIP卡", "vip"), ("蓝 卡", "蓝卡"),
    # words
    ("bring the BLUE CARD", "blue card"), ("the blue-card", "blue card"), ("Tallow Pay's app", "Tallow Pay"), ("a linen\nbox", "linen box"),
    ("“linen” box", "linen box"), ("At 12, Orrery Lane", "12 Orrery Lane"),
    ("C++ and C#", "C#"), ("블루카드를 가져오세요", "블루카드"), ("كارت أزرق", "ازرق"), ("Ещё раз", "еще"), ("great 👍🏽", "👍"),
    ("le café", "Café"), ("Who? Yes! Store", "Yes! Store"), ("this one is 1", "1"),
]  # fmt: skip

NOT_FOUND = [
    ("13 days", "3 days"), ("3.5 days", "5 days"), ("147 pieces", "47"), ("47th street", "47"), ("1.47", "47"), ("-5 degrees", "5"),
    ("1000", "100"), ("0555 77319", "0555 7731"), ("10555 7731", "0555 7731"),
    ("E190 bulb", "E19"), ("an E19 bulb", "19"), ("a 3D lamp", "3"), ("12a Orrery Lane", "12"), ("11500000", "1500000"), ("2nd floor", "2"),
    ("this one", "1"), ("any one of them", "1"),
    ("一起来", "1"), ("twenty-five", "5"), ("twenty-five", "20"), ("一百二十五元", "120元"),
    ("13天", "3天"), ("十三天", "三天"), ("几十天", "10天"), ("周三", "3"), ("40元", "$40"), ("40 kg", "40 g"), ("8 days", "8%"),
    ("8% off", "80%"), ("40%", "$40"),
    ("at 10.20", "10:02"), ("10.20 kg", "10:20"), ("$10.20", "10:20"), ("at 10:20", "10.20"), ("at 6:40", "18:40"), ("110:20", "10:20"),
    ("10:201", "10:20"), ("12月11日", "12月1日"),
    ("reorder@lumiere.example", "order@lumiere.example"), ("order@lumiere.example.org", "order@lumiere.example"),
    ("order@lumiere.example", "lumiere.example"), ("mylumiere.example", "lumiere.example"),
    ("lumiere.example.org", "lumiere.example"), ("order@lumiere.example", "order"), ("a box.It costs", "box.it.costs"),
    ("birthday", "day"), ("the cards", "card"), ("he is blue. Card games", "blue! card"), ("蓝，卡在", "蓝卡"), ("蓝\n卡", "蓝卡"),
    ("linen; box", "linen box"), ("cafe", "café"), ("C++", "C"), ("", "card"),
]  # fmt: skip


def name(case: tuple[str, str]) -> str:
    return f"{case[1]!r} in {case[0]!r}"


@pytest.mark.parametrize("case", FOUND, ids=name)
def test_an_entity_is_found_however_it_is_written(case: tuple[str, str]) -> None:
    assert contains_entity(*case)


@pytest.mark.parametrize("case", NOT_FOUND, ids=name)
def test_what_only_looks_like_the_entity_is_not_taken_for_it(case: tuple[str, str]) -> None:
    assert not contains_entity(*case)


def test_findings_tell_found_missing_and_forbidden_in_the_given_order() -> None:
    findings = find_entities("We ship with Zephyr Post in 3 days.", ["3 days", "0555 7731", "zephyr post"], ["Halden", "Zephyr"])
    assert findings == EntityFindings(("3 days", "zephyr post"), ("0555 7731",), ("Zephyr",))


def test_recall_counts_entities_over_all_answers_and_is_none_without_any() -> None:
    answers = [find_entities("in 3 days", ["3 days", "2 hours"]), find_entities("", ["card"]), find_entities("hello", [])]
    assert recall(answers) == pytest.approx(1 / 3)
    assert recall([find_entities("hello", [])]) is None


@pytest.mark.parametrize("entity", ["", "  ", "...", "!\n?"], ids=repr)
def test_an_entity_without_anything_to_look_for_is_refused(entity: str) -> None:
    with pytest.raises(ValueError, match="no letter, digit or sign"):
        contains_entity("text", entity)


def test_the_labelled_entities_of_the_shop_are_found_in_their_reference_answers() -> None:
    rows = [json.loads(line) for line in SHOP.read_text(encoding="utf-8").split("\n") if line]
    missing = [(e, row["messages"][-1]["content"]) for row in rows for e in find_entities(row["messages"][-1]["content"], row["entities"]).missing]
    others = [(row, other) for row in rows for other in rows if row["fact"].removeprefix("zh_") != other["fact"].removeprefix("zh_")]
    shared = {e for row, other in others for e in find_entities(other["messages"][-1]["content"], row["entities"]).found}
    assert not missing and not shared


@given(st.integers(0, 10**7), st.text(st.sampled_from("ab 蓝卡.,:-$%3")))
def test_a_number_is_found_between_any_words_and_never_in_a_longer_number(number: int, words: str) -> None:
    assert contains_entity(f"{words} ; {number} ; {words}", str(number))
    assert not contains_entity(f"1{number:08d}", str(number)) and not contains_entity(f"{number}000000001", str(number))


@given(st.text(), st.text())
def test_any_text_can_be_searched_for_any_entity(text: str, entity: str) -> None:
    try:
        found = contains_entity(text, entity)
    except ValueError:
        return
    assert found in (True, False) and contains_entity(entity, entity)
