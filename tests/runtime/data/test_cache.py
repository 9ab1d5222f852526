"""The training cache file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.cache import CacheWriter, TrainingCache
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.storage.durable import TEMPORARY_SUFFIX

SAMPLES = st.lists(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans()), min_size=1, max_size=30), max_size=8)


def _write(folder: Path, samples: list[list[tuple[int, bool]]], heldout: set[int] | None = None, **header) -> Path:
    writer = CacheWriter(folder)
    for n, sample in enumerate(samples):
        ids, mask = (np.array(column) for column in zip(*sample))
        writer.add(ids.astype(np.int32), mask.astype(np.uint8), n, 0, 10 + n, heldout=n % 3 == 0)
    writer.add_line("decisions", {"rule": "x", "excerpt": "… ‘é’ 好"})
    path = folder / "cache" / "a.mftcache"
    writer.finish(path, {"fingerprint": "f", "sources": [{"name": "file.jsonl"}], "report": {}, **header}, heldout)
    writer.close()
    return path


@settings(max_examples=60, deadline=None)
@given(SAMPLES)
def test_samples_come_back_as_they_were_written(tmp_path_factory, samples) -> None:
    cache = TrainingCache.load(_write(tmp_path_factory.mktemp("cache"), samples))
    back = {sample.record: sample for split in ("train", "heldout") for sample in cache.samples(split)}
    assert sorted(back) == list(range(len(samples)))
    for n, sample in enumerate(samples):
        assert back[n].token_ids.dtype == np.int32 and back[n].label_mask.dtype == np.uint8
        assert list(zip(back[n].token_ids.tolist(), back[n].label_mask.astype(bool).tolist())) == sample
        assert cache.provenance(n) == ("file.jsonl", 10 + n)
    assert [sample.record for sample in cache.samples("heldout")] == [n for n in range(len(samples)) if n % 3 == 0]
    assert list(cache.decisions()) == [{"rule": "x", "excerpt": "… ‘é’ 好"}]


def test_heldout_records_can_be_settled_at_the_end(tmp_path: Path) -> None:
    cache = TrainingCache.load(_write(tmp_path, [[(1, True)]] * 5, heldout={2}))
    assert [sample.record for sample in cache.samples("heldout")] == [2]
    assert [sample.record for sample in cache.samples("train")[1:]] == [1, 3, 4]


def test_equal_input_gives_equal_bytes_and_nothing_temporary_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    one, two = (_write(tmp_path / name, [[(1, False), (2, True)]]) for name in "ab")
    assert one.read_bytes() == two.read_bytes()
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(TEMPORARY_SUFFIX)]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_cut_off_or_damaged_cache_is_refused(tmp_path_factory, data: st.DataObject) -> None:
    path = _write(tmp_path_factory.mktemp("cache"), [[(1, False), (2, True)], [(3, True)]])
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(UserError, match="run ingest again"):
        TrainingCache.load(path)


def test_cache_of_another_version_is_named_with_both_versions(tmp_path: Path) -> None:
    path = _write(tmp_path, [[(1, True)]])
    content = bytearray(path.read_bytes())
    content[8] = 99
    path.write_bytes(content)
    with pytest.raises(UserError, match="version 99, this runtime reads 1"):
        TrainingCache.load(path)


def test_missing_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        TrainingCache.load(tmp_path / "none")
