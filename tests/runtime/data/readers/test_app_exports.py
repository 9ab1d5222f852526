"""Telegram, WeChat and ChatGPT exports, made by hand after the apps' own descriptions."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from mobilefinetuner.runtime.errors import UserError

from tests.support.ingesting import CASES, format_of, read, turns


def test_telegram_chat_has_texts_in_pieces_and_keeps_service_messages_apart() -> None:
    path = CASES / "formats" / "telegram" / "chat.json"
    assert format_of(path) == "telegram"
    found, others, report = read(path, me=("Ben Braun",))
    assert others == []
    assert [turns(conversation) for conversation in found] == [
        [("user", "Have you seen https://lumiere.example yet?\nThe green one is nice"), ("assistant", "Not yet, I will look tonight")],
        [("user", "So?"), ("assistant", "I like it.")],
    ]
    assert dict(report.lines_skipped) == {"notice": 1, "media": 1, "forwarded": 1}
    assert dict(report.speakers) == {"Ann Lee": 3, "Ben Braun": 2}


def test_telegram_account_export_knows_its_owner() -> None:
    path = CASES / "formats" / "telegram" / "account.json"
    assert format_of(path) == "telegram"
    found, others, _ = read(path)
    assert [turns(conversation) for conversation in found] == [
        [("user", "Lunch?"), ("assistant", "At noon")],
        [("user", "Ann: Hi all\nCem: Hello"), ("assistant", "Hi!")],
    ]
    assert [item.reason for item in others] == ["no_user_turn"]


def test_speakers_are_listed_when_nobody_said_who_me_is() -> None:
    with pytest.raises(UserError, match=r"its speakers: Ann Lee \(3\), Ben Braun \(2\); try: --me NAME"):
        read(CASES / "formats" / "telegram" / "chat.json")


def test_name_that_nobody_has_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UserError, match=r"nobody in .* is called Bem; its speakers: Ann Lee \(3\), Ben Braun \(2\)"):
        read(CASES / "formats" / "telegram" / "chat.json", me=("Bem",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name": "A", "type": "personal_chat"}', "has neither messages nor a list of chats"),
        ('{"name": "A", "type": "personal_chat", "messages": 3}', "has neither messages nor a list of chats"),
        ('{"name": "A", "type": "personal_chat", "messages": [', r"is not valid JSON \(an array or an object does not end\)"),
    ],
    ids=["no messages", "messages that are no list", "cut off"],
)
def test_damaged_telegram_export_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(UserError, match=f"result.json: {words}"):
        read(path)


def test_telegram_chats_without_messages_are_quarantined_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"chats": {"list": [3, {"messages": 4}]}}')
    found, others, _ = read(path)
    assert found == [] and [item.reason for item in others] == ["bad_chat", "bad_chat"]


def test_wechat_database_csv_knows_its_owner() -> None:
    path = CASES / "formats" / "wechat" / "database.csv"
    assert format_of(path) == "wechat"
    found, others, report = read(path)
    assert others == []
    assert [turns(conversation) for conversation in found] == [
        [("user", "晚上吃什么？\n要不吃火锅"), ("assistant", "好啊，六点见")],
        [("user", '他说："到了"，\n你呢'), ("assistant", "我也到了")],
    ]
    assert dict(report.lines_skipped) == {"notice": 2, "media": 3}


@pytest.mark.parametrize(("form", "name"), [("wechat", "chinese.csv"), ("wechat_txt", "chat.txt")])
def test_wechat_csv_with_chinese_columns_and_its_txt_say_the_same(form: str, name: str) -> None:
    path = CASES / "formats" / form / name
    assert format_of(path) == form
    found, _, report = read(path, me=("李雷",))
    assert [turns(conversation) for conversation in found] == [[("user", "周末有空吗"), ("assistant", "有空\n去爬山？"), ("user", "好")]]
    assert dict(report.lines_skipped) == {"media": 1}


def test_chatgpt_export_follows_the_current_branch() -> None:
    path = CASES / "formats" / "chatgpt" / "conversations.json"
    assert format_of(path) == "chatgpt"
    found, others, _ = read(path)
    assert [conversation.metadata["title"] for conversation in found] == ["Lamp advice", "With a tool"]
    assert turns(found[0]) == [
        ("user", "Which bulb fits?"),
        ("assistant", "An E19 bulb."),
        ("user", "How strong?"),
        ("assistant", "40 watts at most."),
    ]
    assert turns(found[1]) == [("user", "What is 17 * 23?"), ("tool", "python(print(17 * 23))"), ("tool", "391"), ("assistant", "17 * 23 is 391.")]
    assert [(item.line, item.reason) for item in others] == [(3, "broken_tree"), (4, "no_messages")]


def test_chatgpt_tree_with_a_loop_is_quarantined(tmp_path: Path) -> None:
    nodes = {"a": {"id": "a", "parent": "b", "message": None, "children": ["b"]}, "b": {"id": "b", "parent": "a", "message": None, "children": ["a"]}}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"title": "t", "mapping": nodes, "current_node": "a"}]))
    _, others, _ = read(path)
    assert [item.reason for item in others] == ["broken_tree"]


def test_chatgpt_zip_is_read_and_its_account_files_are_only_named(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(CASES / "formats" / "chatgpt" / "conversations.json", "conversations.json")
        archive.writestr("user.json", '{"id": "user-1", "email": "a@example.org"}')
        archive.writestr("message_feedback.json", '[{"id": "1", "rating": "thumbsUp"}, {"id": "2", "rating": "thumbsUp"}]')
        archive.writestr("shared_conversations.json", "[]")
        archive.writestr("chat.html", "<html></html>")
    found, others, report = read(path)
    alone, quarantined, _ = read(CASES / "formats" / "chatgpt" / "conversations.json")
    assert list(map(turns, found)) == list(map(turns, alone)) and len(others) == len(quarantined)
    assert {entry.name.split("!")[1]: entry.skipped for entry in report.files if entry.skipped} == {
        "message_feedback.json": "contains nothing to learn: its first array has the keys id, rating",
        "user.json": "contains nothing to learn: its first line has the keys id, email",
    }
