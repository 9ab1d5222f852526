"""From recipe to bundle on a tiny model: what cannot be compiled is refused in a sentence, what can is the same twice."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from mobilefinetuner.runtime.bundle.folder import Bundle
from mobilefinetuner.runtime.bundle.plan import ALIGNMENT, Plan
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile

from tests.support.bundle_cache import compile_anew
from tests.support.tiny_bundle import TinySizes, compile_tiny_bundle, tiny_overrides, write_tiny_model


@pytest.fixture(scope="module")
def plan(tiny_bundle_path) -> Plan:
    return Plan.from_json(json.loads((tiny_bundle_path / "plan.json").read_text(encoding="utf-8")))


def refusal(tmp_path: Path, sizes: TinySizes, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        compile_tiny_bundle(tmp_path / "bundle", write_tiny_model(tmp_path / "model.gguf", sizes), *overrides)
    assert not (tmp_path / "bundle").exists()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_heads_that_fill_no_vector_register_are_refused_with_the_widths_that_do(tmp_path):
    text = refusal(tmp_path, TinySizes(heads=8, kv_heads=8, head_dim=20, d_model=160))
    assert "20" in text and "multiples of" in text


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"ffn": 144}, "feed_forward_length"), ({"kv_heads": 1}, "key-value width"), ({"vocab": 500}, "vocabulary")],
    ids=["ffn", "kv width", "vocabulary"],
)
def test_sizes_that_are_no_whole_blocks_are_refused_by_name(tmp_path, changes, word):
    if "ffn" in changes:  # only possible where no row is quantized in blocks
        changes |= {"projections": "F16"}
    assert word in refusal(tmp_path, dataclasses.replace(TinySizes(), **changes))


def test_a_bucket_of_an_impossible_length_is_refused_with_a_possible_one(tmp_path):
    assert "1x64" in refusal(tmp_path, TinySizes(), "train.buckets=[1x40,1x64]")


def test_a_bucket_longer_than_the_models_context_is_refused(tmp_path):
    assert "256" in refusal(tmp_path, TinySizes(), "train.buckets=[1x512]")


def test_a_budget_that_is_too_small_is_refused_with_what_would_fit(tmp_path):
    text = refusal(tmp_path, TinySizes(), "device.memory_budget_mb=32")
    assert "memory_budget_mb=32" in text and "at least" in text


def test_the_plan_has_block_entries_for_every_bucket(plan):
    assert plan.buckets == ("1x32", "1x64", "2x32")
    for bucket in plan.buckets:
        for name in ("block_forward", "block_vjp"):
            assert plan.entry(name, bucket, "Q4_1").calls


def test_the_plan_is_read_back_as_it_was_written(plan):
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_with_an_unknown_key_or_format_is_refused(plan):
    with pytest.raises(UserError, match="unknown key 'extra'"):
        Plan.from_json({**plan.to_json(), "extra": 1})
    with pytest.raises(UserError, match="format 99; allowed: 1"):
        Plan.from_json({**plan.to_json(), "format": 99})


def test_the_bundles_weights_are_the_models_blocks_on_aligned_places(tiny_bundle_path, tiny_model_path):
    base, source = GgufFile.open(tiny_bundle_path / "model.gguf"), GgufFile.open(tiny_model_path)
    assert list(base.tensors) == list(source.tensors)
    for name in base.tensors:
        data = base.data(name)
        assert data.ctypes.data % ALIGNMENT == 0 and data.tobytes() == source.data(name).tobytes()


def test_the_adapters_matrices_do_not_overlap_and_every_layer_is_laid_out_alike(plan):
    spans = [(t.offset, t.offset + t.shape[0] * t.shape[1]) for t in plan.adapter.tensors]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans)) and spans[-1][1] <= plan.adapter.size
    layers = [[t for t in plan.adapter.tensors if t.name.layer == layer] for layer in range(2)]
    shift = layers[1][0].offset - layers[0][0].offset
    assert [(t.offset + shift, t.shape) for t in layers[0]] == [(t.offset, t.shape) for t in layers[1]]


@pytest.mark.slow
def test_the_same_recipe_gives_the_same_bytes(tiny_bundle_path, tiny_model_path, tmp_path):
    again = compile_anew(tmp_path / "tiny", *tiny_overrides(tiny_model_path))
    for path in sorted(tiny_bundle_path.iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tied": False, "projections": "Q4_0"}, id="a head of its own, Q4_0"),
        pytest.param({"projections": "Q8_0", "head_dim": 32, "heads": 3, "kv_heads": 1, "d_model": 96}, id="three heads on one, Q8_0"),
    ],
)
def test_other_models_compile_to_a_bundle_that_opens(tmp_path, changes):
    model = write_tiny_model(tmp_path / "model.gguf", dataclasses.replace(TinySizes(), **changes))
    Bundle.open(compile_tiny_bundle(tmp_path / "bundle", model, "train.buckets=[1x64]"))
