"""Storage that fails at any moment of an ingest run: the cache is whole or absent, and the next run completes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from mobilefinetuner.runtime.data import TrainingCache
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.storage.durable import FileLayer, use_layer

from tests.support.ingesting import cache_of, jsonl, row, take_in

CHANGES = ("create", "write", "fsync", "replace", "fsync_directory", "mkdir")


class FailingLayer(FileLayer):
    """Fails at the n-th change, as a full or vanished storage does; n = None only counts."""

    def __init__(self, fails_at: int | None, code: int = errno.ENOSPC) -> None:
        self.calls, self._fails_at, self._code = 0, fails_at, code

    def __getattribute__(self, name: str):
        method = object.__getattribute__(self, name)
        if name not in CHANGES:
            return method

        def counted(*arguments):
            self.calls += 1
            if self.calls == self._fails_at:
                raise OSError(self._code, "injected")
            return method(*arguments)

        return counted


def _data(folder: Path) -> Path:
    return jsonl(folder / "a.jsonl", *(row(f"Question {n}?", f"Answer {n}.") for n in range(20)))


def _changes(folder: Path) -> int:
    layer = FailingLayer(None)
    with use_layer(layer):
        take_in(_data(folder), folder / "count" / "cache")
    return layer.calls


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_failure_at_every_change_of_storage_leaves_no_half_cache_and_the_next_run_completes(tmp_path: Path, code: int) -> None:
    changes = _changes(tmp_path)
    assert changes >= 6
    for fails_at in range(1, changes + 1):
        cache_dir = tmp_path / f"{fails_at}" / "cache"
        with use_layer(FailingLayer(fails_at, code)), pytest.raises(UserError):
            take_in(_data(tmp_path), cache_dir)
        for left in cache_dir.glob("*.mftcache"):
            TrainingCache.load(left)  # it may be there, when only the directory's flush failed, but then it is whole
        report = take_in(_data(tmp_path), cache_dir)
        assert len(cache_of(report).samples("train")) + len(cache_of(report).samples("heldout")) == 20


def test_failure_while_a_cache_is_rewritten_keeps_the_old_one(tmp_path: Path) -> None:
    old = Path(take_in(_data(tmp_path), tmp_path / "cache", train={"epochs": 1}).cache)
    content = old.read_bytes()
    with use_layer(FailingLayer(3)), pytest.raises(UserError, match="storage is full"):
        take_in(_data(tmp_path), tmp_path / "cache", train={"epochs": 2})
    assert old.read_bytes() == content and [path.name for path in (tmp_path / "cache").iterdir()] == [old.name]
