"""Which training caches of a workspace stay."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from mobilefinetuner.runtime.data.old_caches import CACHES_KEPT, prune_caches
from mobilefinetuner.runtime.data.options import add_arguments
from mobilefinetuner.runtime.ingest import run_ingest
from mobilefinetuner.runtime.session import Session
from mobilefinetuner.runtime.storage import checkpoint

from tests.support.ingesting import jsonl, row


def _caches(folder: Path, count: int) -> list[str]:
    """Fingerprints of caches, oldest first."""
    folder.mkdir()
    fingerprints = [f"{number:02x}" * 32 for number in range(count)]
    for age, fingerprint in enumerate(fingerprints):
        path = folder / f"{fingerprint[:16]}.mftcache"
        path.write_bytes(b"cache")
        os.utime(path, ns=(age * 10**9, age * 10**9))
    return fingerprints


def _left(folder: Path, fingerprints: list[str]) -> list[int]:
    return [number for number, fingerprint in enumerate(fingerprints) if (folder / f"{fingerprint[:16]}.mftcache").exists()]


def test_newest_few_stay_and_those_that_versions_refer_to(tmp_path: Path) -> None:
    found = _caches(tmp_path / "cache", 8)
    gone = prune_caches(tmp_path / "cache", [found[0], found[7], "imported"], tmp_path / "runs")
    assert _left(tmp_path / "cache", found) == [0, 4, 5, 6, 7] and len(gone) == 3


def test_cache_that_a_checkpoint_needs_stays(tmp_path: Path) -> None:
    found = _caches(tmp_path / "cache", 6)
    checkpoint.save(tmp_path / "runs" / "tune", {"adapter": np.zeros(4, np.float32)}, {"identity": {"data": found[1]}})
    prune_caches(tmp_path / "cache", [], tmp_path / "runs")
    assert _left(tmp_path / "cache", found) == [1, 3, 4, 5]


def test_few_caches_all_stay(tmp_path: Path) -> None:
    found = _caches(tmp_path / "cache", CACHES_KEPT)
    assert prune_caches(tmp_path / "cache", [], tmp_path / "runs") == []
    assert len(_left(tmp_path / "cache", found)) == CACHES_KEPT


def test_ingest_removes_old_caches_says_so_and_keeps_its_own(tiny_bundle_path: Path, tmp_path: Path, capsys) -> None:
    session = Session.open(tiny_bundle_path, tmp_path / "work", as_json=False, threads=1)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    data = jsonl(tmp_path / "a.jsonl", *(row(f"Question {n}?", f"Answer {n}.") for n in range(20)))
    reports = []
    with session.workspace.locked("ingest"):
        for age in range(CACHES_KEPT + 3):
            reports.append(run_ingest(session, [data], parser.parse_args(["--me", f"{age}"])))
            os.utime(reports[-1].cache, ns=(age * 10**9, age * 10**9))
        again = run_ingest(session, [data], parser.parse_args(["--me", "2"]))
    assert again.reused
    names = [Path(report.cache).name for report in reports]
    assert sorted(path.name for path in session.workspace.cache_dir.iterdir()) == sorted(names[2:])
    assert [record.facts["caches"] for record in session.audit.records() if record.event == "caches_removed"] == [[names[0]], [names[1]]]
    assert "removed 1 old training cache that no version refers to" in capsys.readouterr().err


def test_damaged_version_record_keeps_every_cache(tiny_bundle_path: Path, tmp_path: Path) -> None:
    session = Session.open(tiny_bundle_path, tmp_path / "work", as_json=False, threads=1)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    data = jsonl(tmp_path / "a.jsonl", *(row(f"Question {n}?", f"Answer {n}.") for n in range(20)))
    with session.workspace.locked("ingest"):
        (session.workspace.versions_dir / "v0001").mkdir()
        for number in range(CACHES_KEPT + 2):
            run_ingest(session, [data], parser.parse_args(["--me", f"{number}"]))
    assert len(list(session.workspace.cache_dir.iterdir())) == CACHES_KEPT + 2
