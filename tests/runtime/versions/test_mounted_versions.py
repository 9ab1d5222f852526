"""Versions that are an adapter beside older weights: what they stand on stays, and is checked."""

from __future__ import annotations

import pytest
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.versions.store import VersionStore

from tests.support.small_models import add_version, make_base_model, make_small_adapter, mount_version


@pytest.fixture
def store(tmp_path) -> VersionStore:
    return VersionStore(tmp_path / "versions", make_base_model(tmp_path / "base.gguf"))


def mounted(store: VersionStore, on: str, seed: int) -> str:
    version_id = mount_version(store, on, seed)
    store.judge(version_id, "promote", (), {})
    store.promote(version_id)
    return version_id


def test_a_mounted_version_opens_with_the_weights_it_stands_on_and_its_adapter(store):
    first = add_version(store, "base", 1)
    second = mounted(store, first, 2)
    opened = store.open()
    assert (opened.id, opened.model.path, opened.notices) == (second, store.directory / first / "model.gguf", ())
    assert opened.adapter.digest() == make_small_adapter(2).digest() == store.record(second).adapter_digest
    assert store.open(first).adapter is None and store.open("base").adapter is None


def test_what_is_mounted_on_a_mounted_version_stands_on_the_same_weights(store):
    second = mounted(store, mounted(store, "base", 1), 2)
    record = store.record(second)
    assert (record.parent, record.mounted_on) == ("v0001", "base")
    assert record.model_bytes < store.base_model.stat().st_size


def test_pruning_keeps_the_weights_that_a_kept_version_stands_on(store):
    first, second = add_version(store, "base", 1), add_version(store, "base", 2)
    third = mounted(store, first, 3)
    assert store.prune(1)[0] == [second]
    assert store.fault(third) == store.fault(first) == ""
    store.rollback(first)
    pruned, freed = store.prune(0)
    assert pruned == [third] and freed > 0
    assert store.fault(third) == "its weights were pruned" and store.is_pruned(third) and store.fault(first) == ""


def test_other_weights_under_a_mounted_version_are_noticed_and_the_base_takes_its_place(store):
    mounted(store, "base", 1)
    raw = bytearray(store.base_model.read_bytes())
    raw[-1] ^= 1
    store.base_model.write_bytes(raw)
    opened = store.open()
    assert opened.id == "base" and "are other ones than at that time" in opened.notices[0]
    with pytest.raises(UserError, match="other ones"):
        store.open("v0001")
