"""The memory plan says what the runtime will really take, and refuses what the device has no room for."""

from __future__ import annotations

import dataclasses
import json

import pytest
from mobilefinetuner.compiler.bundle.memory_plan import with_memory
from mobilefinetuner.runtime.bundle.plan import Plan
from mobilefinetuner.runtime.engine.memory import MERGE_ROWS_BYTES, floor_bytes, phase_table
from mobilefinetuner.runtime.engine.tensors import TensorMemory, adapter_tensors, decoding_tensors, mounted_tensors, scoring_tensors, training_tensors
from mobilefinetuner.runtime.errors import UserError

WEIGHTS_BYTES = 10 << 20
THREADS = 2


@pytest.fixture(scope="module")
def plan(tiny_bundle_path) -> Plan:
    return Plan.from_json(json.loads((tiny_bundle_path / "plan.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def deep(plan) -> Plan:
    """The plan of a model of so many layers that training, and not the merge, needs most."""
    return dataclasses.replace(plan, model=dataclasses.replace(plan.model, layers=4000, context_tokens=1))


def test_the_backward_phase_is_the_memory_that_a_training_step_allocates(plan):
    phases = {p.phase: p for p in phase_table(plan, WEIGHTS_BYTES, THREADS, "2x32")}
    allocated = TensorMemory(adapter_tensors(plan)).n_bytes + TensorMemory(training_tensors(plan, "2x32")).n_bytes + THREADS * plan.workspace_bytes
    assert phases["backward"].total == allocated + WEIGHTS_BYTES + floor_bytes(plan)
    assert phases["forward"].optimizer == 0 and phases["forward"].total < phases["backward"].total


def test_the_verify_phase_is_what_scoring_in_buckets_of_every_length_and_decoding_allocate(plan):
    phases = {p.phase: p for p in phase_table(plan, WEIGHTS_BYTES, THREADS, "2x32")}
    scoring = [*scoring_tensors(plan, "1x32"), *scoring_tensors(plan, "1x64")]
    specs = [*mounted_tensors(plan), *scoring, *decoding_tensors(plan)]
    allocated = TensorMemory(specs).n_bytes + THREADS * plan.workspace_bytes
    assert phases["verify"].total == allocated + WEIGHTS_BYTES + floor_bytes(plan)


def test_a_larger_bucket_needs_more(deep):
    peaks = [max(p.total for p in phase_table(deep, WEIGHTS_BYTES, THREADS, bucket)) for bucket in ("1x32", "1x64")]
    assert peaks[0] < peaks[1]


def test_more_threads_need_a_workspace_each(plan):
    one, two = (phase_table(plan, WEIGHTS_BYTES, threads, "1x32")[2].scratch for threads in (1, 2))
    assert two - one == plan.workspace_bytes > 0


def test_a_budget_between_two_buckets_names_the_setting_that_fits(deep):
    peaks = {bucket: max(p.total for p in phase_table(deep, WEIGHTS_BYTES, THREADS, bucket)) for bucket in deep.buckets}
    assert peaks["1x32"] < peaks[deep.buckets[-1]]
    with pytest.raises(UserError) as caught:
        with_memory(deep, WEIGHTS_BYTES, THREADS, peaks[deep.buckets[-1]] - 1, "pixel_8")
    text = str(caught.value)
    assert "pixel_8" in text and "train.buckets=[1x32" in text and deep.buckets[-1] in text


def test_a_budget_below_every_bucket_says_how_much_is_needed(plan):
    with pytest.raises(UserError) as caught:
        with_memory(plan, WEIGHTS_BYTES, THREADS, MERGE_ROWS_BYTES, "pixel_8")
    assert "device.memory_budget_mb=" in str(caught.value)


def test_a_budget_of_exactly_the_peak_is_enough(plan):
    peak = max(p.total for p in phase_table(plan, WEIGHTS_BYTES, THREADS, plan.buckets[-1]))
    assert with_memory(plan, WEIGHTS_BYTES, THREADS, peak, "pixel_8").peak_bytes == peak
