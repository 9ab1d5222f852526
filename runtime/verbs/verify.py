"""mft.pyz verify: measure a version against its parent again, on held-out text, test conversations and base-ability probes."""

from __future__ import annotations

import argparse

from ..errors import NotPromoted, UserError
from ..evaluation import Answer
from ..session import Session
from ..tune import heldout_of, yardstick_of
from ..verification import Judgement, judge, measure
from ..versions import BASE

SUMMARY = "measure a version against the one it was made from"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="VERSION", help="which one (default: the current one)")


def run(session: Session, options: argparse.Namespace) -> int:
    opened = session.open_version(options.version)
    if opened.id == BASE:
        raise UserError("verify", "the base has no parent to be compared with", remedy="tune first, or name a version with --version")
    record = session.versions.record(opened.id)
    parent = session.open_version(record.parent)
    yardstick = yardstick_of(session, heldout_of(session, record.data_fingerprint))
    session.say(f"measuring {parent.id}")
    before = measure(session, parent, yardstick, session.say)
    session.say(f"measuring {opened.id}")
    judgement = judge(before, measure(session, opened, yardstick, session.say), None)
    document = {
        "version": opened.id, "parent": parent.id, "verdict": judgement.verdict, "reasons": list(judgement.reasons),
        "before": judgement.before.as_json(), "after": judgement.after.as_json(),
    }  # fmt: skip
    session.result(document, _page(opened.id, parent.id, judgement))
    return NotPromoted.exit_code if judgement.verdict == "keep" else 0


def _page(version: str, parent: str, judgement: Judgement) -> str:
    lines = [f"{version} against {parent}: {judgement.verdict}", *(f"  {reason}" for reason in judgement.reasons)]
    for before, after in zip(judgement.before.answers, judgement.after.answers):
        lines += ["", f"? {after.question}", f"  {parent}: {before.text}", f"  {version}: {after.text}", f"  {_entities(after)}"]
    return "\n".join(lines)


def _entities(answer: Answer) -> str:
    found = ", ".join(answer.found) or "none"
    return f"entities found: {found}" + (f"; missed: {', '.join(answer.missed)}" if answer.missed else "")
