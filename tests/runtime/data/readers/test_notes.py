"""Plain-text and Markdown notes."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.readers.notes import NOTE_CHARS_MAX

from tests.support.ingesting import CASES, read


def test_poems_are_notes_with_title_and_author_as_metadata() -> None:
    found, others, _ = read(CASES / "writing_poems.zh.txt")
    assert len(found) == 250 and others == []
    first = found[0]
    assert (first.metadata["title"], first.metadata["author"]) == ("感遇・其一", "张九龄")
    assert first.messages[0].text == "兰叶春葳蕤，桂华秋皎洁。\n欣欣此生意，自尔为佳节。\n谁知林栖者，闻风坐相悦。\n草木有本心，何求美人折？"
    assert all(conversation.metadata["title"] and conversation.metadata["author"] for conversation in found)
    assert not any("作者：" in conversation.messages[0].text for conversation in found)
    lines = (CASES / "writing_poems.zh.txt").read_text(encoding="utf-8").split("\n")
    assert all(conversation.metadata["title"] in lines[conversation.metadata["line"] - 1] for conversation in found)


def test_plain_file_is_one_note(tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("Today I planted tomatoes.\n\nThe soil was dry.\n")
    found, _, _ = read(path)
    assert [conversation.messages[0].text for conversation in found] == ["Today I planted tomatoes.\n\nThe soil was dry."]


def test_markdown_is_split_at_its_top_headings_and_front_matter_is_metadata(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text(
        "---\ntitle: Garden\nauthor: Ann\ntags: [x]\n---\nIntro text.\n\n# Tomatoes\nWater them.\n## Details\nDaily.\n```\n# no heading\n```\n\n"
        "Beans\n=====\nLet them climb.\n"
    )
    found, _, _ = read(path)
    assert [(conversation.metadata["title"], conversation.metadata["author"], conversation.messages[0].text) for conversation in found] == [
        ("Garden", "Ann", "Intro text."),
        ("Tomatoes", "Ann", "Water them.\n## Details\nDaily.\n```\n# no heading\n```"),
        ("Beans", "Ann", "Let them climb."),
    ]


def test_very_long_file_is_read_in_parts_that_together_are_the_text(tmp_path: Path) -> None:
    path = tmp_path / "novel.txt"
    text = "".join(f"Sentence number {n} of this novel is here. " for n in range(120_000))
    path.write_text(text)
    found, _, _ = read(path)
    assert len(found) > 2 and max(len(conversation.messages[0].text) for conversation in found) <= 2 * NOTE_CHARS_MAX
    assert "".join(conversation.messages[0].text for conversation in found) == text
    assert all(conversation.messages[0].text.endswith((". ", ".")) for conversation in found)


@settings(max_examples=80)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), min_size=1, max_size=200))
def test_arbitrary_text_loses_nothing_but_blank_edges(tmp_path_factory, text: str) -> None:
    path = tmp_path_factory.mktemp("notes") / "n.txt"
    path.write_bytes(text.encode())
    found, _, _ = read(path, format="notes", encoding="utf-8")
    kept = "".join(conversation.messages[0].text + conversation.metadata["title"] + conversation.metadata.get("author", "") for conversation in found)
    visible = [character for character in text.removeprefix("\ufeff") if not character.isspace()]
    if not any(word in text for word in ("《", "作者", "author", "by", "von", "par", "de")):
        assert [character for character in kept if not character.isspace()] == visible
