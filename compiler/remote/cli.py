"""mft push | on | pull: the desktop's side of a phone.

In:  the words after the verb.
Out: the exit code; `on` passes on the one of the verb that ran there.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ...runtime.bundle.folder import Bundle
from ...runtime.errors import UserError
from .address import FORMS, parse_address
from .pull import WANTED, pull
from .push import push_bundle, push_files
from .retry import FOLLOWING_PAUSES_SECONDS, Retry
from .run import RUN_ID, RemoteRun, Report, bring_reports, converse, follow, latest_run, redirect_reports, start
from .target import connect
from .transfer import print_progress, size_text

PUSH_EPILOG = """\
TARGET is adb[:SERIAL][:DIR], ssh://[user@]host[:port]/dir (/~/dir: below the home folder), or a folder of this machine.
MFT_SSH and MFT_ADB replace the commands ssh and adb, options included: MFT_SSH='ssh -i key'."""


ON_DESCRIPTION = """\
Run a verb of the bundle on a phone, with its output here. Paths are those on the phone, relative to the target's folder (data/...);
files of --report and --output are brought here."""


def _parser(name: str, description: str, usage: str | None = None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=name, usage=usage, description=description, epilog=PUSH_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def push_command(words: Sequence[str]) -> int:
    """mft push BUNDLE --to TARGET"""
    parser = _parser("mft push", "Send a bundle to a phone: only what changed, checked there, switched in one step.")
    parser.add_argument("bundle", metavar="BUNDLE")
    parser.add_argument("--to", required=True, metavar="TARGET", help=FORMS)
    parser.add_argument("--with", dest="files", action="append", default=[], type=Path, metavar="FILE", help="send this file to data/ there as well")
    parser.add_argument("--python", metavar="PATH", help="the Python to use there (default: its venv, or python3)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(words)
    address = parse_address(options.to)
    bundle = Bundle.open(options.bundle, to_execute=False)
    unreadable = [str(file) for file in options.files if not file.is_file()]
    if unreadable:
        raise UserError("--with", f"there is no file {', '.join(unreadable)}")
    with connect(address) as target:
        retry, progress = Retry(target, _say), print_progress(_say)
        pushed = push_bundle(bundle, target, retry, progress, options.python)
        data = push_files(options.files, target, retry, progress)
    if options.json:
        print(json.dumps({"bundle": pushed.path, "python": pushed.readiness.python, "versions": pushed.readiness.versions, "sent": pushed.sent,
                          "reused": pushed.reused, "sent_bytes": pushed.sent_bytes, "data": data}, sort_keys=True))  # fmt: skip
        return 0
    there = ", ".join(f"{name} {version}" for name, version in pushed.readiness.versions.items())
    print(f"{pushed.path}: {len(pushed.sent)} files sent ({size_text(pushed.sent_bytes)}), {len(pushed.reused)} were there; {there}")
    print(f"there: {shlex.join([pushed.readiness.python, f'{pushed.path}/mft.pyz'])} --help    here: mft on {shlex.quote(options.to)} VERB")
    return 0


def on_command(words: Sequence[str]) -> int:
    """mft on TARGET VERB …"""
    parser = _parser("mft on", ON_DESCRIPTION, "mft on TARGET [--detach | --attach [RUN]] VERB ...")
    parser.add_argument("target", metavar="TARGET", help=FORMS)
    parser.add_argument("--detach", action="store_true", help="start it and do not wait")
    parser.add_argument("--attach", nargs="?", const="", metavar="RUN", help="follow a run that is going on, by default the newest")
    own, words_of_verb = _split(words)
    options = parser.parse_args(own)
    if options.attach is None and not words_of_verb:
        raise UserError("mft on", "no verb was given", remedy=f"mft on {shlex.quote(options.target)} status")
    if options.attach is not None and words_of_verb:
        raise UserError("--attach", f"{words_of_verb[0]!r} is not a run", "the id that a lost run printed, or nothing for the newest")
    with connect(parse_address(options.target)) as target:
        if options.attach is not None:
            return _follow(RemoteRun(target, options.attach or latest_run(target)))
        if _is_interactive(words_of_verb):
            return converse(target, words_of_verb)
        verb, reports = redirect_reports(words_of_verb)
        if reports:
            target.run(f"mkdir -p {shlex.quote(f'{target.folder}/reports')}")
        run = start(target, verb)
        if options.detach:
            print(run.id)
            _say(f"it goes on there; to follow it: mft on {shlex.quote(options.target)} --attach {run.id}")
            return 0
        code = _follow(run, reports)
        for path in bring_reports(target, reports, Retry(target, _say), lambda *_: None):
            _say(f"brought {path}")
        return code


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(our own words, the verb's): the verb is the first word after the target that is no option."""
    own, rest, has_target = [], list(words), False
    while rest and (rest[0].startswith("-") or not has_target):
        has_target = has_target or not rest[0].startswith("-")
        own.append(rest.pop(0))
        if own[-1] == "--attach" and rest and RUN_ID.fullmatch(rest[0]):
            own.append(rest.pop(0))
    return own, rest


def pull_command(words: Sequence[str]) -> int:
    """mft pull TARGET WHAT"""
    parser = _parser("mft pull", "Bring a version's weights, the audit log, or another file or folder from a phone.")
    parser.add_argument("target", metavar="TARGET", help=FORMS)
    parser.add_argument("what", metavar="WHAT", help=WANTED)
    parser.add_argument("--output", "-o", type=Path, metavar="PATH", help="file or folder to put it (default: here)")
    options = parser.parse_args(words)
    with connect(parse_address(options.target)) as target:
        print(pull(target, options.what, options.output, Retry(target, _say), print_progress(_say)))
    return 0


def _follow(run: RemoteRun, reports: Sequence[Report] = ()) -> int:
    _say(f"run {run.id} on {run.target.address}")

    def write(output: bytes, errors: bytes) -> None:
        for stream, content in ((sys.stderr, errors), (sys.stdout, output)):  # progress comes before the result that it led to
            for report in reports:  # the verb knows the file by the name that it has there
                content = content.replace(report.there.encode(), os.fsencode(report.here))
            if content:
                stream.buffer.write(content)
                stream.flush()

    return follow(run, Retry(run.target, _say, pauses=FOLLOWING_PAUSES_SECONDS), write)


def _is_interactive(verb: Sequence[str]) -> bool:
    return verb[0] == "chat" and not any(word.startswith(("--prompt", "--help", "-h")) for word in verb)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
