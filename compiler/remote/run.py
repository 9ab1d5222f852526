"""Run a verb on a phone, follow it, and survive a lost connection.

In:  a connected target with a bundle, the verb's words.
Out: the verb's exit code; its output as it comes; the reports that it wrote, brought here.
The run belongs to the phone and not to the connection: it writes into runs/ID there, and following is a matter of asking for the
next bytes. Whoever loses the connection, or closes the lid, attaches again.
"""

from __future__ import annotations

import base64
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime.errors import MftError, Paused, UserError
from .push import LINK
from .readiness import python_there
from .retry import Retry
from .target import ConnectionLost, Target
from .transfer import AGAIN, Progress, Transfer

RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")
CHUNK_BYTES = 1 << 18
POLL_SECONDS = (0.5, 1.0, 2.0, 3.0)
"""pauses between looks that find nothing new, the last for all that follow: each look wakes the phone"""
REPORT_OPTIONS = ("--report", "--output")
"""options of verbs whose value is a file that the verb writes: it is written there and fetched to that name here"""
KEPT_RUNS = 20


@dataclass(frozen=True)
class Chunk:
    """What a run wrote since the last look."""

    output: bytes
    errors: bytes
    code: int | None
    """set once it has ended"""
    vanished: bool
    """it is neither running nor did it leave an exit code: it was killed"""


@dataclass(frozen=True)
class Report:
    """A file that the verb writes there and that is wanted here."""

    there: str
    here: Path


class RemoteRun:
    """One run on a target, by its id."""

    def __init__(self, target: Target, run_id: str, verb: str = "") -> None:
        self.target, self.id, self.verb = target, run_id, verb
        self.folder = f"{target.folder}/runs/{run_id}"
        self._seen = [0, 0]

    def look(self) -> Chunk:
        """The next bytes of both streams. Reads the ending first, so that nothing written before it is missed."""
        out, err = self._seen
        done = self.target.run(
            f"cd {shlex.quote(self.folder)} || exit 9\n"
            f"e=-; [ -f exit ] && e=$(cat exit); a=gone\n"
            f'kill -0 "$(cat pid 2>/dev/null)" 2>/dev/null && a=alive; [ -f exit ] && a=ended\n'
            f'echo "state $e $a"; echo "verb $(cat verb 2>/dev/null)"\n'
            f"echo \"out $(tail -c +{out + 1} out | head -c {CHUNK_BYTES} | base64 | tr -d '\\r\\n')\"\n"
            f"echo \"err $(tail -c +{err + 1} err | head -c {CHUNK_BYTES} | base64 | tr -d '\\r\\n')\""
        )
        if done.code:
            raise UserError(str(self.target.address), f"has no run {self.id}", remedy=f"mft on {self.target.address.typed} status")
        lines: dict[str, str] = {name: rest for name, _, rest in (line.partition(" ") for line in done.text.splitlines())}
        code, state = lines["state"].split()
        self.verb = lines.get("verb") or self.verb
        output, errors = base64.b64decode(lines.get("out", "")), base64.b64decode(lines.get("err", ""))
        self._seen = [out + len(output), err + len(errors)]
        drained = not output and not errors
        return Chunk(output, errors, int(code) if code.isdigit() and drained else None, state == "gone" and drained)

    def interrupt(self) -> None:
        """Ctrl-C over there: training checkpoints and ends with exit code 4."""
        self.target.run(f'kill -INT "$(cat {shlex.quote(self.folder)}/child)"')


def start(target: Target, words: Sequence[str]) -> RemoteRun:
    """Start a verb that goes on without us. UserError when there is no bundle there."""
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"
    run = RemoteRun(target, run_id, words[0])
    folder, python = shlex.quote(target.folder), python_there(target)
    if not python:
        raise UserError(str(target.address), "has no Python", remedy=f"mft push BUNDLE --to {target.address.typed} (it says what to install)")
    launcher, command = f"{shlex.quote(python)} -c {shlex.quote(LAUNCH)}", f'{shlex.quote(python)} "$bundle"/mft.pyz'
    inner = (
        f"{launcher} runs/{run_id}/child {command} {_with_workspace(target, words)} "
        f">runs/{run_id}/out 2>runs/{run_id}/err\n"
        f"code=$?; echo $code >runs/{run_id}/exit.new && mv runs/{run_id}/exit.new runs/{run_id}/exit"
    )
    # nohup and a session of its own keep it alive without the connection
    script = (
        f"{ENTER.format(folder=folder, link=LINK)}mkdir -p runs/{run_id} && echo {shlex.quote(words[0])} >runs/{run_id}/verb || exit 4; {PRUNE}\n"
        "s=setsid; command -v setsid >/dev/null || s=\n"
        f"PYTHONUNBUFFERED=1 nohup $s sh -c {shlex.quote(f'echo $$ >runs/{run_id}/pid; {inner}')} >/dev/null 2>&1 </dev/null &\n"
        f"i=0; while [ ! -s runs/{run_id}/child ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done; [ -s runs/{run_id}/child ]"
    )
    try:
        done = target.run(script)
    except ConnectionLost as error:  # not tried again: it may have started
        found = f"the connection broke at the start ({error})"
        raise UserError(str(target.address), found, remedy=f"mft on {target.address.typed} --attach") from error
    if done.code == 3:
        raise _no_bundle(target)
    if done.code:
        raise MftError(f"{target.address}: the run could not be started: {done.text.strip()[-300:]}")
    return run


