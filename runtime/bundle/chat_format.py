"""Conversations to the model's own chat text and to labelled token ids.

In:  ChatFormat (compiled from the model's Jinja template, key "chat" of scenario.json) and messages.
Out: the text the template would give, which characters and tokens are to be learned.
The text between two turns depends on both of them, so it is kept per pair of neighbours; a pair that is absent is one the
model's template refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import UserError
from ..message import ROLES, Message
from ..plain_data import bind, plain
from .tokenizer import Tokenizer

START, END, GENERATE = "start", "end", "generate"
LAST_ASSISTANT = "last_assistant"
"""An assistant turn that ends the conversation: some templates write it differently from the earlier ones."""
ASSISTANT_SLOTS = ("assistant", LAST_ASSISTANT)
SLOTS = (*ROLES, LAST_ASSISTANT)

TextRule = Literal["keep", "strip", "lstrip", "rstrip", "strip_newlines", "lstrip_newlines", "rstrip_newlines"]
TEXT_RULES: Mapping[TextRule, Callable[[str], str]] = {
    "keep": lambda text: text,
    "strip": lambda text: text.strip(),
    "lstrip": lambda text: text.lstrip(),
    "rstrip": lambda text: text.rstrip(),
    "strip_newlines": lambda text: text.strip("\n"),
    "lstrip_newlines": lambda text: text.lstrip("\n"),
    "rstrip_newlines": lambda text: text.rstrip("\n"),
}
"""What a template does to a turn's text before it writes it."""


def turn_slots(roles: Sequence[str], add_generation_prompt: bool) -> list[str]:
    """`start`, the slot of each turn, then `end` or `generate`."""
    slots = [START, *roles, GENERATE if add_generation_prompt else END]
    if slots[-2] == "assistant":
        slots[-2] = LAST_ASSISTANT
    return slots


@dataclass(frozen=True)
class RenderedText:
    """A conversation as the model reads it."""

    text: str
    label_spans: tuple[tuple[int, int], ...]
    """Half-open character ranges to be learned: one for each trained assistant turn, from where the model
    speaks to its end token."""


@dataclass(frozen=True)
class EncodedConversation:
    """A conversation as token ids."""

    token_ids: np.ndarray
    """int32 [n]"""
    label_mask: np.ndarray
    """uint8 [n]; 1 where this token is to be predicted"""


