"""mft.pyz chat: talk to a version, or ask it one thing with --prompt."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from ..engine.decode import Decoder, Pick, greedy, sampler
from ..engine.dialogue import Dialogue
from ..errors import UserError
from ..message import Message
from ..session import Session

SUMMARY = "talk to the model, or ask it one thing with --prompt"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", metavar="TEXT", help="ask once and print the answer")
    parser.add_argument("--version", metavar="V", help='which version (default: the current one; "base" for the model as it came)')
    parser.add_argument("--max-tokens", type=int, metavar="N", help="longest answer (default: the scenario's)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: always the most likely token (default)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="for a temperature above 0")


def run(session: Session, options: argparse.Namespace) -> int:
    if options.temperature < 0 or options.seed < 0:
        raise UserError("chat", "a negative temperature or seed", "0 or more")
    if options.max_tokens is not None and options.max_tokens < 1:
        raise UserError("--max-tokens", f"{options.max_tokens}", "1 or more")
    if options.json and options.prompt is None:
        raise UserError("--json", "needs --prompt", remedy="chat --json --prompt TEXT")
    opened = session.open_version(options.version)
    with session.engines.open(opened.model, opened.adapter) as engine:
        talk = _Talk(session.dialogue, Decoder(engine), options.max_tokens or session.dialogue.decode_tokens, _pick(options))
        if options.prompt is None:
            return _converse(session, talk, opened.id)
        return _ask_once(session, talk, opened.id, options.prompt)


def _pick(options: argparse.Namespace) -> Pick:
    return sampler(options.temperature, options.seed) if options.temperature > 0 else greedy


class _Talk:
    """Turns a conversation into the next answer, piece by piece."""

    def __init__(self, dialogue: Dialogue, decoder: Decoder, max_new: int, pick: Pick) -> None:
        self.dialogue, self.decoder, self.max_new, self.pick = dialogue, decoder, max_new, pick
        self.tokens, self.seconds = 0, 0.0

    def answer(self, messages: Sequence[Message]) -> Iterator[str]:
        """Pieces of text, as they come."""
        yield from self.dialogue.tokenizer.decode_stream(self._counted(self.dialogue.prompt(messages)))

    def _counted(self, prompt: Sequence[int]) -> Iterator[int]:
        self.tokens, begun = 0, time.monotonic()
        for token in self.decoder.generate(prompt, self.max_new, self.dialogue.chat.stop_token_ids, self.pick):
            self.tokens += 1
            yield token
        self.seconds = time.monotonic() - begun


def _ask_once(session: Session, talk: _Talk, version: str, prompt: str) -> int:
    if not prompt.strip():
        raise UserError("--prompt", "is empty", remedy="chat --prompt 'your question'")
    answer = "".join(talk.answer([Message("user", prompt)])).strip()
    rate = talk.tokens / talk.seconds if talk.seconds else 0.0
    session.result({"answer": answer, "version": version, "tokens_per_second": round(rate, 2)}, answer)
    return 0


def _converse(session: Session, talk: _Talk, version: str) -> int:
    """Until the end of input, an empty /quit, or Ctrl-C at the prompt; /new forgets the conversation."""
    session.say(f"talking to {version}; /new starts over, /quit ends")
    messages: list[Message] = []
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if line == "/quit":
            return 0
        if line == "/new":
            messages.clear()
        elif line:
            _turn(session, talk, messages, line)


def _turn(session: Session, talk: _Talk, messages: list[Message], line: str) -> None:
    """One question and its answer; Ctrl-C cuts the answer short, a conversation that is too long starts over."""
    messages.append(Message("user", line))
    pieces: list[str] = []
    try:
        for piece in talk.answer(messages):
            pieces.append(piece)
            print(piece, end="", flush=True, file=sys.stdout)
    except KeyboardInterrupt:
        print(" …", end="")
    except UserError as error:
        session.say(f"{error}; the conversation starts over")
        messages.clear()
        return
    print()
    messages.append(Message("assistant", "".join(pieces).strip() or "…"))
