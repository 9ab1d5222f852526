"""The phone's command line: python3 mft.pyz VERB …

In:  the words that were typed.
Out: the exit code: 0 done, 2 the user's mistake, 3 finished but not promoted, 4 paused and resumable, 1 our fault.
A verb's module is imported only when it is asked for.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from . import __version__
from .errors import MftError, UserError
from .session import Session
from .verbs import NAMES


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; every outcome that is not our fault ends in a sentence on stderr."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    parser = _parser()
    options = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    if not options.verb:
        parser.print_help(sys.stderr)
        return 2
    try:
        return _run(options, _bundle_folder(options.bundle))
    except MftError as error:
        print(error, file=sys.stderr)
        if options.json:
            print(json.dumps({"error": str(error), "exit_code": error.exit_code}, ensure_ascii=False))
        return error.exit_code
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(options: argparse.Namespace, bundle: Path) -> int:
    """The verb's exit code; a bundle whose files vanish while it works is the user's matter, like one that was never there."""
    try:
        verb = _verb(options.verb)
        to_execute = not getattr(verb, "RUNS_ANY_BUNDLE", False)
        session = Session.open(bundle, options.workspace, options.json, options.threads, to_execute)
        return verb.run(session, options)
    except OSError as error:
        if not isinstance(error.filename, str) or bundle not in Path(error.filename).parents:
            raise
        raise UserError(error.filename, f"cannot be read any more ({error.strerror})", remedy="bring the bundle back to its place") from error


def _verb(name: str) -> ModuleType:
    return importlib.import_module(f".verbs.{name}", __package__)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mft.pyz", description="Fine-tune, verify and use the model of this bundle on this machine.")
    parser.add_argument("--version", action="version", version=f"mobilefinetuner {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name in NAMES:
        module = _verb(name)
        verb = verbs.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        verb.add_argument("--workspace", type=Path, metavar="DIR", help="where runs and versions live (default: beside the bundle)")
        verb.add_argument("--json", action="store_true", help="one JSON object on stdout, progress on stderr")
        verb.add_argument("--threads", type=_positive, metavar="N", help="compute threads (default: the device profile's)")
        verb.add_argument("--bundle", type=Path, help=argparse.SUPPRESS)
        module.configure(verb)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _bundle_folder(named: Path | None) -> Path:
    """The bundle that this runtime lies in: the folder of mft.pyz."""
    if named is not None:
        return named.absolute()
    return Path(sys.argv[0]).absolute().parent


if __name__ == "__main__":
    sys.exit(main())
