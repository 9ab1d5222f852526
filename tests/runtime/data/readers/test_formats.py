"""The table of formats: every record is complete, and each recognises its own samples and nobody else's.

tests/cases/data/formats/NAME/ holds files as the app writes them, with invented contents: a new format needs at least one.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from mobilefinetuner.runtime.data import readers
from mobilefinetuner.runtime.data.files.head import Head, read_head
from mobilefinetuner.runtime.data.options import add_arguments
from mobilefinetuner.runtime.data.readers import FORMATS, choices
from mobilefinetuner.runtime.data.readers.format import FileToRead, Format, ReadOptions
from mobilefinetuner.runtime.data.reading import check_options, sources_under
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.message import Conversation, Message

from tests.support.ingesting import CASES, format_of, jsonl, read, row, turns

ROOT = Path(__file__).parents[4]
SAMPLES = sorted(path for path in (CASES / "formats").glob("*/*"))
GENERAL = {"openai": {"telegram"}, "unknown_rows": {"telegram", "chatgpt"}, "csv": {"wechat"}, "notes": set(choices()) - {"notes"}}
"""Formats that also take what these own, and must therefore be tried after them."""


def _ids(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def test_names_are_unique_and_those_that_can_be_chosen_are_what_format_accepts() -> None:
    names = [format_.name for format_ in FORMATS]
    assert len(set(names)) == len(names)
    assert choices() == tuple(format_.name for format_ in FORMATS if format_.is_choice)
    for format_ in FORMATS:
        if format_.is_choice:
            check_options(ReadOptions(format=format_.name))
            continue
        with pytest.raises(UserError, match=f"--format: '{format_.name}' is not known; allowed: {', '.join(choices())}"):
            check_options(ReadOptions(format=format_.name))


@pytest.mark.parametrize("format_", FORMATS, ids=lambda format_: format_.name)
def test_record_is_complete(format_: Format) -> None:
    assert format_.name.isidentifier() and format_.name == format_.name.lower()
    assert format_.suffixes and all(suffix.startswith(".") and suffix == suffix.lower() for suffix in format_.suffixes)
    assert callable(format_.looks_like) and callable(format_.read)
    assert set(format_.options) <= {field.name for field in fields(ReadOptions)}
    assert format_.looks_like(Head("x", ".bin", b"\x01\x02\x03" if format_.is_document else b" ")) is None


@pytest.mark.parametrize("name", choices())
def test_format_has_a_sample_and_is_named_in_the_guide(name: str) -> None:
    assert [path for path in SAMPLES if path.parent.name == name]
    assert f"`{name}`" in (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("sample", SAMPLES, ids=_ids)
def test_sample_is_recognised_by_its_own_format_and_by_none_of_the_others(sample: Path) -> None:
    assert format_of(sample) == sample.parent.name
    head = read_head(sources_under([sample])[0])
    takers = {format_.name for format_ in FORMATS if format_.looks_like(head) is not None}
    assert {name for name in takers if sample.parent.name not in GENERAL.get(name, ())} == {sample.parent.name}


def test_general_formats_are_tried_after_those_whose_files_they_take() -> None:
    place = {format_.name: number for number, format_ in enumerate(FORMATS)}
    for name, others in GENERAL.items():
        assert all(place[other] < place[name] for other in others)


@pytest.mark.parametrize("sample", SAMPLES, ids=_ids)
def test_sample_is_read_into_conversations_and_its_ending_is_a_known_one(sample: Path) -> None:
    found, others, report = read(sample, me=("Ben Braun", "李雷", "me"))
    assert found and {conversation.metadata["source"] for conversation in found} == {str(sample)}
    assert {item.reason for item in others} <= {"broken_tree", "no_messages", "no_user_turn"}
    assert report.files[0].format == sample.parent.name
    assert sample.suffix in readers.suffixes()


@pytest.mark.parametrize("sample", SAMPLES, ids=_ids)
def test_chat_logs_need_an_owner_and_other_files_do_not(sample: Path) -> None:
    knows_its_owner = {"telegram/account.json", "wechat/database.csv"}
    if sample.parent.name in readers.chat_formats() and _ids(sample) not in knows_its_owner:
        with pytest.raises(UserError, match="its speakers: "):
            read(sample)
    else:
        assert read(sample)[0]


def _looks_like_letters(head: Head) -> str | None:
    return "an archive of letters" if head.data.startswith(b"PK\x03\x04") and b"letters/" in head.data else None


def _read_letters(file: FileToRead) -> Iterator[Conversation]:
    with file.source.open() as stream, zipfile.ZipFile(io.BytesIO(stream.read())) as archive:
        for number, name in enumerate(archive.namelist(), start=1):
            note = Message("assistant", archive.read(name).decode(), {"note": True})
            yield Conversation((note,), {"source": file.source.name, "line": number, "format": "letters"})


LETTERS = Format("letters", _looks_like_letters, _read_letters, (".letters",), is_document=True)


def _refused(file: FileToRead) -> FileToRead:
    raise UserError(file.source.name, "is a page of letters", remedy="export the letters themselves")


PAGE = Format(
    "letters_page", lambda head: "a page" if "<letters>" in head.text else None, _read_letters, (".htm",), prepare=_refused, is_choice=False
)


def test_document_that_is_added_to_the_table_is_listed_found_recognised_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "FORMATS", (LETTERS, *FORMATS))
    with zipfile.ZipFile(tmp_path / "mine.letters", "w") as archive:
        archive.writestr("letters/1.txt", "Dear Ann")
        archive.writestr("letters/2.txt", "Dear Cem")
    assert format_of(tmp_path / "mine.letters") == "letters"
    for path, options in ((tmp_path, {}), (tmp_path / "mine.letters", {"format": "letters"})):
        found, others, report = read(path, **options)
        assert [turns(conversation) for conversation in found] == [[("assistant", "Dear Ann")], [("assistant", "Dear Cem")]]
        assert others == [] and (report.files[0].format, report.files[0].encoding) == ("letters", "binary")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert "letters" in parser.format_help()


def test_format_may_refuse_its_files_with_a_sentence_and_strays_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "FORMATS", (PAGE, *FORMATS))
    (tmp_path / "all.htm").write_text("<letters>")
    jsonl(tmp_path / "rows.jsonl", row("Q", "A"))
    with pytest.raises(UserError, match=r"all.htm: is a page of letters; try: export the letters themselves"):
        read(tmp_path / "all.htm")
    found, _, report = read(tmp_path)
    assert [turns(conversation) for conversation in found] == [[("user", "Q"), ("assistant", "A")]]
    assert "all.htm" in report.files[0].name and report.files[0].skipped


def test_file_that_no_format_recognises_is_refused_with_the_names_of_the_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "FORMATS", tuple(format_ for format_ in FORMATS if format_.name != "notes"))
    path = tmp_path / "a.txt"
    path.write_text("Some text that is no export.")
    with pytest.raises(UserError, match=r"a.txt: is of no known format; allowed: telegram, chatgpt, .*; try: name the format with --format"):
        read(path)
