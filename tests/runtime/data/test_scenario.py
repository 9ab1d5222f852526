"""scenario.json and the shipped templates."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.options import columns_of
from mobilefinetuner.runtime.data.scenario import DataRules, Scenario, scenario_document
from mobilefinetuner.runtime.errors import UserError

from tests.support.chatml import chatml, scenario
from tests.support.ingesting import CASES

TEMPLATES = Path(__file__).parents[3] / "templates"
NAMES = sorted(path.parent.name for path in TEMPLATES.glob("*/rules.json"))


def test_scenario_comes_back_from_its_json() -> None:
    original = scenario(rules={"patterns": [{"name": "x", "regex": "y"}], "redact": ["email"]})
    assert Scenario.from_json(json.loads(json.dumps(original.to_json()))) == original


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"windw_tokens": 3}, "unknown key 'windw_tokens', did you mean 'window_tokens'"),
        ({"window_tokens": "256"}, "window_tokens: is a text, a whole number is needed"),
        ({"window_tokens": True}, "window_tokens: is true/false"),
        ({"window_tokens": 3}, "window_tokens 3 is below 16"),
        ({"languages": ["xx"]}, "languages 'xx' is not one of"),
        ({"languages": "en"}, "languages: is a text, a list is needed"),
        ({"overlap_share": 0.9}, "not between 0 and 0.5"),
        ({"rules": {"duplicates": "fuzzy"}}, "duplicates: 'fuzzy' is not one of the choices; allowed: off, exact, near"),
        ({"rules": {"redact": ["face"]}}, "redact 'face' is not one of"),
        ({"rules": {"min_anwser_chars": 1}}, "did you mean 'min_answer_chars'"),
        ({"rules": {"patterns": [{"name": "x", "regex": "("}]}}, r"scenario.json.rules.patterns\[0\]: regex '\(' does not compile"),
        ({"rules": {"patterns": [{"name": "x"}]}}, "lacks the key 'regex'"),
        ({"rules": []}, "rules: is a list, an object is needed"),
    ],
)
def test_wrong_setting_is_refused_by_its_name(change: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Scenario.from_json({**scenario().to_json(), **change})


def test_all_mistakes_come_in_one_report() -> None:
    with pytest.raises(UserError, match=r"'one'.*'two'.*window_tokens"):
        Scenario.from_json({**scenario().to_json(), "one": 1, "two": 2, "window_tokens": None})


def test_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        Scenario.load(tmp_path / "scenario.json")
    (tmp_path / "scenario.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        Scenario.load(tmp_path / "scenario.json")


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_template_makes_a_scenario(name: str) -> None:
    document = scenario_document(TEMPLATES / name, {"name": name, "window_tokens": 256}, chatml().to_dict())
    made = Scenario.from_json(document)
    assert made.system_prompt and made.rules.patterns and made.to_json() == document


def test_settings_of_the_recipe_win_over_the_templates_files() -> None:
    settings = {"name": "mine", "window_tokens": 64, "system_prompt": "Mine.", "rules": {"min_answer_chars": 7}, "epochs": None}
    made = Scenario.from_json(scenario_document(TEMPLATES / "writing", settings, {}))
    assert (made.system_prompt, made.rules.min_answer_chars, made.epochs) == ("Mine.", 7, None)
    assert made.rules.note_prompt_titled == json.loads((TEMPLATES / "writing" / "rules.json").read_text())["note_prompt_titled"]


UNWANTED = """
Click here to win
subscribe to our channel
reply to unsubscribe
limited-time offer
100% FREE
make money fast
use promo code X
free trial
act now
加我微信
加微信
加V：abc123
扫码领取
点击链接
关注公众号
限时秒杀
免费领取
日赚300
兼职刷单
退订回T
回复TD退订
[photo]
image omitted
<Media omitted>
[图片]
This message was deleted
Missed voice call
你撤回了一条消息
系统消息：x
---------- Forwarded message ----------
Fwd: hello
转发自 小明
see https://a.example, www.b.example, t.me/c
""".strip().splitlines()
"""At least one for every pattern that is shipped."""


@pytest.mark.parametrize("name", NAMES)
def test_words_of_a_shipped_pattern_are_in_whatever_it_matches(name: str) -> None:
    rules = Scenario.from_json(scenario_document(TEMPLATES / name, {"name": name, "window_tokens": 256}, {})).rules
    for pattern in rules.patterns:
        found = [text for text in UNWANTED if re.search(pattern.regex, text, re.IGNORECASE)]
        assert found, pattern.name
        assert all(any(word.lower() in text.lower() for word in pattern.contains) for text in found), (pattern.name, found)


def test_shops_sample_and_evaluation_are_the_shop_with_every_fact_in_both() -> None:
    whole, sample, evaluation = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in (
            CASES / "customer_service_shop.jsonl",
            TEMPLATES / "customer_service" / "sample.jsonl",
            TEMPLATES / "customer_service" / "eval.jsonl",
        )
    )
    assert (len(sample), len(evaluation)) == (80, 16)
    assert sorted(map(json.dumps, sample + evaluation)) == sorted(map(json.dumps, whole))
    assert {line["fact"] for line in sample} == {line["fact"] for line in evaluation} and len({line["fact"] for line in evaluation}) == 16
    assert not {line["messages"][0]["content"] for line in sample} & {line["messages"][0]["content"] for line in evaluation}
    assert all(entity in line["messages"][1]["content"] for line in evaluation for entity in line["entities"])


def test_columns_are_named_in_pairs() -> None:
    assert columns_of(["user=Frage, kurz", "assistant = A=B "]) == {"user": "Frage, kurz", "assistant": "A=B"}


@pytest.mark.parametrize("pair", ["Question", "=Question", "user="])
def test_column_without_a_name_is_refused(pair: str) -> None:
    with pytest.raises(UserError, match="is not NAME=COLUMN"):
        columns_of([pair])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*DataRules.__dataclass_fields__, "x"]), inner),
        max_leaves=10,
    )
)
def test_rules_of_any_json_are_taken_or_refused(value) -> None:
    try:
        Scenario.from_json({**scenario().to_json(), "rules": value})
    except UserError as error:
        assert "rules" in str(error)
