"""mft.pyz ingest DATA…: people's files into a training cache, with an account of what was kept, dropped and why."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..ingest import add_data_arguments, run_ingest
from ..session import Session

SUMMARY = "read files into a training cache and report what was kept, dropped and why"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA", help="files, folders or zip archives")
    add_data_arguments(parser)


def run(session: Session, options: argparse.Namespace) -> int:
    with session.locked("ingest"):
        report = run_ingest(session, options.data, options)
    session.result(report.as_json(), report.as_text())
    return 0
