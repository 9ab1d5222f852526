"""CSV and TSV tables."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.errors import UserError

from tests.support.ingesting import format_of, read, turns


def _table(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.csv", "question,answer\nQ,A\n", "csv"),
        ("a.csv", "Question;Answer\r\nQ;A\r\n", "csv"),
        ("a.tsv", "prompt\tcompletion\nQ\tA\n", "tsv"),
        ("a.txt", "prompt\tcompletion\nQ\tA\n", "tsv"),
        ("a.csv", "\ufeff问题,回答\nQ,A\n", "csv"),
        ("a.csv", "id,user,assistant\n1,Q,A\n", "csv"),
    ],
    ids=["comma", "semicolon and CRLF", "tab", "tab in .txt", "Chinese names with mark", "with an id"],
)
def test_question_and_answer_columns_are_found(tmp_path: Path, name: str, text: str, form: str) -> None:
    path = _table(tmp_path / name, text)
    assert format_of(path) == form
    found, others, report = read(path)
    assert others == [] and [turns(conversation) for conversation in found] == [[("user", "Q"), ("assistant", "A")]]
    assert report.files[0].unmapped_columns == (["id"] if "id" in text else [])


def test_cells_hold_delimiters_quotes_and_line_breaks(tmp_path: Path) -> None:
    path = _table(tmp_path / "a.csv", 'question,answer\n"a, ""b""\nc","d\r\ne"\nnext,one\n')
    found, _, _ = read(path)
    assert turns(found[0]) == [("user", 'a, "b"\nc'), ("assistant", "d\ne")]
    assert [conversation.metadata["line"] for conversation in found] == [2, 5]


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = _table(tmp_path / "a.csv", "Kunde,Laden,Datum\nQ,A,heute\n")
    with pytest.raises(UserError, match="its columns: Kunde, Laden, Datum; try: --column user=COLUMN"):
        read(path)
    found, _, report = read(path, columns={"user": "Kunde", "assistant": "Laden"})
    assert turns(found[0]) == [("user", "Q"), ("assistant", "A")]
    assert report.files[0].unmapped_columns == ["Datum"]


@pytest.mark.parametrize("columns", [{"user": "Kundin", "assistant": "Laden"}, {"usr": "Kunde"}])
def test_wrong_column_names_are_refused_with_the_right_ones(tmp_path: Path, columns: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"--column: .*; allowed: "):
        read(_table(tmp_path / "a.csv", "Kunde,Laden\nQ,A\n"), columns=columns)


def test_rows_with_too_few_or_too_many_cells_are_quarantined(tmp_path: Path) -> None:
    found, others, _ = read(_table(tmp_path / "a.csv", "question,answer\nQ\nQ,A\nQ,A,B,C\n"))
    assert len(found) == 1
    assert [(item.line, item.reason, item.detail) for item in others] == [
        (2, "bad_row", "has 1 cells, the header has 2"),
        (4, "bad_row", "has 4 cells, the header has 2"),
    ]


def test_role_and_content_columns_are_grouped_by_conversation(tmp_path: Path) -> None:
    path = _table(tmp_path / "a.csv", "conversation_id,role,content\n1,user,a\n1,assistant,b\n2,customer,c\n2,agent,d\n3,wizard,e\n")
    found, others, _ = read(path)
    assert [turns(conversation) for conversation in found] == [[("user", "a"), ("assistant", "b")], [("user", "c"), ("assistant", "d")]]
    assert [(item.line, item.reason) for item in others] == [(6, "unknown_role")]


def test_column_of_texts_is_notes(tmp_path: Path) -> None:
    found, _, _ = read(_table(tmp_path / "a.csv", "title,author,text\nMoon,Li,Before my bed\n"))
    assert turns(found[0]) == [("assistant", "Before my bed")]
    assert (found[0].metadata["title"], found[0].metadata["author"]) == ("Moon", "Li")


def test_gb18030_table_is_read(tmp_path: Path) -> None:
    text = "问题,回答\n什么时候发货？,我们一般在三天之内发货。\n可以退货吗？,您可以在七天之内退货。\n"
    found, _, report = read(_table(tmp_path / "a.csv", text, "gb18030"))
    assert report.files[0].encoding == "gb18030" and found[1].messages[1].text == "您可以在七天之内退货。"


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0\ufeff"), max_size=20)


@settings(max_examples=60)
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=4), st.sampled_from([",", "\t", ";"]))
def test_arbitrary_cells_come_back_exactly(tmp_path_factory, rows, delimiter: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("question", "answer"), *rows])
    path = tmp_path_factory.mktemp("tables") / "a.csv"
    path.write_bytes(buffer.getvalue().encode())
    found, others, _ = read(path)
    assert others == []
    assert [tuple(message.text for message in conversation.messages) for conversation in found] == [
        row for row in rows if row[0].strip() or row[1].strip()
    ]
