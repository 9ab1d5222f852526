"""The part of ingest that the verbs ingest and tune share: options, progress, the audit record.

In:  the paths and the options that were typed.
Out: IngestReport; the training cache is in the workspace.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .data.ingest import ingest
from .data.old_caches import prune_caches
from .data.options import add_arguments, options_from
from .data.report import IngestReport
from .errors import UserError
from .session import Session

SHOW_EVERY_SECONDS = 2.0

add_data_arguments = add_arguments


def run_ingest(session: Session, data: Sequence[Path], options: argparse.Namespace) -> IngestReport:
    """Read the data into the workspace's cache; the caller holds the workspace."""
    model = {"bundle": session.bundle.bundle_id, "tokenizer_sha256": session.bundle.files["tokenizer.json"].sha256}
    ingest_options = options_from(options, model, session.bundle.recipe["train"], ReadingLine().show)
    report = ingest(data, session.scenario, session.tokenizer, session.chat, session.workspace.cache_dir, ingest_options)
    session.audit.append(
        "ingested", records=report.records, kept=report.kept, dropped=dict(report.dropped), windows=report.windows, fingerprint=report.fingerprint
    )
    _drop_old_caches(session, report.fingerprint)
    return report


def _drop_old_caches(session: Session, in_use: str) -> None:
    """After the new one is there. Where a version's record does not say what it was made from, every cache may be that."""
    listing = session.versions.listing()
    if listing.notices:
        return
    try:
        gone = prune_caches(
            session.workspace.cache_dir, [in_use, *(version.data_fingerprint for version in listing.versions)], session.workspace.runs_dir
        )
    except UserError as error:
        session.notices([f"old training caches stay: {error}"])  # the data is in: that is what was asked for
        return
    if gone:
        session.audit.append("caches_removed", caches=[path.name for path in gone])
        session.say(f"removed {len(gone)} old training {'cache' if len(gone) == 1 else 'caches'} that no version refers to")


class ReadingLine:
    """Says now and then how far a long reading is."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def show(self, records: int, bytes_read: int, bytes_in_all: int) -> None:
        now = time.monotonic()
        if now - self._shown >= SHOW_EVERY_SECONDS:
            self._shown = now
            share = f", {bytes_read / bytes_in_all:.0%} of the data" if bytes_in_all else ""
            print(f"read {records:,} records{share}", file=sys.stderr, flush=True)
