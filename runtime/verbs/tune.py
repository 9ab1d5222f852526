"""mft.pyz tune DATA…: train on the owner's data, merge, verify, promote."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..data.cache import TrainingCache
from ..errors import NotPromoted, UserError
from ..ingest import add_data_arguments, run_ingest
from ..session import Session
from ..tune import TuneRequest, TuneResult, tune
from ..versions.record import BASE

SUMMARY = "train on your data, merge the result into a new version, verify and promote it"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA", help="files, folders or zip archives")
    parser.add_argument("--steps", type=int, metavar="N", help="optimizer steps (default: all epochs)")
    parser.add_argument("--epochs", type=int, metavar="N", help="passes over the data (default: the scenario's or the recipe's)")
    parser.add_argument("--seed", type=int, metavar="N", help="start values and data order (default: the recipe's)")
    parser.add_argument("--from", dest="parent", default=BASE, metavar="VERSION", help="train on from this version (default: base)")
    parser.add_argument("--resume", action="store_true", help="go on with the interrupted run; give the same data and options as before")
    add_data_arguments(parser)


def run(session: Session, options: argparse.Namespace) -> int:
    for name in ("steps", "epochs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name}", f"{value}", "1 or more")
    if options.seed is not None and not 0 <= options.seed < 2**32:
        raise UserError("--seed", f"{options.seed}", "0 to 4294967295")
    request = TuneRequest(options.steps, options.epochs, options.seed, options.resume, options.parent)
    with session.locked("tune"):
        report = run_ingest(session, options.data, options)
        session.say(f"data: {report.kept} of {report.records} records kept, {report.windows} samples, {report.heldout} records held out")
        result = tune(session, TrainingCache.load(report.cache), request)
    session.result(result.as_json(), _page(result))
    return 0 if result.promoted else NotPromoted.exit_code


def _page(result: TuneResult) -> str:
    record, judgement = result.trained.record, result.judgement
    state = "promoted: it is current now" if result.promoted else "not promoted: the version before stays current"
    return "\n".join([
        f"{result.version.id} {state} ({judgement.verdict})",
        *(f"  {reason}" for reason in judgement.reasons),
        f"  {record.step} steps, loss {record.loss_first:.3f} → {record.loss_last:.3f}, {record.seconds:,.0f} s",
        f"  weights: {result.model_path}",
    ])  # fmt: skip
