"""mft.pyz rollback [VERSION]: switch to the version before, or to a named one, at once."""

from __future__ import annotations

import argparse

from ..session import Session

SUMMARY = "switch to the version before the current one, or to a named one"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", nargs="?", metavar="VERSION", help='a version, or "base" for the model as it came')


def run(session: Session, options: argparse.Namespace) -> int:
    with session.locked("rollback"):
        switch = session.versions.rollback(options.version)
        session.audit.append("rolled_back", before=switch.before, after=switch.after)
    session.notices(switch.notices)
    session.result({"before": switch.before, "current": switch.after}, f"current: {switch.after} (was {switch.before})")
    return 0
