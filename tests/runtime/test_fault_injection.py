"""Stop the store at every system call that changes storage: by SIGKILL, by a full disk, by a read-only one.

After each stop the workspace opens, the current version is intact, no older state is lost, and doing the same again
ends with the same bytes as never having been stopped.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.storage import checkpoint, durable
from mobilefinetuner.runtime.storage.audit import AuditLog
from mobilefinetuner.runtime.storage.durable import TEMPORARY_SUFFIX, FileLayer, use_layer
from mobilefinetuner.runtime.storage.workspace import Workspace
from mobilefinetuner.runtime.versions.store import VersionStore

from tests.support.failing_storage import Recording, failing_layer
from tests.support.small_models import add_version, make_base_model, mount_version


class Store:
    """A workspace with its parts, at a path that is copied for every stop."""

    def __init__(self, path: Path) -> None:
        self.workspace = Workspace(path / "ws", bundle=path / "bundle")
        self.versions = VersionStore(self.workspace.versions_dir, path / "bundle" / "model.gguf")
        self.audit = AuditLog(self.workspace.audit_path, now=lambda: 1_700_000_000)
        self.run = self.workspace.runs_dir / "run"

    def state(self) -> dict[str, bytes]:
        path = self.workspace.path
        return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file() and file.name != "lock"}


def arrays(step: int) -> dict[str, np.ndarray]:
    return {"adapter": np.full(9, step, np.float32), "m": np.arange(9, dtype=np.float32)}


def prepare(path: Path) -> Store:
    (path / "bundle").mkdir()
    make_base_model(path / "bundle" / "model.gguf")
    store = Store(path)
    with store.workspace.locked("prepare"):
        add_version(store.versions, "base", 1)
        add_version(store.versions, "v0001", 2)
        checkpoint.save(store.run, arrays(1), {"step": 1})
        checkpoint.save(store.run, arrays(2), {"step": 2})
        store.audit.append("trained", steps=2)
    return store


# Each action may be repeated: what a stopped one has finished already is not done twice.


def save_checkpoint(store: Store) -> None:
    if checkpoint.load_newest(store.run).meta["step"] < 3:
        checkpoint.save(store.run, arrays(3), {"step": 3})


def merge(store: Store) -> None:
    if "v0003" not in store.versions.ids():
        add_version(store.versions, "v0002", 3, verdict=None)


def merge_judge_and_promote(store: Store) -> None:
    merge(store)
    if store.versions.record("v0003").verdict == "unverified":
        store.versions.judge("v0003", "promote", ("better",), {"recall": 0.5})
    if store.versions.current_id() != "v0003":
        store.versions.promote("v0003")


def mount(store: Store) -> None:
    if "v0003" not in store.versions.ids():
        mount_version(store.versions, "v0002", 3)
    if store.versions.record("v0003").verdict == "unverified":
        store.versions.judge("v0003", "promote", ("better",), {"recall": 0.5})
    if store.versions.current_id() != "v0003":
        store.versions.promote("v0003")


def roll_back(store: Store) -> None:
    if store.versions.current_id() == "v0002":
        store.versions.rollback()


def prune(store: Store) -> None:
    store.versions.prune(0)


def append_to_audit(store: Store) -> None:
    if [record.event for record in store.audit.records()][-1] != "merged":
        store.audit.append("merged", version="v0002")


ACTIONS = [save_checkpoint, merge, merge_judge_and_promote, mount, roll_back, prune, append_to_audit]


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("template")
    prepare(path)
    return path


def copy_of(template: Path, target: Path) -> Store:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(template, target)
    return Store(target)


def settled_state(store: Store) -> dict[str, bytes]:
    """After the run has gone on to its next checkpoint: that is when old ones rotate away."""
    checkpoint.save(store.run, arrays(4), {"step": 4})
    return store.state()


def operations_of(action, store: Store) -> list[tuple[str, tuple]]:
    layer = Recording()
    with store.workspace.locked("count"), use_layer(layer):
        action(store)
    return layer.log


def check_is_sound(store: Store, template: Path) -> None:
    """Everything opens, and what was there before is there or was replaced by something whole."""
    with store.workspace.locked("check"):
        assert not list(store.workspace.path.rglob(f"*{TEMPORARY_SUFFIX}"))
    opened = store.versions.open()
    assert opened.notices == () and opened.id in ("v0001", "v0002", "v0003")
    assert store.versions.listing().notices == ()
    newest = checkpoint.load_newest(store.run)
    assert newest.passed_over == () and newest.meta["step"] in (2, 3)
    np.testing.assert_array_equal(newest.state["adapter"], arrays(newest.meta["step"])["adapter"])
    assert store.audit.verify().holds
    assert next(store.audit.records()).event == "trained"


def check_ends_alike(action, store: Store, expected: dict[str, bytes]) -> None:
    """Done again it equals the uninterrupted result; a repaired torn audit line is the one trace there may be."""
    with store.workspace.locked("again"):
        action(store)
    state = settled_state(store)
    if [record.event for record in store.audit.records()].count("torn_line_dropped"):
        assert store.audit.verify().holds and [record.event for record in store.audit.records()][-1] == "merged"
        state["audit.jsonl"] = expected["audit.jsonl"]
    assert state == expected


def run_and_kill(store: Store, action, number: int, half: bool) -> None:
    """In a child process: SIGKILL itself ahead of operation `number`, or with half of its bytes written."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
        return

    def before(count: int, name: str, arguments: tuple) -> None:
        if count == number:
            if half:
                os.write(arguments[0], arguments[1][: max(1, arguments[1].nbytes // 2)])
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        with store.workspace.locked("victim"), use_layer(Recording(before)):
            action(store)
    finally:
        os._exit(1)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_a_kill_at_any_operation_loses_nothing_and_the_action_can_be_done_again(template, tmp_path, action):
    finished = copy_of(template, tmp_path / "finished")
    log = operations_of(action, finished)
    expected = settled_state(finished)
    assert len(log) >= 2 and expected != Store(template).state()
    for number, (name, _) in enumerate(log, start=1):
        for half in (False, True) if name == "write" else (False,):
            store = copy_of(template, tmp_path / "victim")
            run_and_kill(store, action, number, half)
            check_is_sound(store, template)
            check_ends_alike(action, store, expected)


@pytest.mark.parametrize(
    ("error", "harmless", "reason"),
    [
        pytest.param(errno.ENOSPC, ("unlink", "rmdir", "fsync_directory"), "storage is full", id="full disk"),
        pytest.param(errno.EROFS, (), "read-only", id="read-only"),
        pytest.param(errno.EIO, (), "storage refuses", id="failing disk"),
    ],
)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_a_storage_that_refuses_at_any_operation_is_one_sentence_and_loses_nothing(template, tmp_path, action, error, harmless, reason):
    finished = copy_of(template, tmp_path / "finished")
    log = operations_of(action, finished)
    expected, refused = settled_state(finished), 0
    for number in range(1, len(log) + 1):
        store = copy_of(template, tmp_path / "victim")
        try:
            with store.workspace.locked("victim"), use_layer(failing_layer(number, error, harmless)):
                action(store)
        except UserError as caught:
            refused += 1
            assert reason in str(caught) and "\n" not in str(caught)
        check_is_sound(store, template)
        check_ends_alike(action, store, expected)
    # Pruning is how a full disk is freed, so it needs nothing from it; of the others only harmless last steps may pass.
    assert refused == 0 if action is prune and error == errno.ENOSPC else refused >= len(log) // 2


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_nothing_is_renamed_before_it_is_flushed_and_every_rename_is_flushed_after(template, tmp_path, action):
    store = copy_of(template, tmp_path / "store")
    opened: dict[Path, int] = {}
    dirty: set[int] = set()
    unflushed_directories: set[Path] = set()

    class Watching(Recording):
        def create(self, path):
            opened[path] = super().create(path)
            dirty.add(opened[path])
            return opened[path]

        def replace(self, source, target):
            assert source.parent == target.parent
            assert source.is_dir() or opened[source] not in dirty, f"{source} renamed before it was flushed"
            super().replace(source, target)
            unflushed_directories.add(target.parent)

    def before(number: int, name: str, arguments: tuple) -> None:
        if name == "write":
            dirty.add(arguments[0])
        elif name == "fsync":
            dirty.discard(arguments[0])
        elif name == "fsync_directory":
            unflushed_directories.discard(arguments[0])

    with store.workspace.locked("watch"), use_layer(Watching(before)):
        action(store)
    assert not unflushed_directories and not dirty


def test_storage_that_gives_back_other_bytes_is_noticed_before_the_old_file_is_replaced(tmp_path):
    class Lying(FileLayer):
        def write(self, descriptor, data):
            return os.write(descriptor, bytes(data).replace(b"new", b"nev"))

    durable.write_bytes(tmp_path / "file", b"old")
    with use_layer(Lying()), pytest.raises(UserError, match="other bytes"):
        durable.write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_short_writes_are_continued(tmp_path):
    class Slow(FileLayer):
        def write(self, descriptor, data):
            return os.write(descriptor, data[:3])

    with use_layer(Slow()):
        durable.write_bytes(tmp_path / "file", b"a longer text")
    assert (tmp_path / "file").read_bytes() == b"a longer text"


def test_an_interrupted_block_leaves_the_old_file_and_nothing_else(tmp_path):
    durable.write_json(tmp_path / "file.json", {"b": 1, "a": "é"})
    assert (tmp_path / "file.json").read_text() == '{\n "a": "é",\n "b": 1\n}\n'
    before = (tmp_path / "file.json").read_bytes()
    with pytest.raises(KeyboardInterrupt), durable.DurableFile(tmp_path / "file.json") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert (tmp_path / "file.json").read_bytes() == before and len(list(tmp_path.iterdir())) == 1
