"""Which way of merging is taken: the smallest file that keeps what was learned, and mounted when there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_models import ADAPTED, SHAPE, make_base_model, make_block, make_small_adapter

from mobilefinetuner.runtime.adapter_tensors import AdapterTensors
from mobilefinetuner.runtime.merge_policies import Way, make_version, merge_ways
from mobilefinetuner.runtime.verification import Scores, compare_merge
from mobilefinetuner.runtime.versions import VersionStore

LADDER = ("exact, Q4_1", "exact, Q5_1", "exact, Q8_0")


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return VersionStore(tmp_path / "versions", make_base_model(tmp_path / "base.gguf"))


@pytest.fixture
def lora() -> AdapterTensors:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, SHAPE[1])).astype(np.float32), rng.normal(size=(SHAPE[0], 2)).astype(np.float32)
    return AdapterTensors("lora", 0.5, {ADAPTED: (a, b)})


def made(store: VersionStore, policy: str, adapter: AdapterTensors, kept: tuple[str, ...], can_measure: bool = True):
    """(Made, the ways that were measured) when only the ways in `kept` keep what was learned."""
    on, measured = store.open("base"), []

    def keeps(model, way: Way) -> bool:
        measured.append((str(way), model.size_bytes, model.tensors[ADAPTED].type_name))
        return str(way) in kept

    ways = merge_ways(policy, on.model, adapter, can_measure)
    return make_version(store, policy, ways, keeps, on, adapter, make_block("base"), {}), measured


@pytest.mark.parametrize("first", range(3), ids=LADDER)
def test_a_lora_is_lifted_to_the_smallest_type_that_keeps_it(store, lora, first):
    version, measured = made(store, "auto", lora, LADDER[first:])
    assert version.way == LADDER[first] and [way for way, _, _ in measured] == list(LADDER[: first + 1])
    sizes = [size for _, size, _ in measured]
    assert sizes == sorted(sizes)
    assert version.opened.model.tensors[ADAPTED].type_name == LADDER[first][-4:] == measured[-1][2]
    assert store.ids() == ["v0001"] and not list(store.directory.glob(".*"))


@pytest.mark.parametrize("kind", ["grouped", "lora"])
def test_what_no_file_keeps_is_mounted(store, lora, kind):
    version, measured = made(store, "auto", lora if kind == "lora" else make_small_adapter(1), ())
    assert (version.way, version.report, version.version.mounted_on) == ("mount", None, "base")
    assert len(measured) == (3 if kind == "lora" else 1)
    assert store.ids() == ["v0001"] and not (store.directory / "v0001" / "model.gguf").exists() and not list(store.directory.glob(".*"))


@pytest.mark.parametrize("policy", ["exact", "fold"])
def test_a_policy_that_asks_for_a_file_gets_one_even_if_the_verdict_will_be_against_it(store, lora, policy):
    version, measured = made(store, policy, lora if policy == "exact" else make_small_adapter(1), ())
    assert version.report is not None and version.way == measured[-1][0] == ("exact, Q8_0" if policy == "exact" else "fold")


def test_a_grouped_adapter_is_folded_at_once(store):
    version, measured = made(store, "auto", make_small_adapter(1), ("fold",))
    assert version.way == "fold" and len(measured) == 1 and version.report.size_bytes == store.base_model.stat().st_size


def test_nothing_is_measured_for_a_policy_that_mounts(store):
    version, measured = made(store, "mount", make_small_adapter(1), ("fold",))
    assert version.way == "mount" and not measured


def test_with_nothing_held_back_only_the_safest_type_is_tried(store, lora):
    version, measured = made(store, "auto", lora, LADDER, can_measure=False)
    assert version.way == "exact, Q8_0" and len(measured) == 1


def test_types_below_the_bases_own_are_not_tried_twice(store, lora):
    first, _ = made(store, "exact", lora, ())
    assert [way.lift_to for way in merge_ways("exact", first.opened.model, lora, True)] == ["Q8_0"]


@pytest.mark.parametrize(("merged", "kept"), [(1.009, True), (1.011, False), (0.5, True)])
def test_a_merge_keeps_what_was_learned_when_the_loss_rises_by_less_than_one_per_cent(merged, kept):
    comparison = compare_merge(Scores(1.0, (), ()), Scores(merged, (), ()))
    assert comparison.kept is kept and f"{merged:.4f} merged" in str(comparison)
