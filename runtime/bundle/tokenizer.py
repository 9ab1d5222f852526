"""Text to token ids and back, from the bundle's tokenizer.json.

In:  tokenizer.json (format of the `tokenizers` library) and text.
Out: token ids, with the characters each of them covers, or text again, also piece by piece while a model speaks.
Nothing is ever added: a beginning-of-sequence token is the chat format's business. Control tokens written in the text are
parsed as control tokens. A byte that the vocabulary has no token for is left out, as by every other user of these files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import tokenizers

from ..errors import UserError

_REPLACEMENT = "\ufffd"
_HELD_TOKENS_MAX = 8
"""A character has at most four bytes; a longer run that still ends in a replacement character is broken for good."""


class Tokenizer:
    """One model's tokenizer."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self.special_tokens: dict[str, int] = {token.content: index for index, token in sorted(added.items()) if token.special}
        """Control tokens by their text: a person's own text that contains one would be read as control."""

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read tokenizer.json. UserError if it is missing or not one."""
        path = Path(path)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(str(path), f"cannot be read ({error.strerror or error})", remedy="compile the bundle again") from error
        return cls.from_json(data, where=str(path))

    @classmethod
    def from_json(cls, data: bytes, where: str = "tokenizer.json") -> Tokenizer:
        """The same from bytes in memory."""
        try:
            return cls(tokenizers.Tokenizer.from_str(data.decode("utf-8")))
        except Exception as error:  # the library raises bare Exception for every malformed file
            reason = " ".join(str(error).split())
            raise UserError(where, f"is no tokenizer file ({reason})", remedy="compile the bundle again") from error

    @property
    def vocab_size(self) -> int:
        """Number of token ids, control tokens included."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def token_id(self, token: str) -> int | None:
        """The id of a token in its vocabulary spelling, None if there is none."""
        return self._backend.token_to_id(token)

    def encode(self, text: str) -> list[int]:
        """Token ids of the text in one piece."""
        return self._encoding(text).ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids, and for each the half-open range of characters it covers.

        Tokens that share one character (the bytes of an emoji) all cover that whole character.
        """
        encoding = self._encoding(text)
        return encoding.ids, encoding.offsets

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Text of the ids; bytes that are no UTF-8 become U+FFFD. `skip_special` leaves control tokens out."""
        return self._backend.decode([int(index) for index in ids], skip_special_tokens=skip_special)

    def decode_stream(self, ids: Iterable[int], *, skip_special: bool = True) -> Iterator[str]:
        """Yield text as ids arrive, holding back a character until all of its bytes are there.

        The pieces joined are `decode(ids, skip_special=…)`. The group before is decoded along with the new one, because a
        sentencepiece decoder drops the blank at the beginning of what it is given.
        """
        context: list[int] = []
        pending: list[int] = []
        for index in ids:
            pending.append(int(index))
            piece = self._piece(context, pending, skip_special)
            if piece.endswith(_REPLACEMENT) and len(pending) < _HELD_TOKENS_MAX:
                continue
            if piece:
                yield piece
                context, pending = pending, []
        if pending:
            rest = self._piece(context, pending, skip_special)
            if rest:
                yield rest

    def _piece(self, context: list[int], pending: list[int], skip_special: bool) -> str:
        before = self.decode(context, skip_special=skip_special) if context else ""
        return self.decode(context + pending, skip_special=skip_special)[len(before) :]

    def _encoding(self, text: str) -> tokenizers.Encoding:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(
                "text", f"half of a surrogate pair at character {error.start}", allowed="Unicode text", remedy="repair or drop this text"
            ) from error
        return self._backend.encode(text, add_special_tokens=False)
