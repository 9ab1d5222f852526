"""Whatever a YAML file holds, the answer is a recipe or a report."""

import copy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.compiler.recipe.errors import RecipeError
from mobilefinetuner.compiler.recipe.host_machine import machine_fact
from mobilefinetuner.compiler.recipe.load import load_recipe
from mobilefinetuner.compiler.recipe.reader import RecipeReader, known_keys
from mobilefinetuner.compiler.recipe.schema import DeviceRecipe, Recipe, TrainRecipe
from mobilefinetuner.runtime.bundle.cpu_features import MachineCpu
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.plain_data import plain

GOOD = plain(load_recipe(["device=pixel_6"]))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just(10**400), st.just(-(10**400)), st.just("9" * 5000)
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3), max_leaves=5
)


def with_value(key, value):
    document = copy.deepcopy(GOOD)
    *sections, name = key.split(".")
    place = document
    for section in sections:
        place = place.setdefault(section, {})
    place[name] = value
    return document


def test_what_a_recipe_prints_is_read_back_the_same():
    assert plain(RecipeReader(Path("/")).bind(Recipe, GOOD, "")) == GOOD


@settings(max_examples=500, deadline=None)
@given(st.sampled_from([*known_keys(Recipe), "model", "model.source", "train", "scenario.rules"]), ANYTHING)
def test_any_value_at_any_key_is_read_or_refused_and_never_crashes(key, value):
    reader = RecipeReader(Path("/"))
    recipe = reader.bind(Recipe, with_value(key, value), "")
    assert (recipe is None) == bool(reader.problems)
    for problem in reader.problems:
        assert isinstance(problem, UserError) and str(problem)
    if recipe is not None:
        assert RecipeReader(Path("/")).bind(Recipe, plain(recipe), "") == recipe


def test_a_recipe_cannot_be_made_out_of_range_by_code_either():
    with pytest.raises(RecipeError, match=r"train.rank"):
        TrainRecipe(rank=0)
    with pytest.raises(RecipeError) as caught:
        TrainRecipe(rank=0, scale=-1.0)
    assert len(caught.value.problems) == 2


def test_only_known_languages_are_expected():
    reader = RecipeReader(Path("/"))
    assert reader.bind(Recipe, with_value("scenario.languages", ["en", "xx"]), "") is None
    assert "'xx'" in str(reader.problems[0]) and "zh" in reader.problems[0].allowed


X86_64_V3 = ["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"]


@pytest.mark.parametrize(
    "features, cpu, usable",
    [
        (X86_64_V3, "x86-64-v3", X86_64_V3),
        ([*X86_64_V3, "avx_vnni", "avx512f"], "x86-64-v3", [*X86_64_V3, "avx_vnni"]),
        ([name for name in X86_64_V3 if name != "fma"], "x86-64-v2", X86_64_V3[:6]),
        (["sse2"], "x86-64", []),
    ],
    ids=["v3", "v3 with half of v4", "v2 because one is hidden", "baseline"],
)
def test_the_host_is_described_by_what_its_kernel_reports(features, cpu, usable):
    machine = MachineCpu("x86_64", frozenset(features))
    assert machine_fact("cpu", machine) == cpu and machine_fact("features", machine) == usable


def test_an_arm64_host_is_described_too():
    machine = MachineCpu("aarch64", frozenset({"fp", "asimd", "asimddp", "paca"}))
    facts = {name: machine_fact(name, machine) for name in ("arch", "mtriple", "cpu", "features")}
    assert facts == {"arch": "aarch64", "mtriple": "aarch64-linux-gnu", "cpu": "generic", "features": ["fp", "asimd", "asimddp"]}
    assert DeviceRecipe(name="h", cores=4, threads=4, memory_budget_mb=512, **{**facts, "features": tuple(facts["features"])})


def test_a_machine_that_no_kernels_are_made_for_is_named():
    with pytest.raises(UserError, match="riscv64"):
        machine_fact("arch", MachineCpu("riscv64", frozenset()))
