"""Chat logs to conversations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.records import ChatLine, Quarantined
from mobilefinetuner.runtime.data.scenario import DataRules
from mobilefinetuner.runtime.data.speakers import conversations_of
from mobilefinetuner.runtime.message import Conversation

from tests.support.ingesting import turns

RULES = DataRules(join_gap_minutes=10, silence_gap_minutes=60)


def _chat(*lines: tuple[float, str, str], me: tuple[str, ...] = ("me",), chat: str = "c"):
    found = (ChatLine("file", n + 1, chat, speaker, minute * 60, text) for n, (minute, speaker, text) in enumerate(lines))
    return list(conversations_of(found, me, RULES, "whatsapp"))


def test_messages_within_the_gap_are_one_turn() -> None:
    (conversation,) = _chat((0, "Ann", "a"), (9, "Ann", "b"), (10, "me", "c"), (20, "me", "d"))
    assert turns(conversation) == [("user", "a\nb"), ("assistant", "c\nd")]


def test_messages_beyond_the_gap_are_two_turns() -> None:
    (conversation,) = _chat((0, "Ann", "a"), (11, "Ann", "b"), (12, "me", "c"))
    assert turns(conversation) == [("user", "a"), ("user", "b"), ("assistant", "c")]


def test_long_silence_starts_a_new_conversation() -> None:
    assert len(_chat((0, "Ann", "a"), (1, "me", "b"), (62, "Ann", "c"), (63, "me", "d"))) == 2


def test_clock_set_back_is_no_silence() -> None:
    assert len(_chat((600, "Ann", "a"), (0, "me", "b"))) == 1


def test_names_are_compared_without_case_marks_and_width() -> None:
    (conversation,) = _chat((0, "Ann", "a"), (1, "\u202aＭe  Too\u202c", "b"), me=("me too",))
    assert turns(conversation)[-1] == ("assistant", "b")


def test_several_others_are_told_apart_by_name() -> None:
    (conversation,) = _chat((0, "Ann", "a"), (1, "Cem", "b"), (1, "Cem", "b2"), (2, "me", "c"))
    assert turns(conversation) == [("user", "Ann: a\nCem: b\nb2"), ("assistant", "c")]


def test_conversation_without_me_or_without_others_is_quarantined_with_its_reason() -> None:
    found = _chat((0, "Ann", "a"), (100, "me", "b"))
    assert [(item.line, item.reason) for item in found if isinstance(item, Quarantined)] == [(1, "no_assistant_turn"), (2, "no_user_turn")]


def test_log_without_any_silence_is_cut_behind_the_owner_after_some_thousand_lines(monkeypatch) -> None:
    monkeypatch.setattr("mobilefinetuner.runtime.data.speakers.LINES_MAX", 5)
    speakers = ["Ann", "me", "me", "Ann", "Ann", "Ann", "me", "me", "Ann", "me"]
    found = _chat(*((0, speaker, f"{n}") for n, speaker in enumerate(speakers)))
    assert [[text for _, text in turns(conversation)] for conversation in found] == [["0", "1\n2", "3\n4\n5", "6\n7"], ["8", "9"]]


def test_log_in_which_one_side_never_stops_is_cut_all_the_same(monkeypatch) -> None:
    monkeypatch.setattr("mobilefinetuner.runtime.data.speakers.LINES_MAX", 3)
    found = _chat((0, "me", "a"), *((0, "Ann", f"{n}") for n in range(12)))
    assert len(found) == 3 and found[0].messages[1].text.split("\n") == [f"{n}" for n in range(5)]


@given(st.lists(st.tuples(st.floats(0, 500), st.sampled_from(["me", "Ann", "Cem"]), st.text("ab \n", min_size=1, max_size=5))))
def test_no_message_is_lost_or_said_twice(lines) -> None:
    numbered = [(minute, speaker, f"<{n}{text}>") for n, (minute, speaker, text) in enumerate(sorted(lines))]
    said = "".join(message.text for item in _chat(*numbered) if isinstance(item, Conversation) for message in item.messages)
    quarantined = {item.line for item in _chat(*numbered) if isinstance(item, Quarantined)}
    for _, _, text in numbered:
        assert said.count(text) <= 1
    if not quarantined:
        assert all(said.count(text) == 1 for _, _, text in numbered)
