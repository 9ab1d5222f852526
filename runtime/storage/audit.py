"""The audit log: what was read, dropped, trained, throttled, merged, verified, promoted and rolled back.

In:  one event with its facts at a time.
Out: audit.jsonl, one record a line, each holding the sha256 of the line before it and of itself.
Records are only ever appended. A kill can tear the last line (it then lacks its newline): the next append writes the
intact part to a new file, puts that in its place and records how much was torn. Text that was trained on has no place
here: values are numbers, names and reasons of limited length.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from .durable import READ_CHUNK_BYTES, DurableFile, append_line, canonical_json

NO_LINE = "0" * 64
"""what the first record holds in place of the line before it"""
MAX_TEXT_CHARACTERS = 300
TEXT_KEYS = frozenset({"text", "content", "prompt", "answer", "message", "messages", "excerpt", "raw", "conversation"})
TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class AuditRecord:
    """One line of the log."""

    number: int
    """line number, from 1"""
    utc: str
    event: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class AuditVerdict:
    """Whether the chain holds."""

    records: int
    """intact records before the first fault"""
    head: str
    """sha256 of the last intact line; NO_LINE for an empty log"""
    fault: str
    """empty when the chain holds; else the line and what is wrong with it"""
    torn_bytes: int
    """of an unfinished last line, which a kill explains and the next append repairs"""

    @property
    def holds(self) -> bool:
        return not self.fault


class AuditLog:
    """The log at `path`; appending needs the workspace's lock."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path, self._now = Path(path), now

    def append(self, event: str, **facts: Any) -> None:
        """Add one record and flush it. Facts are JSON values without any trained text."""
        _refuse_text(facts)
        before, torn_bytes = self._repair()
        if torn_bytes:
            before = self._append_record(before, "torn_line_dropped", {"torn_bytes": torn_bytes})
        self._append_record(before, event, facts)

    def _append_record(self, before: str, event: str, facts: Mapping[str, Any]) -> str:
        utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now()))
        body = {"before": before, "event": event, "facts": dict(facts), "utc": utc}
        line = canonical_json({**body, "sha256": hashlib.sha256(canonical_json(body)).hexdigest()})
        append_line(self.path, line)
        return hashlib.sha256(line).hexdigest()

    def _repair(self) -> tuple[str, int]:
        """sha256 of the last whole line, and how many bytes of an unfinished one were dropped after it."""
        try:
            size_bytes = self.path.stat().st_size
        except FileNotFoundError:
            return NO_LINE, 0
        last, torn_bytes = _last_line(self.path, size_bytes)
        if torn_bytes:
            _copy_without_tail(self.path, size_bytes - torn_bytes)
        return (hashlib.sha256(last).hexdigest() if last is not None else NO_LINE), torn_bytes

    def records(self) -> Iterator[AuditRecord]:
        """The intact records in order; what is not a record is passed over, `verify` names it."""
        for number, line, is_whole in self._lines():
            body = _intact(line) if is_whole else None
            if body is not None:
                yield AuditRecord(number, body["utc"], body["event"], body["facts"])

    def verify(self) -> AuditVerdict:
        """Walk the chain from the first line on."""
        before, count, fault, torn_bytes = NO_LINE, 0, "", 0
        for number, line, is_whole in self._lines():
            if not is_whole:
                torn_bytes = len(line)
                continue
            body = _intact(line)
            if body is None:
                fault = f"line {number} was changed or damaged"
            elif body["before"] != before:
                fault = f"line {number} does not follow the line before it: something was removed, added or moved"
            if fault:
                break
            before, count = hashlib.sha256(line).hexdigest(), count + 1
        return AuditVerdict(count, before, fault, torn_bytes)

    def _lines(self) -> Iterator[tuple[int, bytes, bool]]:
        """Number, bytes without newline, and whether the newline was there."""
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    yield number, line.removesuffix(b"\n"), line.endswith(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise UserError(str(self.path), f"cannot be read ({error.strerror})") from None


def _refuse_text(facts: Mapping[str, Any]) -> None:
    """A programming error, found by the first test that runs the caller."""
    for key, value in facts.items():
        if key in TEXT_KEYS:
            raise ValueError(f"audit fact {key!r}: trained text is not written to the audit log")
        if isinstance(value, str) and len(value) > MAX_TEXT_CHARACTERS:
            raise ValueError(f"audit fact {key!r} has {len(value)} characters, {MAX_TEXT_CHARACTERS} are allowed")
        if isinstance(value, Mapping):
            _refuse_text(value)
        elif isinstance(value, (list, tuple)):
            for item in value:
                _refuse_text({f"{key}[]": item})


def _intact(line: bytes) -> dict[str, Any] | None:
    """The record's body when its own checksum holds."""
    try:
        body = json.loads(line)
        claimed = body.pop("sha256")
        is_intact = claimed == hashlib.sha256(canonical_json(body)).hexdigest() and set(body) == {"before", "event", "facts", "utc"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return body if is_intact else None


def _last_line(path: Path, size_bytes: int) -> tuple[bytes | None, int]:
    """The last line that has its newline (None if there is none) and the bytes after it."""
    tail, span = b"", TAIL_BYTES
    with path.open("rb") as file:
        while True:
            file.seek(max(0, size_bytes - span))
            tail = file.read()
            if tail.count(b"\n") >= 2 or span >= size_bytes:
                break
            span *= 2
    whole, newline, torn = tail.rpartition(b"\n")
    return (whole.rpartition(b"\n")[2] if newline else None), len(torn)


def _copy_without_tail(path: Path, keep_bytes: int) -> None:
    with DurableFile(path, expected_bytes=keep_bytes) as target, path.open("rb") as source:
        while keep_bytes:
            piece = source.read(min(READ_CHUNK_BYTES, keep_bytes))
            if not piece:
                raise UserError(str(path), "shrank while it was being repaired", remedy="run the command again")
            target.write(piece)
            keep_bytes -= len(piece)
