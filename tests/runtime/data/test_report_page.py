"""The page a person looks at."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from mobilefinetuner.runtime.errors import UserError

from tests.support.ingesting import CASES, jsonl, row, take_in


class _Page(HTMLParser):
    """Text, tags left open, and addresses."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.text, self.open, self.addresses = "", [], []
        self.feed(content)

    def handle_starttag(self, tag: str, attributes) -> None:
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _page(path: Path) -> _Page:
    page = _Page(path.read_text(encoding="utf-8"))
    assert page.open == [] and page.addresses == []
    return page


def test_page_shows_files_reasons_lengths_scripts_and_examples(tmp_path: Path) -> None:
    page = _page_of(tmp_path)
    for words in (
        "2 of 4 records were kept",
        "a.jsonl",
        "bad json",
        "duplicate",
        "Lengths in tokens",
        "Scripts",
        "Latin",
        "Han",
        "Kept (the first 2)",
        "<b>bold</b> & co",
        "is the same as record 1",
    ):
        assert words in page.text


def _page_of(tmp_path: Path) -> _Page:
    path = jsonl(
        tmp_path / "a.jsonl", row("Is it <b>bold</b> & co?", "是的，当然。"), "{broken", row("Is it <b>bold</b> & co?", "是的，当然。"), row("b", "c")
    )
    take_in(path, tmp_path / "cache", report=tmp_path / "report.html")
    return _page(tmp_path / "report.html")


def test_page_of_a_chat_shows_its_speakers_and_what_was_no_speech(tmp_path: Path) -> None:
    take_in(CASES / "formats" / "telegram" / "chat.json", tmp_path / "cache", read_options={"me": ("Ben Braun",)}, report=tmp_path / "report.html")
    page = _page(tmp_path / "report.html")
    assert "Ann Lee" in page.text and "Speakers" in page.text and "forwarded" in page.text


def test_page_is_written_although_the_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        take_in(CASES / "tech_support_raw.en.jsonl", tmp_path / "cache", max_drop_share=None, report=tmp_path / "report.html")
    assert "10 of 1,050 records were kept" in _page(tmp_path / "report.html").text
    assert not (tmp_path / "cache").exists()
