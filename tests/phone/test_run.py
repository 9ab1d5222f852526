"""Verbs on a phone: output as it comes, exit codes, reports, and runs that outlive their connection."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mobilefinetuner.compiler.cli import main
from mobilefinetuner.compiler.remote import run as run_module
from mobilefinetuner.compiler.remote.address import parse_address
from mobilefinetuner.compiler.remote.retry import Retry
from mobilefinetuner.compiler.remote.run import POLL_SECONDS, RemoteRun, follow, latest_run, redirect_reports, start
from mobilefinetuner.compiler.remote.target import ConnectionLost, Target, connect
from mobilefinetuner.runtime.errors import MftError, Paused, UserError

from tests.phone.cable import cable
from tests.phone.small_bundle import make_bundle


@pytest.fixture
def ready(phone, tmp_path):
    push(phone, tmp_path)
    return phone


def push(phone, tmp_path) -> None:
    assert main(["push", str(make_bundle(tmp_path / "made", weights_bytes=1000)), "--to", phone.address(), "--python", sys.executable]) == 0


def retrying(target: Target) -> Retry:
    return Retry(target, lambda _text: None, pause=lambda _seconds: None)


class Screen:
    """Collects what a run writes."""

    def __init__(self, until: bytes = b"") -> None:
        self.output, self.errors, self._until, self.seen = b"", b"", until, threading.Event()

    def __call__(self, output: bytes, errors: bytes) -> None:
        self.output, self.errors = self.output + output, self.errors + errors
        if self._until and self._until in self.output:
            self.seen.set()


def test_the_whole_way_over_every_transport(any_phone, tmp_path, capfd, monkeypatch):
    push(any_phone, tmp_path)
    capfd.readouterr()
    monkeypatch.chdir(tmp_path)
    assert main(["on", any_phone.address(), "verify", "it's", "--code", "3", "--report", "here.html"]) == 3
    out, _ = capfd.readouterr()
    answer = json.loads(out.splitlines()[0])
    assert answer["words"][:2] == ["verify", "--workspace"] and answer["words"][2] == str(any_phone.folder / "bundle-workspace")
    assert answer["words"][3:6] == ["it's", "--code", "3"] and answer["folder"] == str(any_phone.folder)
    assert answer["bundle"].startswith(str(any_phone.folder / ".bundles"))
    assert Path("here.html").read_text() == "a report" and not list((any_phone.folder / "reports").iterdir())
    assert main(["pull", any_phone.address(), "current"]) == 0
    assert Path("base.gguf").read_bytes() == (tmp_path / "made" / "model.gguf").read_bytes()


def test_both_streams_arrive_complete_and_apart(ready):
    with connect(parse_address(ready.address())) as target:
        screen = Screen()
        assert follow(start(target, ["count"]), retrying(target), screen, pause=lambda _s: None) == 0
    assert screen.output.decode().splitlines()[1:] == [f"line {n}" for n in range(2000)]
    assert screen.errors.decode() == "Grüße 😀\n"


def test_a_run_goes_on_without_its_connection_and_is_found_again(ready):
    with connect(parse_address(ready.address())) as target:
        run = start(target, ["wait"])
    # The connection is closed; the run has not ended.
    (ready.folder / "go").touch()
    with connect(parse_address(ready.address())) as target:
        screen = Screen()
        assert latest_run(target) == run.id
        assert follow(RemoteRun(target, run.id), retrying(target), screen) == 0
    assert b"ready" in screen.output


def test_attach_finds_the_run_that_is_going_on_and_not_a_newer_one_that_ended(ready):
    with connect(parse_address(ready.address())) as target:
        with pytest.raises(UserError, match="no run"):
            latest_run(target)
        waiting = start(target, ["wait"])
        others = [start(target, words) for words in (["status"], ["tune", "die"])]
        for run in others:
            with contextlib.suppress(MftError):
                follow(run, retrying(target), Screen())
        assert latest_run(target) == waiting.id
        (ready.folder / "go").touch()
        follow(waiting, retrying(target), Screen())
        assert latest_run(target) == max(run.id for run in [waiting, *others])


def test_looks_become_rarer_while_nothing_happens_and_frequent_again_when_something_does(ready):
    pauses, limit = [], len(POLL_SECONDS) + 2

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == limit:
            (ready.folder / "go").touch()

    with connect(parse_address(ready.address())) as target:
        run = start(target, ["wait"])
        while b"ready" not in run.look().output:
            pass
        assert follow(run, retrying(target), Screen(), pause=pause) == 0
    assert tuple(pauses[: len(POLL_SECONDS)]) == POLL_SECONDS and set(pauses[len(POLL_SECONDS) : limit]) == {POLL_SECONDS[-1]}


def test_following_survives_a_pulled_cable(ready):
    if ready.port is None:
        pytest.skip("a folder has no cable")
    with cable(ready.port, [40_000, 30_000]) as pulled, connect(parse_address(ready.address(port=pulled.port))) as target:
        screen = Screen()
        run = start(target, ["count"])
        assert follow(run, retrying(target), screen) == 0
    assert screen.output.decode().splitlines()[1:] == [f"line {n}" for n in range(2000)]


def test_ctrl_c_lets_the_verb_checkpoint_and_its_exit_code_comes_back(ready):
    with connect(parse_address(ready.address())) as target:
        run, screen = start(target, ["wait"]), Screen()

        def write(output: bytes, errors: bytes) -> None:
            screen(output, errors)
            if b"ready" in output:
                raise KeyboardInterrupt

        assert follow(run, retrying(target), write) == 4
    assert b"checkpoint" in screen.output


def test_a_second_ctrl_c_does_not_wait_and_says_how_to_attach(ready, monkeypatch):
    with connect(parse_address(ready.address())) as target:
        run = start(target, ["wait"])

        def write(output: bytes, errors: bytes) -> None:
            if errors != run_module.STOPPING:
                raise KeyboardInterrupt

        monkeypatch.setattr(RemoteRun, "interrupt", lambda self: None)
        with pytest.raises(Paused, match=f"--attach {run.id}"):
            follow(run, retrying(target), write)
        (ready.folder / "go").touch()
        assert follow(RemoteRun(target, run.id), retrying(target), Screen()) == 0


def test_a_second_ctrl_c_while_the_first_is_on_its_way_lets_go_as_well(ready, monkeypatch):
    def impatient(self) -> None:
        raise KeyboardInterrupt

    with connect(parse_address(ready.address())) as target:
        run = start(target, ["wait"])
        monkeypatch.setattr(RemoteRun, "interrupt", impatient)
        screen, said = Screen(), []

        def write(output: bytes, errors: bytes) -> None:
            said.append(errors)
            screen(output, errors)
            if b"ready" in output:
                raise KeyboardInterrupt

        with pytest.raises(Paused, match=f"--attach {run.id}"):
            follow(run, retrying(target), write)
        assert run_module.STOPPING in said
        (ready.folder / "go").touch()
        assert follow(RemoteRun(target, run.id), retrying(target), Screen()) == 0


def test_a_run_that_was_killed_is_told_from_one_that_ended(ready):
    with connect(parse_address(ready.address())) as target:
        with pytest.raises(Paused, match="--resume"):
            follow(start(target, ["tune", "die"]), retrying(target), Screen())
        run = start(target, ["verify", "die"])
        with pytest.raises(MftError, match="killed") as told:
            follow(RemoteRun(target, run.id), retrying(target), Screen())
        assert "--resume" not in str(told.value)


def test_where_the_home_folder_cannot_be_written_the_run_gets_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/nowhere")
    target_folder = str(tmp_path / "phone")
    assert main(["push", str(make_bundle(tmp_path / "made", weights_bytes=1000)), "--to", target_folder, "--python", sys.executable]) == 0
    with connect(parse_address(target_folder)) as target:
        screen = Screen()
        assert follow(start(target, ["status"]), retrying(target), screen) == 0
    assert json.loads(screen.output)["home"] == f"{target_folder}/home"


def test_old_runs_are_cleared_away_and_those_going_on_are_kept(ready, monkeypatch):
    monkeypatch.setattr(run_module, "PRUNE", run_module.PRUNE.replace(f"+{run_module.KEPT_RUNS}", "+2"))
    with connect(parse_address(ready.address())) as target:
        waiting = start(target, ["wait"])
        for _ in range(3):
            follow(start(target, ["status"]), retrying(target), Screen())
        kept = [path.name for path in (ready.folder / "runs").iterdir()]
        assert waiting.id in kept and len(kept) <= 3
        (ready.folder / "go").touch()
        assert follow(waiting, retrying(target), Screen()) == 0


def test_without_a_bundle_or_a_run_the_sentence_says_what_to_do(tmp_path, capsys):
    target = str(tmp_path / "target")
    (tmp_path / "target").mkdir()
    cases = (["status"], "mft push"), (["--attach"], "VERB"), ([], "status"), (["--attach", "../x"], "")
    for words, remedy in cases:
        assert main(["on", target, *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and remedy in error


def test_reports_are_redirected_wherever_they_are_named():
    words, reports = redirect_reports(["ingest", "a b", "--report=my report.html", "--json", "--output", "x/y.yaml", "--report"])
    assert [str(report.here) for report in reports] == ["my report.html", "x/y.yaml"]
    assert words == ["ingest", "a b", "--report", reports[0].there, "--json", "--output", reports[1].there, "--report"]
    assert all("/" not in shlex.quote(report.there.removeprefix("reports/")) or "'" in shlex.quote(report.there) for report in reports)


def test_a_python_that_was_named_once_is_used_from_then_on(tmp_path, capfd):
    target = str(tmp_path / "target")
    wrapper = tmp_path / "python of mine"
    wrapper.write_text(f'#!/bin/sh\necho mine >&2\nexec {shlex.quote(sys.executable)} "$@"\n')
    wrapper.chmod(0o755)
    assert main(["push", str(make_bundle(tmp_path / "made", weights_bytes=1000)), "--to", target, "--python", str(wrapper)]) == 0
    assert main(["on", target, "status"]) == 0
    assert "mine" in capfd.readouterr().err


def test_a_detached_run_prints_its_id_and_can_be_attached(tmp_path, capfd):
    target = str(tmp_path / "target")
    assert main(["push", str(make_bundle(tmp_path / "made", weights_bytes=1000)), "--to", target, "--python", sys.executable]) == 0
    capfd.readouterr()
    assert main(["on", target, "--detach", "tune", "--code", "4"]) == 0
    run_id = capfd.readouterr().out.strip()
    assert main(["on", target, "--attach", run_id]) == 4
    with pytest.raises(UserError), connect(parse_address(target)) as place:
        RemoteRun(place, "20000101-000000-abcdef").look()


def test_a_conversation_gets_a_terminal(tmp_path):
    """Without --prompt and at a terminal, chat talks to the person and not into a log."""
    target = str(tmp_path / "target")
    assert main(["push", str(make_bundle(tmp_path / "made", weights_bytes=1000)), "--to", target, "--python", sys.executable]) == 0
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "mobilefinetuner.compiler.cli", "on", target, "chat", "tty", "--code", "3"])
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:  # what Linux says when the other side of a terminal is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert b"talking to a terminal" in shown and not list((tmp_path / "target").glob("runs/*"))


def test_a_conversation_without_a_terminal_reads_what_is_piped_to_it(ready):
    if ready.transport == "adb-old":
        pytest.skip("the old device of these tests takes no input")
    command = [sys.executable, "-m", "mobilefinetuner.compiler.cli", "on", ready.address(), "chat", "echo"]
    done = subprocess.run(command, input=b"hello there\n", capture_output=True, check=False)
    assert done.returncode == 0 and b"heard hello there" in done.stdout


def test_a_conversation_where_there_is_no_bundle_says_so(tmp_path, capsys):
    assert main(["on", str(tmp_path), "chat"]) == 2
    assert "mft push BUNDLE" in capsys.readouterr().err


def test_a_start_whose_answer_is_lost_is_not_repeated_and_can_be_attached(tmp_path, monkeypatch, capfd):
    target = str(tmp_path / "target")
    assert main(["push", str(make_bundle(tmp_path / "made", weights_bytes=1000)), "--to", target, "--python", sys.executable]) == 0
    run = Target.run

    def forgetful(self, script):
        done = run(self, script)
        if "nohup" in script:
            raise ConnectionLost("the answer never came")
        return done

    monkeypatch.setattr(Target, "run", forgetful)
    assert main(["on", target, "status", "--code", "3"]) == 2
    assert f"mft on {target} --attach" in capfd.readouterr().err
    monkeypatch.setattr(Target, "run", run)
    assert main(["on", target, "--attach"]) == 3 and len(list((tmp_path / "target" / "runs").iterdir())) == 1
