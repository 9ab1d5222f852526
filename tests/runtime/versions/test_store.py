"""The version store: lineage, switching, pruning, and what damage does to it."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.versions.store import VersionStore
from mobilefinetuner.runtime.versions.version_block import payload_is_intact, read_version_block

from tests.support.small_models import ADAPTED, add_version, make_base_model, make_block, make_small_adapter


@pytest.fixture
def store(tmp_path) -> VersionStore:
    (tmp_path / "bundle").mkdir()
    return VersionStore(tmp_path / "ws" / "versions", make_base_model(tmp_path / "bundle" / "model.gguf"))


@pytest.fixture
def three(store) -> VersionStore:
    """base → v0001 → v0002 → v0003, the last one current."""
    for seed, parent in enumerate(["base", "v0001", "v0002"]):
        add_version(store, parent, seed)
    return store


def flip_bit(path, position: int = -40) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 4
    path.write_bytes(raw)


def test_a_fresh_store_uses_the_base_and_has_made_nothing(store):
    assert store.current_id() == "base" and store.ids() == [] and store.next_id() == "v0001"
    assert store.open().id == "base" and store.open().notices == ()
    assert not store.directory.exists()


def test_a_version_keeps_its_model_adapter_record_and_lineage(three):
    listing = three.listing()
    assert listing.current == "v0003" and [(v.id, v.parent) for v in listing.versions] == [("v0001", "base"), ("v0002", "v0001"), ("v0003", "v0002")]
    assert sorted(path.name for path in (three.directory / "v0002").iterdir()) == ["adapter.bin", "adapter.json", "model.gguf", "version.json"]
    opened = three.open("v0002")
    block, record = read_version_block(opened.model), three.record("v0002")
    assert (block.id, block.parent, block.adapter_digest) == ("v0002", "v0001", record.adapter_digest)
    assert payload_is_intact(opened.model) and AdapterTensors.load(three.directory / "v0002").digest() == record.adapter_digest
    assert record.recipe == {"train": {"seed": 1}} and record.verdict == "promote" and record.scores == {"recall": 0.6}
    as_json = json.loads(json.dumps(listing.as_json()))
    assert as_json["current"] == "v0003" and {"id", "parent", "created", "bytes", "verdict", "scores"} <= set(as_json["versions"][0])


def test_rollback_goes_to_the_parent_and_forwards_again(three):
    assert (three.rollback().before, three.current_id()) == ("v0003", "v0002")
    assert (three.rollback().after, three.rollback().after) == ("v0001", "base")
    with pytest.raises(UserError, match="nothing before it"):
        three.rollback()
    assert three.rollback("v0003").after == three.current_id() == three.open().id == "v0003"
    assert three.rollback("base").after == three.current_id() == "base"


def test_a_version_trained_after_a_rollback_has_the_older_parent_and_a_new_id(three):
    three.rollback("v0001")
    add_version(three, "v0001", 7)
    assert (three.current_id(), three.record("v0004").parent) == ("v0004", "v0001")
    assert three.rollback().after == "v0001"


@pytest.mark.parametrize("name", ["v0009", "../v0001", "", "current"])
def test_an_unknown_version_is_refused_and_the_known_ones_are_listed(three, name):
    for act in (three.rollback, three.open):
        with pytest.raises(UserError, match="allowed: base, v0001, v0002, v0003"):
            act(name)
    assert three.current_id() == "v0003"


def test_a_version_that_was_not_let_through_cannot_be_promoted(three):
    for verdict in (None, "keep"):
        version_id = add_version(three, "v0003", 8, verdict)
        with pytest.raises(ValueError, match="cannot be promoted"):
            three.promote(version_id)
    assert three.current_id() == "v0003"


@pytest.mark.parametrize(
    ("damage", "reason", "parent"),
    [
        pytest.param(lambda d: flip_bit(d / "model.gguf"), "checksum", "v0002", id="flipped payload bit"),
        pytest.param(lambda d: flip_bit(d / "model.gguf", 60), "", "v0002", id="flipped header bit"),
        pytest.param(lambda d: os.truncate(d / "model.gguf", 3000), "", "v0002", id="truncated"),
        pytest.param(lambda d: os.truncate(d / "model.gguf", 0), "is empty", "v0002", id="emptied"),
        pytest.param(lambda d: (d / "model.gguf").unlink(), "pruned", "v0002", id="gone"),
        pytest.param(lambda d: flip_bit(d / "version.json"), "damaged", "base", id="flipped record"),
        pytest.param(lambda d: (d / "version.json").unlink(), "record is missing", "base", id="record gone"),
    ],
)
def test_a_damaged_current_version_falls_back_to_the_newest_intact_one_and_says_so(three, damage, reason, parent):
    """parent: what a rollback goes to; the base where the record, which names the parent, is lost."""
    damage(three.directory / "v0003")
    opened = three.open()
    assert opened.id == "v0002" and opened.notices[-1] == "v0002 is used instead"
    assert "v0003 cannot be used" in opened.notices[0] and reason in opened.notices[0]
    with pytest.raises(UserError, match="v0003"):
        three.open("v0003")
    flip_bit(three.directory / "v0002" / "model.gguf")
    assert three.open().id == "v0001"
    assert three.rollback().after == parent  # a rollback is instant: it looks at sizes and headers only
    assert three.open().id == ("v0001" if parent == "v0002" else "base")


def test_a_version_that_was_not_let_through_is_never_fallen_back_to(three):
    add_version(three, "v0003", 8, "keep")
    add_version(three, "v0003", 9, None)
    flip_bit(three.directory / "v0003" / "model.gguf")
    assert three.open().id == "v0002"


@pytest.mark.parametrize("content", [b"", b"v0002", b'{"body": {"current": "v0001"}, "sha256": "00"}', b"[]", b"\xff\xfe"])
def test_a_damaged_current_file_means_the_newest_promoted_version_and_is_said(three, content):
    (three.directory / "current").write_bytes(content)
    opened = three.open()
    assert opened.id == "v0003" and "damaged" in opened.notices[0]
    assert three.rollback().after == "v0002" and three.open().notices == ()


def test_pruning_frees_the_weights_and_keeps_the_lineage_and_the_ids(three):
    add_version(three, "v0003", 4)
    three.rollback("v0002")
    bytes_before = sum(path.stat().st_size for path in three.directory.rglob("*") if path.is_file())
    removed, freed_bytes = three.prune(keep=1)
    assert removed == ["v0001", "v0003"] and three.current_id() == "v0002"
    assert bytes_before - freed_bytes == sum(path.stat().st_size for path in three.directory.rglob("*") if path.is_file())
    listing = three.listing()
    assert [(v.id, v.parent) for v in listing.versions][:3] == [("v0001", "base"), ("v0002", "v0001"), ("v0003", "v0002")]
    assert listing.pruned == {"v0001", "v0003"} and listing.notices == ()
    with pytest.raises(UserError, match="were pruned"):
        three.rollback("v0003")
    switch = three.rollback()
    assert switch.after == "base" and "v0001 cannot be used: its weights were pruned" in switch.notices[0]
    assert three.prune(0)[0] == ["v0002", "v0004"] and three.open().id == "base" and three.next_id() == "v0005"


def test_a_vanished_bundle_leaves_the_versions_usable_and_is_named_when_needed(three):
    three.base_model.unlink()
    assert three.open().id == "v0003"
    with pytest.raises(UserError, match="cannot be read"):
        three.rollback("base")
    for version_id in three.ids():
        (three.directory / version_id / "model.gguf").unlink()
    with pytest.raises(UserError, match="bring the bundle back"):
        three.open()


def test_a_mapped_version_stays_readable_while_it_is_pruned(three):
    opened = three.open("v0001")
    before = bytes(opened.model.data("output_norm.weight"))
    three.prune(0)
    assert bytes(opened.model.data("output_norm.weight")) == before


def test_a_failing_merge_leaves_no_trace(store):
    add_version(store, "base", 1)
    without_effect = AdapterTensors("grouped", 0.5, {ADAPTED: (np.ones((2, 2), np.float32), np.zeros((8, 2), np.float32))})
    with pytest.raises(UserError, match="changes no stored value"), store.staged(make_block("base"), without_effect, {}) as new:
        new.merge(store.open().model)
    with store.staged(make_block("base"), make_small_adapter(2), {}):
        pass
    names = sorted(path.name for path in store.directory.iterdir())
    assert names == ["current", "v0001"]


def test_a_version_without_weights_cannot_be_published(store):
    with pytest.raises(ValueError, match="neither weights"), store.staged(make_block("base"), make_small_adapter(2), {}) as new:
        new.publish()
    assert store.ids() == []
