"""A whole `tune` on the tiny model, stopped at the operations of the storage and at random moments; then gone on with.

It is killed, its storage refuses, or its bundle vanishes. After each stop every verb works, and the run that goes on ends with the weights of
the run that nobody stopped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from mobilefinetuner.runtime.cli import main
from mobilefinetuner.runtime.errors import NotPromoted, UserError
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.storage import checkpoint
from mobilefinetuner.runtime.storage.audit import AuditLog
from mobilefinetuner.runtime.storage.durable import use_layer
from mobilefinetuner.runtime.storage.workspace import Workspace
from mobilefinetuner.runtime.versions.store import VersionStore
from mobilefinetuner.runtime.versions.version_block import read_version_block

from tests.support.failing_storage import Recording, failing_layer

pytestmark = pytest.mark.slow
STEPS = 3
RANDOM_KILLS = 200
START_SHARE = 0.25
"""of a run's time that is taken by starting Python, before which a kill would hit nothing"""


@pytest.fixture(scope="module")
def bundle(tiny_model_path, tmp_path_factory) -> Path:
    """A checkpoint after every step."""
    from tests.support.tiny_bundle import compile_tiny_bundle

    return compile_tiny_bundle(
        tmp_path_factory.mktemp("killed") / "tiny", tiny_model_path, "train.checkpoint_every_steps=1", "scenario.decode_tokens=4"
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "shop.jsonl"
    turns = ([{"role": "user", "content": f"Question {n}?"}, {"role": "assistant", "content": f"Answer {n * 37 % 101}."}] for n in range(12))
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in turns), encoding="utf-8")
    return path


def words(bundle: Path, data: Path, workspace: Path, *more: str) -> list[str]:
    return ["tune", str(data), "--steps", str(STEPS), "--threads", "1", "--json", "--workspace", str(workspace), "--bundle", str(bundle), *more]


def in_child(run: Callable[[], int], said: Path | None = None) -> int:
    """Exit code of `run` in a process of its own, negative for a signal; what it says goes to `said`."""
    child = os.fork()
    if not child:
        code = 99
        with open(said or os.devnull, "w", encoding="utf-8") as words, contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            try:
                code = run()
            except BaseException:
                traceback.print_exc()
            finally:
                words.flush()
                os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def tune(bundle: Path, data: Path, workspace: Path, *more: str, layer: Recording | None = None, said: Path | None = None) -> int:
    def run() -> int:
        with use_layer(layer or Recording()):
            return main(words(bundle, data, workspace, *more))

    return in_child(run, said)


def payload(bundle: Path, workspace: Path) -> str:
    """Checksum of the newest version's weights."""
    store = VersionStore(workspace / "versions", bundle / "model.gguf")
    return read_version_block(GgufFile.open(store.model_path(store.ids()[-1]))).payload_sha256


@dataclass(frozen=True)
class Finished:
    """How a run ends that nobody stops."""

    code: int
    """0 or 3, by the verdict on the version"""
    payload: str


@pytest.fixture(scope="module")
def uninterrupted(bundle, data, tmp_path_factory) -> Finished:
    workspace = tmp_path_factory.mktemp("uninterrupted") / "work"
    code = tune(bundle, data, workspace)
    assert code in (0, NotPromoted.exit_code)
    return Finished(code, payload(bundle, workspace))


def check_goes_on(bundle: Path, data: Path, workspace: Path, wanted: Finished) -> None:
    """The workspace is sound, and the run ends as if it had never been stopped."""
    store = VersionStore(workspace / "versions", bundle / "model.gguf")
    assert store.open().notices == () and store.listing().notices == ()
    goes_on = checkpoint.load_newest(Workspace(workspace).tune_dir) is not None
    assert tune(bundle, data, workspace, "--resume") == (wanted.code if goes_on else UserError.exit_code)
    if not store.ids():  # stopped before the first checkpoint
        assert not goes_on and tune(bundle, data, workspace) == wanted.code
    assert payload(bundle, workspace) == wanted.payload
    assert AuditLog(workspace / "audit.jsonl").verify().holds and store.open().notices == ()


