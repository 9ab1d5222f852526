"""mft.pyz audit: what was done in this workspace, and with --verify whether the log was tampered with."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..errors import UserError
from ..session import Session
from ..storage.audit import AuditRecord, AuditVerdict

SUMMARY = "print what was done here; --verify proves that nothing was changed or removed"
MAX_VALUE_CHARACTERS = 60


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verify", action="store_true", help="walk the chain of checksums; exit code 2 when it is broken")
    parser.add_argument("--last", type=int, metavar="N", help="only the newest N records")


def run(session: Session, options: argparse.Namespace) -> int:
    if options.last is not None and options.last < 1:
        raise UserError("--last", f"{options.last}", "1 or more")
    verdict = session.audit.verify()
    if options.verify:
        return _report(session, verdict)
    records = list(session.audit.records())[-(options.last or 0) :]
    if not verdict.holds:
        session.say(f"note: the log is damaged: {verdict.fault}")
    document = {"records": [{"number": r.number, "utc": r.utc, "event": r.event, "facts": dict(r.facts)} for r in records], "holds": verdict.holds}
    session.result(document, "\n".join(map(_line, records)) or "nothing was done in this workspace yet")
    return 0


def _report(session: Session, verdict: AuditVerdict) -> int:
    document = {"holds": verdict.holds, "records": verdict.records, "head": verdict.head, "fault": verdict.fault, "torn_bytes": verdict.torn_bytes}
    torn = f"; an unfinished last line of {verdict.torn_bytes} bytes is dropped by the next command" if verdict.torn_bytes else ""
    if verdict.holds:
        session.result(document, f"the chain holds: {verdict.records} records, head {verdict.head}{torn}")
        return 0
    session.result(document, f"the chain is broken: {verdict.fault}; the {verdict.records} records before it hold")
    return UserError.exit_code


def _line(record: AuditRecord) -> str:
    facts = ", ".join(f"{name} {_value(value)}" for name, value in record.facts.items())
    return f"{record.utc}  {record.event.replace('_', ' '):<18} {facts}".rstrip()


def _value(value: Any) -> str:
    """Short: checksums to their first 12 digits, what is long to its beginning."""
    if isinstance(value, str):
        is_checksum = len(value) == 64 and set(value) <= set("0123456789abcdef")
        return value[:12] + "…" if is_checksum else value
    if isinstance(value, float):
        return f"{value:.4g}"
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"
