"""The part of ingest that the verbs ingest and tune share: options, progress, the audit record.

In:  the paths and the options that were typed.
Out: IngestReport; the training cache is in the workspace.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .data.detect import FORMATS
from .data.encoding import FORCED
from .data.ingest import IngestOptions, ingest
from .data.reading import ReadOptions
from .data.report import IngestReport
from .errors import UserError
from .session import Session


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """What a person may say about their data."""
    parser.add_argument("--format", choices=FORMATS, metavar="NAME", help=f"how the files are laid out, if the content does not tell: {', '.join(FORMATS)}")
    parser.add_argument("--encoding", choices=tuple(FORCED), metavar="NAME", help=f"the text's encoding, if the content does not tell: {', '.join(FORCED)}")
    parser.add_argument("--me", action="append", default=[], metavar="NAME", help="chat logs: whose voice is learned; may be given several times")
    parser.add_argument(
        "--column", action="append", default=[], metavar="ROLE=COLUMN", help="tables: which column holds user, assistant, system, text, title, …"
    )
    parser.add_argument("--date-order", choices=("DMY", "MDY", "YMD"), help="WhatsApp: where the file itself does not tell")
    parser.add_argument("--max-drop-share", type=float, metavar="SHARE", help="go on although up to this share of the records is dropped; 1 accepts any")


def run_ingest(session: Session, data: Sequence[Path], options: argparse.Namespace) -> IngestReport:
    """Read the data into the workspace's cache; the caller holds the workspace."""
    report = ingest(data, session.scenario, session.tokenizer, session.chat, session.workspace.cache_dir, _ingest_options(session, options))
    session.audit.append(
        "ingested", records=report.records, kept=report.kept, dropped=dict(report.dropped), windows=report.windows, fingerprint=report.fingerprint
    )
    return report


def _ingest_options(session: Session, options: argparse.Namespace) -> IngestOptions:
    read = ReadOptions(options.format, options.encoding, _columns(options.column), tuple(options.me), options.date_order)
    model = {"bundle": session.bundle.bundle_id, "tokenizer_sha256": session.bundle.files["tokenizer.json"].sha256}
    if options.max_drop_share is not None and not 0 <= options.max_drop_share <= 1:
        raise UserError("--max-drop-share", f"{options.max_drop_share:g}", "0 to 1")
    return IngestOptions(read, options.max_drop_share, model, dict(session.bundle.recipe["train"]))


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    columns = {}
    for pair in pairs:
        role, equals, column = pair.partition("=")
        if not equals or not role or not column:
            raise UserError("--column", f"{pair!r} is not ROLE=COLUMN", "such as user=question", "--column user=question --column assistant=answer")
        columns[role] = column
    return columns
