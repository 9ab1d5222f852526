"""mft.pyz verify: measure a version against its parent again, on held-out text, test conversations and base-ability questions."""

from __future__ import annotations

import argparse

from ..errors import NotPromoted, UserError
from ..session import Session
from ..verify.evaluation import Answer
from ..verify.verification import Examiner, Judgement, judge
from ..verify.versions import gather_tests, heldout_of
from ..versions.record import BASE

SUMMARY = "measure a version against the one it was made from"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", metavar="VERSION", help="which one (default: the current one)")


def run(session: Session, options: argparse.Namespace) -> int:
    opened = session.open_version(options.version)
    if opened.id == BASE:
        raise UserError("verify", "the base has no parent to be compared with", remedy="tune first, or name a version with --version")
    record = session.versions.record(opened.id)
    parent = session.open_version(record.parent)
    heldout = heldout_of(session.workspace.cache_dir, record.data_fingerprint)
    tests, notices = gather_tests(session.bundle, session.dialogue, session.plan.model.context_tokens, heldout)
    session.notices(notices)
    examiner = Examiner(session.engines, session.dialogue, tests, session.say)
    judgement = judge(examiner.scores(parent), examiner.scores(opened), None)
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