@dataclass(frozen=True)
class ChatFormat:
    """The model's chat template as data."""

    between: Mapping[str, Mapping[str, str]]
    """between[slot][next slot]: the text from the end of one turn's text to the beginning of the next turn's.
    `start` stands before the first turn, `end` and `generate` (the assistant is to speak) after the last."""
    text_rules: Mapping[str, TextRule]
    """For each slot."""
    assistant_start: str
    """What the model must say before its answer's text (a blank in some templates, mostly nothing): the end of every text
    before an assistant turn, and not part of the prompt that asks for an answer."""
    assistant_end: str
    """What the model must say to end its turn: every text after an assistant turn begins with it."""
    stop_token_ids: tuple[int, ...]
    """Decoding stops at any of these."""
    bos_token_id: int | None
    """Stands once before everything; None if the text brings its own or the model has none."""
    default_system: str | None
    """The system text that the template writes by itself when there is no system turn."""
    reserved_texts: tuple[str, ...]
    """Texts that the template does not simply copy when a turn contains them (`</think>` in some): such a turn is refused."""
    pinned_date: str | None
    """The date that stands wherever the template would write today's, as YYYY-MM-DD; None if it writes none."""

    def __post_init__(self) -> None:
        slots = {START, END, GENERATE, *SLOTS}
        named = set(self.between) | {slot for row in self.between.values() for slot in row} | set(self.text_rules)
        if not named <= slots:
            raise UserError("chat format", f"unknown turn {sorted(named - slots)[0]!r}", allowed=", ".join(sorted(slots)))
        if not self.assistant_end or not self.stop_token_ids:
            raise UserError("chat format", "has no token that ends the assistant's turn", remedy="compile the bundle again")
        for slot, row in self.between.items():
            for following, text in row.items():
                if slot in ASSISTANT_SLOTS and not text.startswith(self.assistant_end):
                    raise UserError("chat format", f"an assistant turn is not followed by {self.assistant_end!r}")
                if following in ASSISTANT_SLOTS and not text.endswith(self.assistant_start):
                    raise UserError("chat format", f"an assistant turn does not begin with {self.assistant_start!r}")

    @property
    def supports_system(self) -> bool:
        """Whether a conversation may begin with a system turn."""
        return "system" in self.between.get(START, {})

    def render(
        self,
        messages: Sequence[Message],
        default_system: str | None = None,
        add_generation_prompt: bool = False,
        label_turns: Collection[int] | None = None,
    ) -> RenderedText:
        """The text of the conversation and the spans to be learned.

        default_system: put first when the conversation has no system turn of its own; without it the template's own
        default stands. label_turns: indices into `messages` of the assistant turns to learn, all of them if None.
        UserError when the template does not allow this order of roles, or a turn contains one of its reserved texts.
        """
        shift = 0
        if default_system is not None and (not messages or messages[0].role != "system"):
            messages, shift = [Message("system", default_system), *messages], 1
        slots = turn_slots([message.role for message in messages], add_generation_prompt)
        pieces: list[str] = [self._joint(slots, 0)]
        position = len(pieces[0])
        spans: list[tuple[int, int]] = []
        for index, message in enumerate(messages):
            text = self._text(index - shift, slots[index + 1], message.text)
            joint = self._joint(slots, index + 1)
            if message.role == "assistant" and (label_turns is None or index - shift in label_turns):
                spans.append((position - len(self.assistant_start), position + len(text) + len(self.assistant_end)))
            pieces += (text, joint)
            position += len(text) + len(joint)
        return RenderedText("".join(pieces), tuple(spans))

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        default_system: str | None = None,
        add_generation_prompt: bool = False,
        label_turns: Collection[int] | None = None,
    ) -> EncodedConversation:
        """Token ids of the whole text in one piece, as the template's users get them, and their label mask.

        A token is learned if all of its characters are: one that grew together with the text before the turn (a newline
        with a newline) belongs to the prompt, where the model is never asked for it.
        """
        rendered = self.render(messages, default_system, add_generation_prompt, label_turns)
        ids, offsets = tokenizer.encode_with_offsets(rendered.text)
        starts, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
        mask = np.zeros(len(ids), dtype=np.uint8)
        for first, last in rendered.label_spans:
            mask |= ((starts >= first) & (ends <= last)).astype(np.uint8)
        token_ids = np.array(ids, dtype=np.int32)
        if self.bos_token_id is not None and ids[:1] != [self.bos_token_id]:
            token_ids = np.concatenate([np.array([self.bos_token_id], np.int32), token_ids])
            mask = np.concatenate([np.zeros(1, np.uint8), mask])
        return EncodedConversation(token_ids, mask)

    def to_dict(self) -> dict[str, Any]:
        """For scenario.json; `from_dict` reads it back."""
        return plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ChatFormat:
        """UserError for whatever is not as declared here."""
        return bind(cls, data, "chat format", "compile the bundle again")

    def _text(self, index: int, slot: str, text: str) -> str:
        for reserved in self.reserved_texts:
            if reserved in text:
                raise UserError(
                    f"turn {index + 1}", f"contains {reserved!r}, which the model's chat template treats in its own way", remedy="leave this turn out"
                )
        return TEXT_RULES[self.text_rules[slot]](text)

    def _joint(self, slots: Sequence[str], index: int) -> str:
        before, after = slots[index], slots[index + 1]
        joint = self.between.get(before, {}).get(after)
        if joint is None:
            allowed = ", ".join(slot for slot in self.between.get(before, {}) if slot != LAST_ASSISTANT)
            raise UserError(
                f"turn {index + 1}", f"the model's chat template does not allow {after} after {before}", allowed=allowed or "no further turn"
            )
        return joint