@pytest.fixture(scope="module")
def operations(bundle, data, tmp_path_factory) -> int:
    """How many operations of the storage a whole run takes."""
    folder = tmp_path_factory.mktemp("count")

    def count() -> int:
        layer = Recording()
        with use_layer(layer):
            main(words(bundle, data, folder / "work"))
        (folder / "count").write_text(str(len(layer.log)))
        return 0

    assert in_child(count) == 0
    found = int((folder / "count").read_text())
    assert found > 50
    return found


@pytest.mark.parametrize(
    ("error", "harmless", "reason", "stride"),
    [
        pytest.param(errno.ENOSPC, ("unlink", "rmdir", "fsync_directory"), "storage is full", 2, id="full disk"),
        pytest.param(errno.EROFS, (), "read-only", 5, id="read-only"),
    ],
)
def test_tune_on_a_storage_that_refuses_says_so_and_goes_on_when_it_is_well_again(
    bundle, data, uninterrupted, operations, tmp_path, error, harmless, reason, stride
):  # fmt: skip
    for number in range(1, operations + 1, stride):
        workspace, said = tmp_path / "victim", tmp_path / "said"
        shutil.rmtree(workspace, ignore_errors=True)
        code = tune(bundle, data, workspace, layer=failing_layer(number, error, harmless), said=said)
        text = said.read_text(encoding="utf-8")
        assert "Traceback" not in text and (code == uninterrupted.code or (code == UserError.exit_code and reason in text)), (number, text)
        check_goes_on(bundle, data, workspace, uninterrupted)


def test_tune_whose_bundle_vanishes_says_so_and_goes_on_when_it_is_back(bundle, data, uninterrupted, operations, tmp_path):
    fragile = tmp_path / "bundle"
    shutil.copytree(bundle, fragile)
    refused = 0
    for number in range(1, operations + 1, 5):
        workspace, said = tmp_path / "victim", tmp_path / "said"
        shutil.rmtree(workspace, ignore_errors=True)

        def before(n: int, _name: str, _arguments: tuple, number: int = number) -> None:
            if n == number:
                fragile.rename(tmp_path / "away")

        code = tune(fragile, data, workspace, layer=Recording(before), said=said)
        (tmp_path / "away").rename(fragile)
        text = said.read_text(encoding="utf-8")
        assert "Traceback" not in text and code in (uninterrupted.code, UserError.exit_code), (number, text)
        refused += code == UserError.exit_code
        check_goes_on(fragile, data, workspace, uninterrupted)
    assert refused


def test_tune_killed_at_any_operation_of_the_storage_goes_on_to_the_same_weights(bundle, data, uninterrupted, operations, tmp_path):
    for number in range(1, operations + 1):
        workspace = tmp_path / "victim"
        shutil.rmtree(workspace, ignore_errors=True)

        def before(n: int, _name: str, _arguments: tuple, number: int = number) -> None:
            if n == number:
                os.kill(os.getpid(), signal.SIGKILL)

        assert tune(bundle, data, workspace, layer=Recording(before)) == -signal.SIGKILL
        check_goes_on(bundle, data, workspace, uninterrupted)


def test_tune_killed_at_random_moments_again_and_again_goes_on_to_the_same_weights(bundle, data, uninterrupted, tmp_path):
    """A real process each time; whenever a run got through, the next one starts in a new workspace."""
    chance = random.Random(0)
    command = [sys.executable, str(bundle / "mft.pyz")]
    begun = os.times().elapsed
    subprocess.run([*command, *words(bundle, data, tmp_path / "timed")], capture_output=True, check=False)
    duration, kills, run = os.times().elapsed - begun, 0, 0
    while kills < RANDOM_KILLS:
        run, workspace, resume = run + 1, tmp_path / f"run{run}", ()
        while kills < RANDOM_KILLS:
            process = subprocess.Popen([*command, *words(bundle, data, workspace, *resume)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                code = process.wait(duration * chance.uniform(START_SHARE, 1.0))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += process.wait() == -signal.SIGKILL
                assert VersionStore(workspace / "versions", bundle / "model.gguf").open().notices == ()
                resume = ("--resume",)
                continue
            if code == UserError.exit_code and resume:
                resume = ()  # killed before the first checkpoint, or when all was done
                if (workspace / "versions").is_dir() and VersionStore(workspace / "versions", bundle / "model.gguf").ids():
                    break
                continue
            assert code == uninterrupted.code
            break
        check_goes_on(bundle, data, workspace, uninterrupted)
        shutil.rmtree(workspace)
