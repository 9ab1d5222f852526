"""A conversation to samples that fit the window: token ids and label mask, nothing lost, nothing trained twice.

In:  a Conversation, the tokenizer, the chat format, the scenario.
Out: Encoded samples of at most window_tokens, each with a label.
Dialogues are cut before user turns; only an answer that is too long by itself is cut inside, at sentence ends, and then by
slicing its token ids, so that the parts' new tokens put together are exactly the whole answer's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..bundle.chat_format import ChatFormat
from ..bundle.tokenizer import Tokenizer
from ..errors import UserError
from ..message import Conversation, Message
from .scenario import Scenario
from .text.sentences import clause_ends, sentence_ends

OVERLAP_SLACK = 1.2
"""Whole sentences rarely add up to the nominal overlap: up to this much more is taken (12.5 % becomes at most 15 %)."""
_HEADER_SHARE_MAX = 0.5
"""A prompt may take this much of the window; of a longer one the end is kept, which is what the answer follows."""


@dataclass(frozen=True)
class Encoded:
    """One sample before it has a place in the cache."""

    token_ids: np.ndarray
    """int32 [n]"""
    label_mask: np.ndarray
    """uint8 [n]"""


class Splitter:
    """Turns conversations into samples for one scenario, tokenizer and chat format."""

    def __init__(self, scenario: Scenario, tokenizer: Tokenizer, chat: ChatFormat) -> None:
        self._scenario, self._tokenizer, self._chat = scenario, tokenizer, chat
        self._window = scenario.window_tokens
        self._overlap = int(scenario.overlap_share * OVERLAP_SLACK * scenario.window_tokens)
        self._default_system = scenario.system_prompt if scenario.system_prompt and chat.supports_system else None
        self.prompts_trimmed = 0
        """how many prompts were too long and lost their beginning"""
        exchange = [Message("user", "."), Message("assistant", ".")]
        more = len(self._encode([*exchange, *exchange]).token_ids) - len(self._encode(exchange).token_ids)
        self._turn_tokens = max(0, more // 2 - len(tokenizer.encode(".")))
        """what the template writes around each turn's text"""
        header = len(self._encode([Message("user", ".")], generate=True).token_ids)
        if header > _HEADER_SHARE_MAX * self._window:
            raise UserError(
                "system_prompt",
                f"takes {header} of the window's {self._window} tokens",
                allowed=f"at most {int(_HEADER_SHARE_MAX * self._window)}",
                remedy="shorten it or raise window_tokens",
            )

    def samples(self, conversation: Conversation) -> list[Encoded]:
        """The conversation's samples in order; none if nothing in it is to be learned.

        UserError when the model's chat template refuses the order of its turns.
        """
        messages = self.prepared(conversation)
        if not any(_is_trained(message) for message in messages):
            return []
        whole = self._encode(messages)
        if len(whole.token_ids) <= self._window:
            return [whole] if whole.label_mask.any() else []
        system = [message for message in messages[:1] if message.role == "system"]
        return self._pieces(system, exchanges(messages[len(system) :]))

    def prepared(self, conversation: Conversation) -> list[Message]:
        """The turns as the chat template can write them: note prompt added, tool turns merged, turns after the last answer cut off."""
        messages = list(conversation.messages)
        if messages and messages[0].metadata.get("note"):
            messages.insert(0, Message("user", self._note_prompt(conversation)))
        if messages and messages[0].role == "system" and not self._chat.supports_system:
            messages = _system_into_user(messages)
        if "tool" not in self._chat.between:
            messages = _tools_into_user(messages)
        while messages and not _is_trained(messages[-1]):
            messages.pop()
        return self._in_allowed_order(messages)

    def _in_allowed_order(self, messages: list[Message]) -> list[Message]:
        """Where the template wants alternating turns: neighbours of one role joined, an answer to nothing left out."""
        allowed: list[Message] = []
        for message in messages:
            before = allowed[-1].role if allowed else "start"
            if message.role == before and before not in self._chat.between.get(before, {}):
                message = Message(message.role, f"{allowed.pop().text}\n{message.text}", message.metadata)
            elif message.role == "assistant" and before in ("start", "system") and not self._may_open(before):
                continue
            allowed.append(message)
        return allowed

    def _may_open(self, before: str) -> bool:
        """Whether an assistant turn may follow at the beginning, behind the system turn that will stand there."""
        return "assistant" in self._chat.between.get("system" if self._default_system else before, {})

    def _note_prompt(self, conversation: Conversation) -> str:
        rules, title = self._scenario.rules, str(conversation.metadata.get("title") or "")
        template = rules.note_prompt_titled if title else rules.note_prompt_untitled
        return template.replace("{title}", title).replace("{author}", str(conversation.metadata.get("author") or ""))

    def _encode(self, messages: Sequence[Message], generate: bool = False, context: int = 0) -> Encoded:
        """`context` leading turns are only read, not learned."""
        turns = [n for n, message in enumerate(messages) if n >= context and _is_trained(message)]
        encoded = self._chat.encode(self._tokenizer, messages, self._default_system, generate, turns)
        return Encoded(encoded.token_ids, encoded.label_mask)

    def _pieces(self, system: list[Message], parts: list[list[Message]]) -> list[Encoded]:
        """Greedy: as many exchanges as fit, preceded by as many earlier ones as the overlap allows."""
        sizes = [sum(len(self._tokenizer.encode(message.text)) + self._turn_tokens for message in part) for part in parts]
        samples: list[Encoded] = []
        first = 0
        while first < len(parts):
            before = self._context_start(sizes, first)
            end, fitted = self._largest_fit(system, parts, sizes, before, first)
            if fitted is None:
                samples += self._split_exchange(system, parts[first])
                end = first + 1
            elif fitted.label_mask.any():
                samples.append(fitted)
            first = end
        return samples

    def _context_start(self, sizes: list[int], first: int) -> int:
        start, used = first, 0
        while start > 0 and used + sizes[start - 1] <= self._overlap:
            start -= 1
            used += sizes[start]
        return start

    def _largest_fit(
        self, system: list[Message], parts: list[list[Message]], sizes: list[int], before: int, first: int
    ) -> tuple[int, Encoded | None]:
        """End of the longest run of exchanges from `first` that fits behind its context; context gives way first."""
        for start in dict.fromkeys((before, first)):
            end, used = first, sum(sizes[start:first])
            while end < len(parts) and (end == first or used + sizes[end] <= self._window):
                used += sizes[end]
                end += 1
            context = len(system) + sum(map(len, parts[start:first]))
            while end > first:
                piece = self._encode([*system, *(message for part in parts[start:end] for message in part)], context=context)
                if len(piece.token_ids) <= self._window:
                    return end, piece
                end -= 1
        return first, None

    def _split_exchange(self, system: list[Message], turns: list[Message]) -> list[Encoded]:
        """An exchange that is too long: each of its answers by itself, behind what was asked."""
        samples: list[Encoded] = []
        for number, message in enumerate(turns):
            if _is_trained(message):
                samples += self._split_answer(system, turns[:number], message)
        return samples

    def _split_answer(self, system: list[Message], prompt: list[Message], answer: Message) -> list[Encoded]:
        prompt = self._trimmed(system, prompt)
        whole = self._encode([*system, *prompt, answer], context=len(system) + len(prompt))
        labelled = np.flatnonzero(whole.label_mask)
        header, body = whole.token_ids[: labelled[0]], whole.token_ids[labelled[0] : labelled[-1] + 1]
        room = self._window - len(header)
        overlap = min(self._overlap, room // 2)
        bounds = self._atoms(answer.text, body, room - overlap)
        samples: list[Encoded] = []
        first = 0
        while first < len(bounds) - 1:
            start = first
            while samples and start > 0 and bounds[first] - bounds[start - 1] <= overlap:
                start -= 1
            end = first + 1
            while end < len(bounds) - 1 and bounds[end + 1] - bounds[start] <= room:
                end += 1
            ids = np.concatenate([header, body[bounds[start] : bounds[end]]])
            mask = np.zeros(len(ids), np.uint8)
            mask[len(header) + bounds[first] - bounds[start] :] = 1
            samples.append(Encoded(ids, mask))
            first = end
        return samples

    def _atoms(self, text: str, body: np.ndarray, room: int) -> list[int]:
        """Token positions in `body` between which nothing is cut: sentences, or clauses of one too long, or token runs."""
        ids, offsets = self._tokenizer.encode_with_offsets(text)
        if not np.array_equal(body[: len(ids)], ids):  # the template changed the text's edges: cut by tokens alone
            return _token_runs(0, len(body), room)
        starts = np.array([start for start, _ in offsets])
        bounds = [0]
        for stop in _token_stops(starts, sentence_ends(text), len(body)):
            if stop - bounds[-1] <= room:
                bounds.append(stop)
                continue
            clauses = [at for at in _token_stops(starts, clause_ends(text), len(body)) if bounds[-1] < at <= stop]
            for clause in dict.fromkeys((*clauses, stop)):
                bounds += _token_runs(bounds[-1], clause, room)[1:]
        return bounds

    def _trimmed(self, system: list[Message], prompt: list[Message]) -> list[Message]:
        """The prompt with the beginnings of its longest turns cut off, so that the answer has room."""
        limit = int(_HEADER_SHARE_MAX * self._window)
        prompt = list(prompt)
        trimmed = False
        while prompt and (excess := len(self._encode([*system, *prompt], generate=True).token_ids) - limit) > 0:
            longest = max(range(len(prompt)), key=lambda n: len(prompt[n].text))
            ids, offsets = self._tokenizer.encode_with_offsets(prompt[longest].text)
            keep_from = offsets[min(excess, len(ids) - 1)][0] if ids else 0
            text = prompt[longest].text
            cut = next((end for end in sentence_ends(text) if keep_from <= end < len(text)), keep_from or len(text))
            prompt[longest] = Message(prompt[longest].role, text[cut:], prompt[longest].metadata)
            trimmed = True
            if not text:
                break
        self.prompts_trimmed += trimmed
        return prompt


def exchanges(messages: Sequence[Message]) -> list[list[Message]]:
    """Turns grouped so that each group but the first begins with a user turn after an assistant's: the places to cut."""
    groups: list[list[Message]] = []
    for message in messages:
        if not groups or (message.role == "user" and groups[-1][-1].role == "assistant"):
            groups.append([])
        groups[-1].append(message)
    return groups


def _token_stops(starts: np.ndarray, offsets: Sequence[int], n_tokens: int) -> list[int]:
    """Character offsets as token positions: a token that reaches over a sentence's end (a full stop with its blank) stays with it,
    and what follows the text (its end token) belongs to the last piece."""
    stops = np.searchsorted(starts, offsets, side="left").tolist()
    return [stop for stop in dict.fromkeys([*stops[:-1], n_tokens]) if stop > 0]


def _token_runs(first: int, last: int, room: int) -> list[int]:
    return [*range(first, last, max(1, room)), last]


def _is_trained(message: Message) -> bool:
    return message.role == "assistant" and message.metadata.get("train", True)


def _system_into_user(messages: list[Message]) -> list[Message]:
    """For templates without a system turn: its text opens the first user turn, as such models were taught."""
    system, *rest = messages
    if not rest or rest[0].role != "user":
        return rest
    return [Message("user", f"{system.text}\n\n{rest[0].text}", rest[0].metadata), *rest[1:]]


def _tools_into_user(messages: list[Message]) -> list[Message]:
    """For templates without tool turns: calls and results become part of what the next answer reads, never of what is learned."""
    folded: list[Message] = []
    for message in messages:
        if message.role == "tool":
            label = "tool call" if message.metadata.get("call") else "tool result"
            message = Message("user", f"[{label}] {message.text}")
        if folded and folded[-1].role == message.role == "user":
            message = Message("user", f"{folded.pop().text}\n{message.text}")
        folded.append(message)
    return folded
