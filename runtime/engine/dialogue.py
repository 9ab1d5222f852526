"""How a model is talked to: the scenario's system prompt, the model's chat format and its tokenizer in one place.

In:  messages that end with the user's turn.
Out: token ids to be answered, and the answer's text.
Chat, verification and training see the same system prompt, because all of them come through here or through ChatFormat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..bundle.chat_format import ChatFormat
from ..bundle.tokenizer import Tokenizer
from ..message import Message
from .decode import Decoder


@dataclass(frozen=True)
class Dialogue:
    """One way of talking, the same for every version."""

    tokenizer: Tokenizer
    chat: ChatFormat
    system_prompt: str
    """empty: the template's own default, if it has one"""
    decode_tokens: int
    """longest answer"""

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation that the assistant answers next, under the scenario's system prompt."""
        system = self.system_prompt or None
        return self.chat.encode(self.tokenizer, messages, default_system=system, add_generation_prompt=True).token_ids.tolist()

    def answer(self, decoder: Decoder, messages: Sequence[Message]) -> str:
        """The greedy answer, as text."""
        ids = decoder.generate(self.prompt(messages), self.decode_tokens, self.chat.stop_token_ids)
        return self.tokenizer.decode(list(ids), skip_special=True).strip()
