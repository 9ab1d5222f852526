"""Bytes to text: which encoding a file is in, with the evidence, and its lines.

In:  a byte stream.
Out: Encoding (name, evidence) and text; what cannot be decoded is named by byte offset, never replaced or guessed.
Lines end at "\\n" only: U+2028, U+0085 and friends are legal inside a JSON string or a chat message.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from ...errors import UserError

HEAD_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
FORCED = ("utf-8", "utf-16-le", "utf-16-be", "gb18030", "utf-32-le", "utf-32-be", "latin-1", "cp1252", "big5", "shift_jis", "euc-kr")
"""What --encoding accepts. Only the first four are ever detected without a byte-order mark."""

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Encoding:
    """How a file's bytes are read, and why."""

    name: str
    evidence: str
    """what in the bytes says so; shown in the report"""
    mark_bytes: int = 0
    """length of the byte-order mark to skip"""


@dataclass(frozen=True)
class BadBytes:
    """A line that is not text in the file's encoding."""

    offset_bytes: int
    """position in the file of the first byte that does not decode"""
    raw: bytes


def detect_encoding(head: bytes, where: str, forced: str | None = None) -> Encoding:
    """Decide from the first bytes (at least HEAD_BYTES if the file has them). UserError when nothing fits."""
    if forced is not None:
        mark = next((mark for mark, name in _MARKS if name == forced and head.startswith(mark)), b"")
        return Encoding(forced, "named by the user", len(mark))
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name, "byte-order mark", len(mark))
    if b"\0" in head:
        return _detect_utf16(head, where)
    bad = _first_bad_utf8(head)
    if bad is None:
        return Encoding("utf-8", "all ASCII" if head.isascii() else "valid UTF-8 with multi-byte characters")
    chinese = _gb18030_evidence(head)
    if chinese:
        return Encoding("gb18030", f"byte 0x{head[bad]:02X} at offset {bad} is not UTF-8, and {chinese}")
    lines = head.split(b"\n")[:-1] if len(head) >= HEAD_BYTES else head.split(b"\n")
    valid = sum(1 for line in lines if not line.isascii() and _first_bad_utf8(line) is None)
    broken = sum(1 for line in lines if _first_bad_utf8(line) is not None)
    if valid > broken or (valid == 0 and 0 < broken <= len(lines) // 4):
        return Encoding("utf-8", f"{broken} of the first {len(lines)} lines are not valid UTF-8")
    raise undecodable(where, bad, head[bad : bad + 1], "UTF-8 or GB18030")


def undecodable(where: str, offset_bytes: int, byte: bytes, encoding: str) -> UserError:
    """The sentence for bytes that are not text."""
    shown = f"0x{byte[0]:02X}" if byte else "the end"
    return UserError(
        where,
        f"byte {offset_bytes} ({shown}) is not valid {encoding}",
        allowed="UTF-8, UTF-16, GB18030",
        remedy="export it as UTF-8, or name its encoding with --encoding",
    )


def _first_bad_utf8(data: bytes) -> int | None:
    """Offset of the first byte that is not UTF-8; a character cut off at the end is not an error."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(data)
    except UnicodeDecodeError as error:
        return error.start
    return None


def _detect_utf16(head: bytes, where: str) -> Encoding:
    """Without a mark UTF-16 shows in its zero bytes: one half of every ASCII character, always on the same side."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) >= 2 and min(even, odd) * 20 <= max(even, odd):
        name = "utf-16-le" if odd > even else "utf-16-be"
        try:
            text = codecs.getincrementaldecoder(name)().decode(head)
        except UnicodeDecodeError:
            text = "\0"
        if not any(unicodedata.category(character) in ("Cc", "Cn", "Co") and character not in "\t\n\r\f" for character in text):
            return Encoding(name, f"{max(even, odd)} zero bytes, all but {min(even, odd)} on one side of their pairs")
    raise UserError(where, f"byte {head.index(0)} is zero: this is not a text file", allowed="UTF-8, UTF-16, GB18030 text")


def _gb18030_evidence(head: bytes) -> str:
    """GB18030 accepts nearly any bytes, so most pairs must also be everyday Chinese (the GB 2312 rows); "" if not."""
    try:
        codecs.getincrementaldecoder("gb18030")().decode(head)
    except UnicodeDecodeError:
        return ""
    pairs = everyday = position = 0
    while position + 1 < len(head):
        lead, trail = head[position], head[position + 1]
        if lead < 0x80:
            position += 1
            continue
        pairs += 1
        everyday += trail >= 0xA1 and (0xB0 <= lead <= 0xF7 or 0xA1 <= lead <= 0xA3)
        position += 4 if 0x30 <= trail <= 0x39 else 2
    if pairs >= 2 and everyday >= 0.9 * pairs:
        return f"{everyday} of its first {pairs} two-byte characters are everyday Chinese in GB18030"
    return ""


def iter_text(stream: BinaryIO, encoding: Encoding, where: str) -> Iterator[str]:
    """The file's text in pieces, byte-order mark left out. UserError with the byte offset where it does not decode."""
    stream.read(encoding.mark_bytes)
    decoder = codecs.getincrementaldecoder(encoding.name)()
    offset = encoding.mark_bytes
    while True:
        chunk = stream.read(_CHUNK_BYTES)
        held = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            at = offset - held + error.start
            raise undecodable(where, at, error.object[error.start : error.start + 1], encoding.name.upper()) from None
        offset += len(chunk)
        if text:
            yield text
        if not chunk:
            return


def iter_lines(stream: BinaryIO, encoding: Encoding, where: str) -> Iterator[tuple[int, str | BadBytes]]:
    """Numbered lines (from 1) without their "\\n"; a broken line of a byte-wise encoding is yielded as BadBytes."""
    if encoding.name.startswith(("utf-16", "utf-32")):
        yield from _lines_of_text(iter_text(stream, encoding, where), where)
        return
    stream.read(encoding.mark_bytes)
    number, offset, rest = 1, encoding.mark_bytes, b""
    while True:
        chunk = stream.read(_CHUNK_BYTES)
        block = rest + chunk
        cut = block.rfind(b"\n") + 1 if chunk else len(block)
        _check_line_length(len(block) - cut, number, where)
        block, rest = block[:cut], block[cut:]
        if block:
            lines = _decode_lines(block[:-1] if block.endswith(b"\n") else block, encoding, offset)
            yield from enumerate(lines, start=number)
            number += len(lines)
            offset += len(block)
        if not chunk:
            return


def _decode_lines(block: bytes, encoding: Encoding, offset: int) -> Sequence[str | BadBytes]:
    """A whole block at once; one by one only when something in it does not decode."""
    try:
        return block.decode(encoding.name).split("\n")
    except UnicodeDecodeError:
        pass  # the loop below finds the line
    lines: list[str | BadBytes] = []
    for raw in block.split(b"\n"):
        try:
            lines.append(raw.decode(encoding.name))
        except UnicodeDecodeError as error:
            lines.append(BadBytes(offset + error.start, raw))
        offset += len(raw) + 1
    return lines


def _lines_of_text(pieces: Iterator[str], where: str) -> Iterator[tuple[int, str]]:
    number, rest = 1, ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        _check_line_length(len(rest), number, where)
        for line in lines:
            yield number, line
            number += 1
    if rest:
        yield number, rest


def _check_line_length(length: int, number: int, where: str) -> None:
    if length > MAX_LINE_BYTES:
        raise UserError(
            where,
            f"line {number} is longer than {MAX_LINE_BYTES >> 20} MB",
            remedy="check --format: a file that is read line by line has no such lines",
        )
