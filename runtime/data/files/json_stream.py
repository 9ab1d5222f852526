"""JSON documents too large to hold, read value by value.

In:  the document's text in pieces.
Out: JsonStream, a cursor: it enters objects and arrays, and takes or skips the value it stands before.
The buffer holds little more than the value that is taken. What comes later is not known yet: a reader that needs a later key first
goes through the document twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ...errors import UserError
from .encoding import Encoding, iter_text
from .sources import Source

MAX_VALUE_CHARS = 64 << 20
_DECODER = json.JSONDecoder()
_AFTER_NUMBER = tuple(" \t\r\n,]}")
_BLANKS = re.compile(r"[ \t\r\n,]+")
_BRACKET = re.compile(r'([\[{])|([\]}])|"[^"\\]*(?:\\.[^"\\]*)*"|(")', re.DOTALL)
"""1: one more level; 2: one level less; neither: a whole string, which may hold brackets; 3: a string whose end is not read yet"""


def text_of(source: Source, encoding: Encoding) -> Callable[[], Iterator[str]]:
    """What gives the source's text in pieces, from its beginning each time it is called."""

    def pieces() -> Iterator[str]:
        with source.open() as stream:
            yield from iter_text(stream, encoding, source.name)

    return pieces


class JsonStream:
    """A cursor in a document."""

    def __init__(self, pieces: Iterator[str], where: str) -> None:
        self._buffer, self._at, self._pieces, self._where = "", 0, pieces, where

    def is_finished(self) -> bool:
        """Whether nothing but blanks is left."""
        while True:
            if blanks := _BLANKS.match(self._buffer, self._at):
                self._at = blanks.end()
            if self._at < len(self._buffer):
                return False
            if not self._more():
                return True

    def sign(self) -> str:
        """The first character of the value that begins here. UserError at the document's end."""
        if self.is_finished():
            raise UserError(self._where, "ends inside its JSON document", remedy="export it again; the file is cut off")
        return self._buffer[self._at]

    def finish(self) -> None:
        """UserError when there is more text after the document."""
        if not self.is_finished():
            self._refuse(f"there is more text after its end: {self._buffer[self._at : self._at + 20]!r}")

    def items(self) -> Iterator[None]:
        """Once for each item of the array that begins here, standing before it; take, skip or enter it, then continue."""
        self._enter("[")
        while self.sign() != "]":
            yield
        self._at += 1

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here, standing before the value; take, skip or enter it, then continue."""
        self._enter("{")
        while self.sign() != "}":
            key = self.value()
            if not isinstance(key, str) or self.sign() != ":":
                self._refuse("a key and its colon are missing")
            self._at += 1
            yield key
        self._at += 1

    def value(self) -> Any:
        """The whole value that begins here; tried again with twice the text while it may only be unfinished."""
        is_number = self.sign() in "-0123456789"
        value: Any = None
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
                # A number may continue in the next piece ("0" of "0.5", "0." of "0.5"): it is whole before a separator, or at the end.
                if not is_number or self._buffer[end : end + 1] in _AFTER_NUMBER:
                    self._at = end
                    return value
                is_whole, reason = end == len(self._buffer), "a number is cut off"
            except (ValueError, RecursionError) as error:
                is_whole, reason = False, str(error)
            wanted = 2 * (len(self._buffer) - self._at)
            is_last = not self._more()
            if is_last and is_whole:
                self._at = len(self._buffer)
                return value
            if is_last or len(self._buffer) > MAX_VALUE_CHARS:
                self._refuse(reason)
            while len(self._buffer) < wanted and self._more():
                pass

    def skip(self) -> None:
        """Go past the value that begins here without building it; what is inside is not checked."""
        if self.sign() not in "{[":
            self.value()
            return
        depth = 0
        while True:
            end = len(self._buffer)
            for bracket in _BRACKET.finditer(self._buffer, self._at):
                group = bracket.lastindex
                if group == 1:
                    depth += 1
                elif group == 2:
                    depth -= 1
                    if depth == 0:
                        self._at = bracket.end()
                        return
                elif group == 3:
                    end = bracket.start()
                    break
            self._at = end
            if not self._more() or len(self._buffer) > MAX_VALUE_CHARS:
                self._refuse("an array or an object does not end")

    def _enter(self, bracket: str) -> None:
        if self.sign() != bracket:
            self._refuse(f"{bracket} is missing")
        self._at += 1

    def _more(self) -> bool:
        """Drop what was used and add the next piece."""
        piece = next(self._pieces, "")
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        return bool(piece)

    def _refuse(self, reason: str) -> NoReturn:
        raise UserError(self._where, f"is not valid JSON ({reason})", remedy="export it again, or check --format")
