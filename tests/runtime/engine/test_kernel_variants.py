"""A bundle with several kernel libraries: the best one that the machine can run is taken, and all compute the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mobilefinetuner.compiler.bundle.writer import write_bundle
from mobilefinetuner.compiler.recipe.errors import RecipeError
from mobilefinetuner.compiler.recipe.load import load_recipe
from mobilefinetuner.runtime.bundle.cpu_features import MachineCpu, read_machine_cpu
from mobilefinetuner.runtime.bundle.folder import Bundle
from mobilefinetuner.runtime.bundle.plan import Plan
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.train.step import TrainStep

from tests.support.tiny_bundle import compile_tiny_bundle, write_tiny_model

FIELDS = {"base_conversions": [], "recipe": {}, "required_cpu_features": [], "tools": {}}


def bundle_with(tmp_path: Path, variants: list) -> Path:
    files = {"kernels.so": b"plain", "kernels-a.so": b"a", "kernels-b.so": b"b"}
    return write_bundle(tmp_path / "bundle", files, {**FIELDS, "abi": {"arch": "aarch64", "variants": variants}})


@pytest.mark.parametrize(
    ("features", "taken"),
    [({"one", "two", "three"}, "kernels-a.so"), ({"one", "three"}, "kernels-b.so"), ({"two"}, "kernels.so"), (set(), "kernels.so")],
)
def test_the_first_library_whose_features_are_all_there_is_taken(tmp_path, features, taken):
    variants = [{"file": "kernels-a.so", "required_cpu_features": ["one", "two"]}, {"file": "kernels-b.so", "required_cpu_features": ["one"]}]
    bundle = Bundle.open(bundle_with(tmp_path, variants), to_execute=False)
    assert bundle.kernel_library(MachineCpu("aarch64", frozenset(features))).name == taken


@pytest.mark.parametrize(
    "variants",
    [
        {},
        [7],
        [{"file": "../x", "required_cpu_features": []}],
        [{"file": "kernels-a.so"}],
        [{"file": "kernels-a.so", "required_cpu_features": "all"}],
    ],
)
def test_a_manifest_with_a_malformed_variant_is_refused(tmp_path, variants):
    with pytest.raises(UserError, match="no compiler writes"):
        Bundle.open(bundle_with(tmp_path, variants), to_execute=False)


def test_a_variant_is_checked_like_the_profile_itself():
    with pytest.raises(RecipeError) as refused:
        load_recipe(["device=generic_armv8", "device.variants=[{cpu: cortex-x4, features: [fp, asimd, flying]}, {cpu: generic, features: [fp]}]"])
    told = str(refused.value)
    assert "device.variants[0].cpu" in told and "flying" in told and "names a cpu twice" in told


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
    if read_machine_cpu().arch != "x86_64":
        pytest.skip("the profile with variants that this test runs is one for x86-64")
    folder = tmp_path_factory.mktemp("variants")
    made = compile_tiny_bundle(folder / "bundle", write_tiny_model(folder / "tiny.gguf"), "device=generic_x86_64", "train.buckets=[1x64]")
    return Bundle.open(made)


def gradient(bundle: Bundle, library: Path) -> np.ndarray:
    plan = Plan.from_json(json.loads(bundle.path("plan.json").read_text()))
    with Engine(plan, library, GgufFile.open(bundle.path("model.gguf")), 1) as engine:
        step = TrainStep(engine, "1x64")
        step.state["parameters"][:] = np.random.default_rng(0).normal(0, 0.01, plan.adapter.size)
        from mobilefinetuner.runtime.engine.packing import PackedBatch

        ids = np.arange(64, dtype=np.int32)
        step.accumulate(PackedBatch(ids, np.zeros((1, 64), np.int32), np.roll(ids, -1), 64), 64)
        return step.state["gradient"].copy()


def test_all_variants_that_run_here_have_one_plan_and_one_result(bundle):
    machine = read_machine_cpu()
    variants = [v for v in bundle.manifest.abi.variants if not machine.lacks(v.required_cpu_features)]
    plain = gradient(bundle, bundle.path("kernels.so"))
    assert np.isfinite(plain).all() and np.linalg.norm(plain) > 0
    for variant in variants:
        assert np.linalg.norm(gradient(bundle, bundle.path(variant.file)) - plain) < 1e-4 * np.linalg.norm(plain), variant.file
    assert bundle.kernel_library(machine).name == (variants[0].file if variants else "kernels.so")
