"""One call that ingests texts or files with the small tokenizer of chatml.py, and what tests ask of the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mobilefinetuner.runtime.data import IngestOptions, IngestReport, TrainingCache, ingest
from mobilefinetuner.runtime.data.files.encoding import HEAD_BYTES
from mobilefinetuner.runtime.data.readers.detect import detect
from mobilefinetuner.runtime.data.readers.format import ReadOptions
from mobilefinetuner.runtime.data.reading import Reading, sources_under
from mobilefinetuner.runtime.message import Conversation

from tests.support.chatml import byte_tokenizer, chatml, scenario

CASES = Path(__file__).parent.parent / "cases" / "data"


def row(*texts: str) -> dict[str, Any]:
    """A messages row: user, assistant, user, …"""
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]}


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n" for line in rows), encoding="utf-8")
    return path


def read(path: Path, **options: Any) -> tuple[list[Conversation], list[Any], IngestReport]:
    """Conversations and everything else that the readers find, without rules."""
    report = IngestReport()
    settings = options.pop("settings", {})
    items = list(Reading(sources_under([path]), scenario(**settings), ReadOptions(**options), report).items())
    return [item for item in items if isinstance(item, Conversation)], [item for item in items if not isinstance(item, Conversation)], report


def turns(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in conversation.messages]


def take_in(
    path: Path | list[Path],
    cache_dir: Path,
    rules: dict | None = None,
    window_tokens: int = 512,
    read_options: dict | None = None,
    max_drop_share: float | None = 1.0,
    settings: dict | None = None,
    **options: Any,
) -> IngestReport:
    paths = path if isinstance(path, list) else [path]
    return ingest(
        paths,
        scenario(window_tokens, rules, **(settings or {})),
        byte_tokenizer(),
        chatml(),
        cache_dir,
        IngestOptions(ReadOptions(**(read_options or {})), max_drop_share, **options),
    )


def cache_of(report: IngestReport) -> TrainingCache:
    return TrainingCache.load(report.cache)


def format_of(path: Path) -> str:
    found = detect(sources_under([path])[0])
    assert found is not None
    return found.format.name


__all__ = ["CASES", "HEAD_BYTES", "cache_of", "format_of", "jsonl", "read", "row", "take_in", "turns"]
