"""What the rules keep, drop, take out and replace, and what they say about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.rules.rules import Outcome, RuleEngine, repeated_share
from mobilefinetuner.runtime.message import Conversation, Message

from tests.support.chatml import scenario
from tests.support.ingesting import turns

AD = {"name": "advertising", "regex": "buy now|click here", "contains": ["buy now", "click here"]}
NOTICE = {"name": "boilerplate", "regex": r"^\[photo\]$", "contains": ["[photo]"], "action": "take_out"}


def _conversation(*texts: str, first: str = "user", **metadata: Any) -> Conversation:
    roles = ("user", "assistant") if first == "user" else ("assistant", "user")
    return Conversation(tuple(Message(roles[n % 2], text) for n, text in enumerate(texts)), metadata)


def _judge(tmp_path: Path, *conversations: Conversation, languages: tuple[str, ...] = ("en", "zh"), **rules: Any) -> list[Outcome]:
    engine = RuleEngine(scenario(rules=rules, languages=list(languages)), ["<|im_start|>", "<|im_end|>"], tmp_path)
    return engine.apply(conversations, range(len(conversations)))


def _reason(outcome: Outcome) -> str | None:
    return None if outcome.conversation is not None else outcome.decisions[-1].rule


@pytest.mark.parametrize(
    ("question", "answer", "rules", "reason"),
    [
        ("In what year?", "1963", {}, None),
        ("How many?", "5", {}, None),
        ("Who?", "No", {"min_answer_chars": 3}, "too_short"),
        ("Who?", "N o\n", {"min_answer_chars": 3}, "too_short"),
        ("Write.", "word " * 30, {"max_answer_chars": 100}, "too_long"),
        ("Laugh.", "ha" + "a" * 13, {}, "repeated_characters"),
        ("Laugh.", "哈" * 12, {}, None),
        ("Laugh.", "哈" * 13, {}, "repeated_characters"),
        ("Pi?", "3." + "3" * 40, {}, None),
        ("Rule.", "-" * 60 + "\nabove", {}, None),
        ("Repeat.", "buy this lamp today " * 8, {}, "repeated_text"),
        ("Sing.", "La la la, la la la!", {}, None),
        ("Hi", "Добрый день, чем я могу вам помочь сегодня?", {}, "other_language"),
        ("Hi", "Добрый", {}, None),
        ("Привет, как дела сегодня у тебя?", "I am fine, thank you very much.", {}, None),
        ("Mix", "我用 TensorFlow 训练模型 model training", {}, None),
        ("Offer?", "BUY NOW and save", {"patterns": [AD]}, "advertising"),
        ("BUY NOW?", "Sorry, what do you mean?", {"patterns": [{**AD, "applies_to": "assistant"}]}, None),
        ("Link?", "buy now", {"patterns": [{**AD, "min_matches": 2}]}, None),
        ("Same", "same!", {"drop_echo": True}, "echo"),
        ("Same", "same!", {}, None),
        ("Q", "   \n\u3000", {}, "blank"),
        ("Q", "https://example.org/x www.example.org", {}, "link_only"),
        ("Q", "See https://example.org/x", {}, None),
        ("Q", "[photo]", {"patterns": [NOTICE]}, "boilerplate"),
        ("Q", "ends with <|im_end|> here", {}, "control_token"),
        ("<|im_start|>system", "A", {}, "control_token"),
        ("Q <|IM_END|>", "A", {}, None),
        ("Q", "half \ud83d emoji", {}, "broken_unicode"),
    ],
)
def test_first_rule_that_objects_names_the_reason(tmp_path: Path, question: str, answer: str, rules: dict, reason: str | None) -> None:
    assert _reason(_judge(tmp_path, _conversation(question, answer), **rules)[0]) == reason


def test_every_drop_is_explained_with_turn_and_excerpt(tmp_path: Path) -> None:
    (outcome,) = _judge(tmp_path, _conversation("Offer?", "Buy now!\nOnly today."), patterns=[AD])
    decision = outcome.decisions[0]
    assert (decision.rule, decision.action) == ("advertising", "dropped")
    assert decision.detail == "turn 2 matches advertising (Buy now)" and decision.excerpt == "Buy now! Only today."


def test_turn_that_says_nothing_is_taken_out_and_its_neighbours_are_joined(tmp_path: Path) -> None:
    (outcome,) = _judge(tmp_path, _conversation("Look", "[photo]", "Nice, is it not?", "Very nice."), patterns=[NOTICE])
    assert turns(outcome.conversation) == [("user", "Look\nNice, is it not?"), ("assistant", "Very nice.")]
    assert [(decision.rule, decision.action) for decision in outcome.decisions] == [("boilerplate", "turn_removed")]


def test_objection_costs_one_answer_of_a_conversation_and_not_the_others(tmp_path: Path) -> None:
    (outcome,) = _judge(tmp_path, _conversation("Hi", "h" * 20, "Where?", "At home.", "BUY NOW!", "Stop that."), patterns=[AD])
    assert turns(outcome.conversation)[1] == ("assistant", "h" * 20)
    assert [message.metadata.get("train", True) for message in outcome.conversation.messages] == [True, False, True, True, True, False]
    assert [(decision.rule, decision.action, decision.detail) for decision in outcome.decisions] == [
        ("advertising", "turn_not_learned", "turn 6 answers turn 5, which matches advertising (BUY NOW)"),
        ("repeated_characters", "turn_not_learned", "turn 2 'h' occurs more than 12 times in a row"),
    ]


def test_answer_to_a_turn_that_was_taken_out_goes_with_it(tmp_path: Path) -> None:
    (outcome,) = _judge(tmp_path, _conversation("[photo]", "Lovely!", "Where was it?", "In Rome."), patterns=[NOTICE])
    assert turns(outcome.conversation) == [("user", "Where was it?"), ("assistant", "In Rome.")]
    assert _reason(_judge(tmp_path, _conversation("[photo]", "Lovely!"), patterns=[NOTICE])[0]) == "boilerplate"


def test_when_no_answer_is_left_to_learn_the_conversation_is_dropped(tmp_path: Path) -> None:
    (outcome,) = _judge(tmp_path, _conversation("Hi", "h" * 20, "And?", "buy now"), patterns=[AD])
    assert _reason(outcome) == "repeated_characters" and [decision.action for decision in outcome.decisions] == ["turn_not_learned", "dropped"]


def test_conversation_without_an_answer_is_dropped_as_such(tmp_path: Path) -> None:
    assert _reason(_judge(tmp_path, Conversation((Message("user", "Anybody?"),)))[0]) == "no_assistant_turn"


def test_pattern_without_words_to_look_for_sees_every_text(tmp_path: Path) -> None:
    pattern = {"name": "digits", "regex": r"\d{4}"}
    outcomes = _judge(tmp_path, _conversation("Q", "in 1999"), _conversation("Q", "never"), patterns=[pattern])
    assert [_reason(outcome) for outcome in outcomes] == ["digits", None]


@pytest.mark.parametrize("text", ["Buy Now", "İ buy now", "ß" * 50 + "BUY NOW", "买 buy now 🙂"])
def test_words_are_found_in_any_case_and_beside_letters_that_change_length(tmp_path: Path, text: str) -> None:
    assert _reason(_judge(tmp_path, _conversation("Q", text), patterns=[AD])[0]) == "advertising"


def test_duplicates_differ_at_most_in_case_width_and_blanks(tmp_path: Path) -> None:
    outcomes = _judge(
        tmp_path,
        _conversation("Is it open?", "Yes, until 6."),
        _conversation("is it  open?", "YES, until 6.\n"),
        _conversation("Is it open?", "Yes, until ６."),
        _conversation("Is it open?", "Yes, until 7."),
        _conversation("Is it open", "Yes, until 6."),
    )
    assert [_reason(outcome) for outcome in outcomes] == [None, "duplicate", "duplicate", None, None]
    assert outcomes[1].decisions[0].detail == "is the same as record 1"


def test_the_same_words_said_by_others_are_no_duplicate(tmp_path: Path) -> None:
    outcomes = _judge(
        tmp_path,
        _conversation("Hello", "Hello there", "Bye"),
        _conversation("Hello there", "Hello", "Bye"),
        _conversation("Hello", "Hello there", "Bye", first="assistant"),
    )
    assert [_reason(outcome) for outcome in outcomes] == [None, None, None]


LONG = (
    "The lamp that you ordered last week has left our workshop this morning. Zephyr Post will bring it to your door within three days, "
    "and you can follow it with the number in the mail that we have just sent you. Please keep the blue card that lies in the box."
)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (LONG.replace("this morning", "this mornin"), "near_duplicate"),
        (LONG.replace("just sent", "sent") + " Thanks!", "near_duplicate"),
        (LONG.replace("three days", "3 days"), None),
        (LONG[: len(LONG) // 2] + LONG[: len(LONG) // 2].upper()[::-1], None),
    ],
    ids=["one letter", "two words", "a number appears", "half is other"],
)
def test_near_duplicates_are_compared_by_their_shingles_and_numbers_are_facts(tmp_path: Path, other: str, reason: str | None) -> None:
    outcomes = _judge(tmp_path, _conversation("Where is it?", LONG), _conversation("Where is it?", other))
    assert _reason(outcomes[1]) == reason


def test_near_duplicates_are_found_across_batches_and_can_be_switched_off(tmp_path: Path) -> None:
    for mode, expected in (("near", "near_duplicate"), ("exact", None), ("off", None)):
        engine = RuleEngine(scenario(rules={"duplicates": mode}), [], tmp_path)
        engine.apply([_conversation("Where is it?", LONG)], [4])
        (outcome,) = engine.apply([_conversation("Where is it?", LONG + " Bye")], [9])
        assert _reason(outcome) == expected
        if expected:
            assert outcome.decisions[0].detail.endswith("the same as record 5")


def test_long_common_system_text_makes_no_duplicates(tmp_path: Path) -> None:
    system = Message("system", LONG)
    rows = [
        Conversation((system, Message("user", q), Message("assistant", a)))
        for q, a in (("Where?", "At 12 Orrery Lane."), ("When?", "From ten o'clock on."))
    ]
    assert [_reason(outcome) for outcome in _judge(tmp_path, *rows)] == [None, None]


def test_redaction_replaces_what_is_valid_and_its_decision_shows_nothing_of_it(tmp_path: Path) -> None:
    (outcome,) = _judge(
        tmp_path,
        _conversation("My card is 4111 1111 1111 1111, mail ann@example.org", "Order 1234 5678 9012 3456 is yours.", raw="x"),
        redact=["bank_card", "email"],
    )
    assert turns(outcome.conversation) == [("user", "My card is [card number], mail [email]"), ("assistant", "Order 1234 5678 9012 3456 is yours.")]
    assert [(decision.action, decision.detail, decision.excerpt) for decision in outcome.decisions] == [("redacted", "1 bank_card, 1 email", "")]
    assert "raw" not in outcome.conversation.metadata


@pytest.mark.parametrize(("text", "share"), [("abcdefghijklmnop", 0.0), ("", 0.0), ("abc", 0.0), ("abcde" * 10, 1 - 5 / 46)])
def test_repeated_share_is_the_share_of_pieces_seen_before(text: str, share: float) -> None:
    assert repeated_share(text) == pytest.approx(share)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_judging_conversations_together_or_one_by_one_is_the_same(tmp_path_factory, rows) -> None:
    folder = tmp_path_factory.mktemp("rules")
    conversations = [_conversation(*texts) for texts in rows]
    together = _judge(folder, *conversations, patterns=[AD, NOTICE], redact=["email", "phone"])
    engine = RuleEngine(scenario(rules={"patterns": [AD, NOTICE], "redact": ["email", "phone"]}), ["<|im_start|>", "<|im_end|>"], folder)
    alone = [engine.apply([conversation], [n])[0] for n, conversation in enumerate(conversations)]
    assert [(v.conversation, v.decisions) for v in together] == [(v.conversation, v.decisions) for v in alone]
