"""What a verdict changes: the version's record, the audit log, and which version is in use."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from mobilefinetuner.runtime.storage.audit import AuditLog
from mobilefinetuner.runtime.verify.verification import Judgement, Scores
from mobilefinetuner.runtime.verify.versions import decide, heldout_of
from mobilefinetuner.runtime.versions.store import VersionStore
from mobilefinetuner.runtime.versions.version_block import IMPORTED

from tests.support.small_models import add_version, make_base_model

BEFORE, AFTER = Scores(2.0, (), ()), Scores(1.5, (), ())
SCORES = {"heldout_loss": 1.5, "heldout_loss_before": 2.0, "entity_recall": 0.0, "entity_recall_before": 0.0}
UNMEASURED = Scores(None, (), ())


@pytest.fixture
def store(tmp_path) -> VersionStore:
    """v0001 is in use; v0002 waits for its verdict."""
    found = VersionStore(tmp_path / "versions", make_base_model(tmp_path / "model.gguf"))
    add_version(found, "base", 1)
    add_version(found, "v0001", 2, verdict=None)
    return found


@pytest.fixture
def audit(tmp_path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")


@pytest.mark.parametrize(
    ("verdict", "current", "events"),
    [
        pytest.param("promote", "v0002", ["verified", "promoted"], id="promote"),
        pytest.param("warn", "v0002", ["verified", "promoted"], id="warn"),
        pytest.param("keep", "v0001", ["verified"], id="keep"),
    ],
)
def test_a_version_becomes_current_unless_the_verdict_is_keep(store, audit, verdict, current, events):
    judgement = Judgement(verdict, ("because of this", "and of that"), BEFORE, AFTER)
    assert decide(store, audit, store.record("v0002"), judgement) == (current == "v0002")
    assert store.current_id() == current
    record = store.record("v0002")
    assert (record.verdict, record.reasons, record.scores) == (verdict, judgement.reasons, SCORES)
    written = list(audit.records())
    assert [line.event for line in written] == events and all(line.facts["version"] == "v0002" for line in written)
    assert written[0].facts == {"version": "v0002", "verdict": verdict, **SCORES}


def test_a_new_verdict_replaces_the_old_one(store, audit):
    for verdict in ("keep", "promote"):
        decide(store, audit, store.record("v0002"), Judgement(verdict, (verdict,), BEFORE, AFTER))
    assert (store.current_id(), store.record("v0002").verdict, store.record("v0002").reasons) == ("v0002", "promote", ("promote",))


def test_what_was_not_measured_is_not_recorded(store, audit):
    decide(store, audit, store.record("v0002"), Judgement("warn", ("nothing held back",), UNMEASURED, UNMEASURED))
    assert store.record("v0002").scores == {"entity_recall": 0.0, "entity_recall_before": 0.0}


@pytest.mark.parametrize(
    ("fingerprint", "caches", "expected"),
    [
        pytest.param("b" * 64, ("a", "b"), "heldout of b", id="a trained version: its own data"),
        pytest.param(IMPORTED, ("a", "b"), "heldout of b", id="an imported version: the newest data"),
        pytest.param(IMPORTED, (), (), id="an imported version without data: nothing"),
    ],
)
def test_a_version_is_measured_on_its_own_data_and_an_imported_one_on_the_newest(monkeypatch, tmp_path, fingerprint, caches, expected):
    def opened(name: str) -> SimpleNamespace:
        return SimpleNamespace(samples=lambda split: f"{split} of {name}")

    module = "mobilefinetuner.runtime.verify.versions"
    monkeypatch.setattr(f"{module}.cache_of", lambda _folder, wanted: opened(wanted[0]))
    monkeypatch.setattr(f"{module}.caches_in", lambda _folder: list(caches))
    monkeypatch.setattr(f"{module}.TrainingCache", SimpleNamespace(load=opened))
    assert heldout_of(tmp_path, fingerprint) == expected
