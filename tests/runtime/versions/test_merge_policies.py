"""Which merge target is taken: the smallest file that keeps what was learned, and mounted when there is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.verify.verification import Scores, compare_merge
from mobilefinetuner.runtime.versions.merge import MergeReport
from mobilefinetuner.runtime.versions.merge_policies import MergeTarget, forced_target, merge_or_mount, merge_targets
from mobilefinetuner.runtime.versions.record import OpenedVersion, Version
from mobilefinetuner.runtime.versions.store import VersionStore

from tests.support.small_models import ADAPTED, SHAPE, make_base_model, make_block, make_small_adapter

LADDER = ("exact, Q4_1", "exact, Q5_1", "exact, Q8_0")


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return VersionStore(tmp_path / "versions", make_base_model(tmp_path / "base.gguf"))


@pytest.fixture
def lora() -> AdapterTensors:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, SHAPE[1])).astype(np.float32), rng.normal(size=(SHAPE[0], 2)).astype(np.float32)
    return AdapterTensors("lora", 0.5, {ADAPTED: (a, b)})


@dataclass(frozen=True)
class Made:
    """What merge_or_mount left, and what it tried."""

    opened: OpenedVersion
    record: Version
    report: MergeReport | None
    measured: tuple[tuple[str, int, str], ...]
    """target, file size, type of the adapted tensor"""

    @property
    def tried(self) -> list[str]:
        return [target for target, _, _ in self.measured]


def made(store: VersionStore, policy: str, adapter: AdapterTensors, kept: tuple[str, ...], can_measure: bool = True) -> Made:
    """When only the targets in `kept` keep what was learned."""
    on, measured = store.open("base"), []
    targets = merge_targets(policy, on.model, adapter, can_measure)

    def accepts(model, target: MergeTarget) -> bool:
        measured.append((str(target), model.size_bytes, model.tensors[ADAPTED].type_name))
        return str(target) in kept or target == forced_target(policy, targets)

    with store.staged(make_block("base"), adapter, {}) as new:
        report = merge_or_mount(new, on, targets, accepts)
        record = new.publish()
    return Made(store.open(new.id), record, report, tuple(measured))


@pytest.mark.parametrize("first", range(3), ids=LADDER)
def test_a_lora_is_lifted_to_the_smallest_type_that_keeps_it(store, lora, first):
    new = made(store, "auto", lora, LADDER[first:])
    assert new.tried == list(LADDER[: first + 1])
    sizes = [size for _, size, _ in new.measured]
    assert sizes == sorted(sizes)
    assert new.opened.model.tensors[ADAPTED].type_name == LADDER[first][-4:] == new.measured[-1][2]
    assert store.ids() == ["v0001"] and not list(store.directory.glob(".*"))


@pytest.mark.parametrize("kind", ["grouped", "lora"])
def test_what_no_file_keeps_is_mounted(store, lora, kind):
    new = made(store, "auto", lora if kind == "lora" else make_small_adapter(1), ())
    assert (new.report, new.record.mounted_on) == (None, "base")
    assert len(new.measured) == (3 if kind == "lora" else 1)
    assert store.ids() == ["v0001"] and not (store.directory / "v0001" / "model.gguf").exists() and not list(store.directory.glob(".*"))


@pytest.mark.parametrize("policy", ["exact", "fold"])
def test_a_policy_that_asks_for_a_file_gets_one_even_if_the_verdict_will_be_against_it(store, lora, policy):
    new = made(store, policy, lora if policy == "exact" else make_small_adapter(1), ())
    assert new.report is not None and new.tried[-1] == ("exact, Q8_0" if policy == "exact" else "fold")


def test_a_grouped_adapter_is_folded_at_once(store):
    new = made(store, "auto", make_small_adapter(1), ("fold",))
    assert new.tried == ["fold"] and new.report.size_bytes == store.base_model.stat().st_size


def test_nothing_is_measured_for_a_policy_that_mounts(store):
    new = made(store, "mount", make_small_adapter(1), ("fold",))
    assert new.report is None and not new.measured


def test_with_nothing_held_back_only_the_safest_type_is_tried(store, lora):
    assert made(store, "auto", lora, LADDER, can_measure=False).tried == ["exact, Q8_0"]


def test_types_below_the_bases_own_are_not_tried_twice(store, lora):
    first = made(store, "exact", lora, ())
    assert [target.requantize_to for target in merge_targets("exact", first.opened.model, lora, True)] == ["Q8_0"]


@pytest.mark.parametrize(("merged", "kept"), [(1.009, True), (1.011, False), (0.5, True)])
def test_a_merge_keeps_what_was_learned_when_the_loss_rises_by_less_than_one_per_cent(merged, kept):
    comparison = compare_merge(Scores(1.0, (), ()), Scores(merged, (), ()))
    assert comparison.kept is kept and f"{merged:.4f} merged" in str(comparison)
