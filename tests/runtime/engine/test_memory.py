"""Which bucket a run trains in: the largest that holds the longest sample and fits into what is free now."""

from __future__ import annotations

import dataclasses

import pytest
from mobilefinetuner.runtime.bundle.plan import Plan
from mobilefinetuner.runtime.engine.memory import choose_bucket, peak_bytes
from mobilefinetuner.runtime.errors import UserError

from tests.support.engine_trial import load_plan

WEIGHTS_BYTES, THREADS = 10 << 20, 2
PLENTY = 1 << 50


@pytest.fixture(scope="module")
def plan(tiny_bundle_path) -> Plan:
    """Buckets 1x32, 1x64 and 2x32; so many layers that training, and not the merge, needs most."""
    tiny = load_plan(tiny_bundle_path)
    return dataclasses.replace(tiny, model=dataclasses.replace(tiny.model, layers=4000, context_tokens=1))


@pytest.fixture(scope="module")
def needs(plan) -> dict[str, int]:
    """Bytes of each bucket's largest phase."""
    found = {bucket: peak_bytes(plan, WEIGHTS_BYTES, THREADS, bucket) for bucket in plan.buckets}
    assert found["1x32"] < min(found["1x64"], found["2x32"])
    return found


def chosen(plan: Plan, longest_sample: int, free_bytes: int | None) -> str:
    return choose_bucket(plan, WEIGHTS_BYTES, THREADS, longest_sample, free_bytes)


@pytest.mark.parametrize(
    ("longest_sample", "free", "bucket"),
    [
        pytest.param(32, PLENTY, "2x32", id="much memory, short samples: the widest"),
        pytest.param(32, None, "2x32", id="unknown memory, short samples: the widest"),
        pytest.param(33, PLENTY, "1x64", id="one token too long for the widest"),
        pytest.param(64, None, "1x64", id="unknown memory, the longest sample there may be"),
        pytest.param(32, "2x32", "2x32", id="exactly what the widest needs"),
        pytest.param(32, "1x32", "1x32", id="exactly what the smallest needs"),
        pytest.param(64, "1x64", "1x64", id="exactly what the only one that holds the sample needs"),
        pytest.param(1, "1x32", "1x32", id="short samples in little memory"),
    ],
)
def test_the_largest_bucket_that_holds_the_samples_and_fits_is_taken(plan, needs, longest_sample, free, bucket):
    assert chosen(plan, longest_sample, needs.get(free, free)) == bucket


def test_one_byte_less_than_the_larger_buckets_need_means_the_smaller_one(plan, needs):
    assert chosen(plan, 32, min(needs["1x64"], needs["2x32"]) - 1) == "1x32"


@pytest.mark.parametrize(
    ("longest_sample", "smallest"),
    [pytest.param(32, "1x32", id="short samples"), pytest.param(64, "1x64", id="a sample that only the long bucket holds")],
)
def test_too_little_memory_names_what_is_free_and_what_the_smallest_bucket_needs(plan, needs, longest_sample, smallest):
    free = needs[smallest] - 1
    with pytest.raises(UserError) as refused:
        chosen(plan, longest_sample, free)
    assert (refused.value.where, refused.value.found) == ("memory", f"{free / 2**20:,.0f} MB are free")
    assert refused.value.allowed == f"{needs[smallest] / 2**20:,.0f} MB for bucket {smallest}"


def test_a_sample_longer_than_every_bucket_is_refused_with_the_longest_that_is_allowed(plan):
    """The last bucket is not the longest here: 2x32 comes after 1x64."""
    with pytest.raises(UserError) as refused:
        chosen(plan, 65, PLENTY)
    assert (refused.value.found, refused.value.allowed) == ("has a sample of 65 tokens", "at most 64")