def converse(target: Target, words: Sequence[str]) -> int:
    """Run a verb that talks to a person: it has our input, a terminal if we have one, and ends with its connection."""
    folder, python = shlex.quote(target.folder), python_there(target)
    if target.run(f"[ -f {folder}/{LINK}/mft.pyz ]").code or not python:
        raise _no_bundle(target)
    script = f'{ENTER.format(folder=folder, link=LINK)}exec {shlex.quote(python)} "$bundle"/mft.pyz {_with_workspace(target, words)}'
    return subprocess.run(target.words(script, terminal=sys.stdin.isatty()), check=False).returncode


def _with_workspace(target: Target, words: Sequence[str]) -> str:
    """The verb's words for the shell there."""
    return shlex.join([words[0], "--workspace", f"{target.folder}/{LINK}-workspace", *words[1:]])


def _no_bundle(target: Target) -> UserError:
    return UserError(str(target.address), "has no bundle", remedy=f"mft push BUNDLE --to {target.address.typed}")


ENTER = """\
cd {folder}/{link} 2>/dev/null && [ -f mft.pyz ] || exit 3; bundle=$(pwd -P); export bundle; cd {folder} || exit 3
[ -w "${{HOME:-/}}" ] || {{ mkdir -p home && HOME=$PWD/home && export HOME; }}
[ -w "${{TMPDIR:-/tmp}}" ] || {{ mkdir -p tmp && TMPDIR=$PWD/tmp && export TMPDIR; }}
"""
"""The link is followed now: a bundle that is pushed later does not change under a run. Where HOME may not be written (adb shell), the run
gets one."""
LAUNCH = """\
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""a shell starts what runs in the background deaf to Ctrl-C, and no shell can undo that"""
PRUNE = f'ls -d runs/*/ 2>/dev/null | sort -r | tail -n +{KEPT_RUNS} | while read -r old; do [ -f "$old/exit" ] && rm -rf "$old"; done'


def follow(run: RemoteRun, retry: Retry, write: Callable[[bytes, bytes], None], pause: Callable[[float], None] = time.sleep) -> int:
    """Pass on what the run writes until it ends; its exit code. Ctrl-C is passed on once; a second one does not wait."""
    interrupted, quiet = False, 0
    while True:
        try:
            chunk = retry.until_done(run.look, f"mft on {run.target.address.typed} --attach {run.id}")
            write(chunk.output, chunk.errors)
            if chunk.code is not None:
                return chunk.code
            if chunk.vanished:
                raise _killed(run)
            quiet = 0 if chunk.output or chunk.errors else quiet + 1
            if quiet:
                pause(POLL_SECONDS[min(quiet, len(POLL_SECONDS)) - 1])
        except KeyboardInterrupt:
            if interrupted or not _passed_on(run, retry, write):
                raise Paused(f"not waited for; try: mft on {run.target.address.typed} --attach {run.id}") from None
            interrupted = True


STOPPING = b"stopping it there; Ctrl-C again does not wait for that\n"


def _passed_on(run: RemoteRun, retry: Retry, write: Callable[[bytes, bytes], None]) -> bool:
    """Send Ctrl-C there; False when the next one came before that was done."""
    try:
        write(b"", STOPPING)
        retry.until_done(run.interrupt, AGAIN)
    except KeyboardInterrupt:
        return False
    return True


def _killed(run: RemoteRun) -> MftError:
    what = "the system there killed it, most likely for its memory"
    if run.verb == "tune":
        return Paused(f"{run.target.address}: {what}; try: the same command with --resume, after closing other apps")
    return MftError(f"{run.target.address}: {what}; try: the same command again, after closing other apps")


def latest_run(target: Target) -> str:
    """The id of the newest run that is going on there, or of the newest of all."""
    lines = target.run(f"cd {shlex.quote(target.folder)} && {LIST}").text.splitlines()
    found = sorted((state == "going", name) for name, _, state in (line.partition(" ") for line in lines) if RUN_ID.fullmatch(name))
    if not found:
        raise UserError(str(target.address), "has no run to attach to", remedy=f"mft on {target.address.typed} VERB …")
    return found[-1][1]


LIST = """\
for run in runs/*/; do
  name=${run%/}; state=ended
  if [ ! -f "$run/exit" ] && kill -0 "$(cat "$run/pid" 2>/dev/null)" 2>/dev/null; then state=going; fi
  echo "${name#runs/} $state"
done"""


def redirect_reports(words: Sequence[str]) -> tuple[list[str], list[Report]]:
    """The words with report files moved into data that can be fetched, and those files."""
    out, reports, at = [], [], 0
    while at < len(words):
        option, equals, value = words[at].partition("=")
        if option in REPORT_OPTIONS and (equals or at + 1 < len(words)):
            value = value if equals else words[at + 1]
            at += 1 if equals else 2
            reports.append(Report(f"reports/{uuid.uuid4().hex[:12]}-{Path(value).name}", Path(value)))
            out += [option, reports[-1].there]
        else:
            out.append(words[at])
            at += 1
    return out, reports


def bring_reports(target: Target, reports: Sequence[Report], retry: Retry, progress: Progress) -> list[Path]:
    """Fetch what the verb wrote; a report that it did not write is skipped."""
    brought = []
    for report in reports:
        path = f"{target.folder}/{report.there}"
        if retry.until_done(lambda: target.run(f"[ -f {shlex.quote(path)} ]"), AGAIN).code == 0:  # noqa: B023 - called at once
            brought.append(Transfer(target, retry, progress).fetch(path, report.here))
            retry.until_done(lambda: target.run(f"rm -f {shlex.quote(path)}"), AGAIN)  # noqa: B023
    return brought
