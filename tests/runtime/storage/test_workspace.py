"""The workspace: where it may be, whose it is, and what a dead owner leaves behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys

import pytest
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.storage.durable import FileLayer, use_layer, write_sealed_json
from mobilefinetuner.runtime.storage.workspace import Owner, Workspace, _boot_id, _started_ticks

HOLDER = """
import sys, time
from mobilefinetuner.runtime.storage.workspace import Workspace
with Workspace(sys.argv[1]).locked("tune"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the workspace until its stdin closes."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "ws")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_making_the_object_writes_nothing_and_locking_makes_the_layout(tmp_path):
    workspace = Workspace(tmp_path / "deep" / "ws", bundle=tmp_path / "bundle")
    assert not (tmp_path / "deep").exists() and not workspace.exists()
    with workspace.locked("tune"):
        assert workspace.versions_dir.is_dir() and workspace.runs_dir.is_dir() and workspace.cache_dir.is_dir()
    assert workspace.exists()


@pytest.mark.parametrize("place", ["bundle", "bundle/ws", "bundle/../bundle/a/b", "link/ws"])
def test_a_workspace_inside_the_bundle_is_refused(tmp_path, place):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "bundle")
    with pytest.raises(UserError, match="inside the bundle"):
        Workspace(tmp_path / place, bundle=tmp_path / "bundle")


def test_a_folder_with_other_files_a_file_and_a_newer_workspace_are_refused(tmp_path):
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other files"):
        Workspace(tmp_path)
    with pytest.raises(UserError, match="not a directory"):
        Workspace(tmp_path / "letters.txt")
    (tmp_path / "new").mkdir()
    write_sealed_json(tmp_path / "new" / "workspace.json", {"format": 9})
    with pytest.raises(UserError, match="workspace format 9; allowed: format 1"):
        Workspace(tmp_path / "new")


def test_a_second_process_is_refused_and_told_who_holds_the_workspace(tmp_path, holder):
    refused = pytest.raises(UserError, match=rf"in use by 'tune' \(process {holder.pid}, since 20")
    with refused as caught, Workspace(tmp_path / "ws").locked("rollback"):
        pass
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


def test_the_lock_of_a_killed_owner_is_not_in_the_way(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert json.loads((tmp_path / "ws" / "lock").read_text())["pid"] == holder.pid
    with Workspace(tmp_path / "ws").locked("rollback"):
        pass


def test_the_lock_is_free_again_after_the_block_even_when_it_raised(tmp_path):
    workspace = Workspace(tmp_path / "ws")
    with pytest.raises(KeyError), workspace.locked("tune"):
        raise KeyError
    with workspace.locked("tune"), pytest.raises(UserError, match="holds the workspace already"), Workspace(tmp_path / "ws").locked("tune"):
        pass


def test_where_the_file_system_has_no_locks_the_recorded_owner_decides(tmp_path, holder, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(UserError, match=f"process {holder.pid}"), Workspace(tmp_path / "ws").locked("rollback"):
        pass
    holder.kill()
    holder.wait()
    with Workspace(tmp_path / "ws").locked("rollback"):
        pass


def test_a_process_number_used_again_is_not_the_owner():
    alive = Owner(os.getpid(), _started_ticks(os.getpid()), _boot_id(), "tune", "now")
    assert alive.is_alive()
    assert not Owner(os.getpid(), alive.started_ticks + 1, alive.boot, "tune", "before").is_alive()
    assert not Owner(os.getpid(), alive.started_ticks, "another boot", "tune", "before").is_alive()


def test_leftovers_of_killed_processes_are_removed_under_the_lock(tmp_path):
    workspace = Workspace(tmp_path / "ws")
    with workspace.locked("tune"):
        pass
    staged = workspace.versions_dir / ".v0001.mft-tmp"
    staged.mkdir()
    (staged / "model.gguf").write_bytes(b"half")
    (workspace.runs_dir / ".checkpoint-1.mftc.77.mft-tmp").write_bytes(b"half")
    (workspace.runs_dir / "notes.tmp").write_bytes(b"not ours")
    with workspace.locked("tune"):
        assert not staged.exists()
        assert os.listdir(workspace.runs_dir) == ["notes.tmp"]


@pytest.mark.parametrize(("number", "reason"), [(errno.EROFS, "read-only"), (errno.EACCES, "read-only"), (errno.ENOSPC, "full")])
def test_a_workspace_that_cannot_be_written_is_the_users_to_put_right(tmp_path, number, reason):
    class Refusing(FileLayer):
        def refuse(self, *_):
            raise OSError(number, os.strerror(number))

        create = mkdir = open_to_lock = refuse

    with use_layer(Refusing()), pytest.raises(UserError, match=reason), Workspace(tmp_path / "ws").locked("tune"):
        pass
    assert not (tmp_path / "ws").exists()
