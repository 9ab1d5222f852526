"""The replay set of a base model: what the model itself answers to general questions, sampled once and kept.

In:  the base and its chat format, the question lists of the scenario's languages.
Out: replay.jsonl, one conversation a line.
Answers are drawn at a temperature below 1 and not the likeliest ones, so that they show the model's whole manner of speaking and not
its favourite mistakes. A language's part depends on the base and the questions alone and is kept in the cache under a hash of both;
that of a model in templates/replay is taken from there.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime.bundle.chat_format import ChatFormat
from ...runtime.bundle.tokenizer import Tokenizer
from ...runtime.engine.decode import Decoder, sampler
from ...runtime.errors import UserError
from ...runtime.gguf.file import GgufFile
from ...runtime.message import Message
from ...runtime.storage.durable import sha256_of_file
from ...runtime.train.replay import load_conversations
from ..model.source import cache_directory
from .host_engine import host_engine

SET_VERSION = 1
"""raised whenever the same questions would be answered differently"""
TEMPERATURE, SEED = 0.8, 0
MAX_TOKENS = 128
"""of a conversation as the model reads it, without a scenario's system prompt"""
PROMPT_BUCKET, CONTEXT_TOKENS = "1x64", 192
SENTENCE_END = re.compile(r"(?s).*[.!?。！？…](?=\s|$|[^\s\d])")
REPORT_EVERY = 32
QUESTIONS_FILE = "replay_prompts.{}.txt"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Base:
    """The model that is asked."""

    model: GgufFile
    """as the bundle has it"""
    source_sha256: str
    """of the file that it was made from"""
    tokenizer: Tokenizer
    chat: ChatFormat


def replay_set(base: Base, languages: Sequence[str], most_per_language: int, progress: Progress) -> bytes:
    """The file's content. UserError when there is no list of questions in any of the languages."""
    asked = load_questions(languages, most_per_language)
    shipped = _shipped(base.source_sha256)
    content = "".join(_language_set(base, language, questions, shipped, progress) for language, questions in asked.items()).encode()
    if not content:
        raise UserError("train.replay_share", "the base answers none of the general questions", remedy="train.replay_share=0")
    return content


def _language_set(base: Base, language: str, questions: Sequence[str], shipped: Mapping[str, str], progress: Progress) -> str:
    """The part of one language: shipped, or from the cache when it was made before, or sampled now. The lines are the same."""
    ready = [shipped[question] for question in questions if question in shipped]
    if ready:
        return "".join(ready)
    facts = [SET_VERSION, sha256_of_file(base.model.path), TEMPERATURE, SEED, MAX_TOKENS, questions]
    kept = cache_directory() / "replay" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}.jsonl"
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    progress(f"    asking the base {len(questions)} general questions ({language}), once for this model")
    content = "".join(map(_line, _conversations(base, questions, progress)))
    _keep(kept, content.encode())
    return content


def shipped_set(source_sha256: str) -> Path:
    """Where the set of a model that was asked before it was shipped would be."""
    return _templates() / "replay" / f"{source_sha256[:16]}.jsonl"


def _shipped(source_sha256: str) -> dict[str, str]:
    """The line of each question in the shipped set; empty when there is no such set."""
    path = shipped_set(source_sha256)
    return {c[0].text: _line(c) for c in load_conversations(path)} if path.is_file() else {}


def _templates() -> Path:
    return Path(str(importlib.resources.files("mobilefinetuner.templates")))


def load_questions(languages: Sequence[str], most_per_language: int) -> dict[str, list[str]]:
    """By language, the first ones of its list: one question a line, blank lines and those with # left out."""
    folder = _templates()
    questions: dict[str, list[str]] = {}
    for language in languages:
        path = folder / QUESTIONS_FILE.format(language)
        lines = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")] if path.is_file() else []
        questions[language] = [line for line in lines if line and not line.startswith("#")][:most_per_language]
    if not any(questions.values()):
        known = sorted(path.name.split(".")[1] for path in folder.glob(QUESTIONS_FILE.format("*")))
        raise UserError("train.replay_share", f"there are no general questions in {', '.join(languages)}", ", ".join(known),
                        "train.replay_share=0, or one of these among scenario.languages")  # fmt: skip
    return questions


def _conversations(base: Base, questions: Sequence[str], progress: Progress) -> list[tuple[Message, Message]]:
    """Each question with its answer; those that the model leaves unanswered are left out."""
    answered, chat, tokenizer = [], base.chat, base.tokenizer
    with host_engine(base.model, PROMPT_BUCKET, CONTEXT_TOKENS) as engine:
        decoder = Decoder(engine)
        for number, question in enumerate(questions, 1):
            asked = Message("user", question)
            ids = chat.encode(tokenizer, [asked], add_generation_prompt=True).token_ids.tolist()
            room = MAX_TOKENS - len(ids)
            answer = list(decoder.generate(ids, room, chat.stop_token_ids, sampler(TEMPERATURE, SEED + number))) if room > 0 else []
            text = tokenizer.decode(answer, skip_special=True).strip()
            text = whole_sentences(text) if len(answer) == room else text
            if text and not any(reserved in text for reserved in chat.reserved_texts):
                answered.append((asked, Message("assistant", text)))
            if number % REPORT_EVERY == 0:
                progress(f"    {number} of {len(questions)}")
    return answered


def whole_sentences(text: str) -> str:
    """An answer that was cut short, up to its last full sentence if it has one."""
    found = SENTENCE_END.match(text)
    return found.group() if found else text


def _line(conversation: Sequence[Message]) -> str:
    document = {"messages": [{"role": m.role, "content": m.text} for m in conversation]}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _keep(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError as error:
        raise UserError(str(path), f"cannot be written ({error.strerror})", remedy="free the space, or set MFT_CACHE to another folder") from None
