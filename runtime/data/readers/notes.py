"""Plain-text and Markdown notes.

In:  a text file: one note, or a collection in which every note begins with its title.
Out: one Conversation for each note: a single assistant turn marked as a note; title and author in the metadata, not in the text.
A note is trained as the assistant's answer to the scenario's note prompt, all of it labelled: trained as raw text it would
never meet the chat template that the model later answers through, and would hardly change what `chat` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from ...message import Conversation, Message
from ..files.encoding import iter_text
from ..files.head import Head
from ..files.sources import Source
from ..text.sentences import sentence_ends
from .format import FileToRead, Format

NOTE_CHARS_MAX = 1 << 20
"""a longer note is read in parts of about this size, cut at a blank line or a sentence end, so memory stays bounded"""

_BOOK_TITLE = re.compile(r"《([^《》\n]{1,80})》\s*$")
_AUTHOR = re.compile(r"(?:作者|author|by|von|par|de)\s*[:：]\s*(\S.{0,78}?)\s*$", re.IGNORECASE)
_HEADING = re.compile(r"(#{1,6})\s+(\S.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r"(=+|-+)\s*$")
_FRONT_KEY = re.compile(r"([A-Za-z_]+)\s*:\s*(.*?)\s*$")
_BLANK_LINE = re.compile(r"\n[ \t\r\u3000]*\n")


@dataclass(frozen=True)
class _Note:
    text: str
    line: int
    title: str = ""
    author: str = ""


def looks_like_notes(head: Head) -> str | None:
    """Any text: this format is tried last."""
    return "no structure that another reader knows" if head.text else None


def read_notes(file: FileToRead) -> Iterator[Conversation]:
    """All notes of a file in order; an empty file yields nothing."""
    source = file.source
    markdown = source.suffix in (".md", ".markdown")
    with source.open() as stream:
        for text, line in _parts(iter_text(stream, file.encoding, source.name)):
            for note in _markdown_notes(text, line) if markdown else _plain_notes(text, line):
                yield _conversation(note, source, "markdown" if markdown else "text")


def _conversation(note: _Note, source: Source, form: str) -> Conversation:
    name = PurePath(source.member or source.path.name).stem
    metadata = {"source": source.name, "line": note.line, "format": form, "raw": note.text, "title": note.title, "file_title": name}
    if note.author:
        metadata["author"] = note.author
    return Conversation((Message("assistant", note.text, {"note": True}),), metadata)


def _parts(pieces: Iterator[str]) -> Iterator[tuple[str, int]]:
    """The text with its first line's number, in parts of bounded size; line ends are made "\\n"."""
    buffer, line = "", 1
    for piece in pieces:
        buffer += piece
        while len(buffer) > 2 * NOTE_CHARS_MAX:
            part = buffer[: _cut(buffer)]
            yield part.replace("\r\n", "\n").replace("\r", "\n"), line
            line += part.count("\n")
            buffer = buffer[len(part) :]
    if buffer and not buffer.isspace():
        yield buffer.replace("\r\n", "\n").replace("\r", "\n"), line


def _cut(text: str) -> int:
    """Where to end a part: at the last blank line of its second half, else at a sentence end, else anywhere."""
    half, full = NOTE_CHARS_MAX // 2, NOTE_CHARS_MAX
    blank = text.rfind("\n\n", half, full)
    if blank >= 0:
        return blank + 2
    ends = [end for end in sentence_ends(text[half:full]) if end < full - half]
    return half + ends[-1] if ends else full


def _plain_notes(text: str, line: int) -> list[_Note]:
    """A collection if most of its blocks begin with a 《title》, else one note whose title is its first line if that looks like one."""
    blocks = list(_blocks(text, line))
    titled = [block for block in blocks if _BOOK_TITLE.match(block[0].split("\n", 1)[0].strip())]
    if len(titled) >= 2 and 2 * len(titled) >= len(blocks):
        return _collection(blocks)
    return [_titled(text, line)]


def _blocks(text: str, line: int) -> Iterator[tuple[str, int]]:
    """Stretches between blank lines, with their first line's number."""
    start = 0
    for gap in [*_BLANK_LINE.finditer(text), None]:
        end = gap.start() if gap else len(text)
        block = text[start:end]
        if block.strip():
            lead = len(block) - len(block.lstrip("\n"))
            yield block.strip("\n"), line + text.count("\n", 0, start) + lead
        start = gap.end() if gap else end


def _collection(blocks: list[tuple[str, int]]) -> list[_Note]:
    """Blocks without a title of their own go on with the note before them."""
    notes: list[_Note] = []
    for block, line in blocks:
        note = _titled(block, line)
        if note.title or not notes:
            notes.append(note)
        else:
            before = notes[-1]
            notes[-1] = _Note(f"{before.text}\n\n{block}", before.line, before.title, before.author)
    return notes


def _titled(text: str, line: int) -> _Note:
    """Take a leading 《title》 and an author line off a note."""
    lines = text.split("\n")
    first = next((number for number, content in enumerate(lines) if content.strip()), 0)
    title = author = ""
    body = first
    if match := _BOOK_TITLE.match(lines[first].strip()):
        title, body = match.group(1), first + 1
    if body < len(lines) and (title or body == first) and (match := _AUTHOR.match(lines[body].strip())):
        author, body = match.group(1), body + 1
    return _Note("\n".join(lines[body:]).strip("\n"), line + first, title, author)


def _markdown_notes(text: str, line: int) -> list[_Note]:
    """One note for each top-level heading, or one for the file; front matter gives title and author."""
    lines = text.split("\n")
    front, start = _front_matter(lines)
    sections: list[tuple[str, int, int]] = [("", start, start)]
    fenced = False
    for number in range(start, len(lines)):
        if lines[number].lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        if fenced:
            continue
        if (match := _HEADING.match(lines[number])) and len(match.group(1)) == 1:
            sections.append((match.group(2), number, number + 1))
        elif number > start and lines[number].startswith("=") and _UNDERLINE.match(lines[number]) and lines[number - 1].strip():
            sections.append((lines[number - 1].strip(), number - 1, number + 1))
    notes = []
    for (title, at, body), after in zip(sections, [*(section[1] for section in sections[1:]), len(lines)]):
        content = "\n".join(lines[body:after]).strip("\n")
        if content.strip():
            notes.append(_Note(content, line + at, title or front.get("title", ""), front.get("author", "")))
    return notes


def _front_matter(lines: list[str]) -> tuple[dict[str, str], int]:
    """The YAML block between --- lines at the top, as far as it is `key: value`; and the first line after it."""
    if not lines or lines[0].strip() != "---":
        return {}, 0
    for end in range(1, min(len(lines), 100)):
        if lines[end].strip() in ("---", "..."):
            found = (match for match in map(_FRONT_KEY.match, lines[1:end]) if match)
            return {match.group(1).lower(): match.group(2).strip("\"'") for match in found}, end + 1
    return {}, 0


FORMAT = Format("notes", looks_like_notes, read_notes, (".txt", ".md", ".markdown", ".text"))
