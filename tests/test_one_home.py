"""Each fact stands in one place: what has a home is not written a second time, and what must agree is compared."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest
from mobilefinetuner.compiler.recipe.schema import BUCKET, QuantizationRecipe, ScenarioRecipe, TrainRecipe
from mobilefinetuner.runtime.adapter.peft_folder import MODULES
from mobilefinetuner.runtime.bundle.plan import PROJECTIONS, AdapterKind, Bucket, Matrix, MatrixName, Projection
from mobilefinetuner.runtime.data.scenario import Scenario
from mobilefinetuner.runtime.gguf.blocks import DEQUANTIZABLE_TYPES, FOLDABLE_TYPES
from mobilefinetuner.runtime.gguf.types import BLOCK_ELEMENTS, TENSOR_TYPES
from mobilefinetuner.runtime.plain_data import fields_of
from mobilefinetuner.runtime.versions.merge_policies import Policy

ROOT = Path(__file__).parent.parent
PLAN, DURABLE = "runtime/bundle/plan.py", "runtime/storage/durable.py"
HOMES = [
    pytest.param(r'"attn_k", "attn_v", "attn_output"', {PLAN}, id="the projections"),
    pytest.param(r'"grouped", "lora"', {PLAN}, id="the adapter's kinds"),
    pytest.param(r'f"blk\.', {PLAN}, id="names of a block's weights"),
    pytest.param(r'\[:-2\]|(?:with|suffix)\("\.?:?[AB]"\)|startswith\(f?"blk', set(), id="names of the adapter's matrices are never taken apart"),
    pytest.param(r'f"\{?\w+\}?x\{\w+(?:\.tokens)?\}"|bucket\w*\.split', set(), id="names of buckets are never taken apart"),
    pytest.param(r"^ALIGNMENT\b.* = \d", {PLAN}, id="the alignment of tensors"),
    pytest.param(r"\bhyper\[\d", set(), id="AdamW's numbers have names"),
    pytest.param(r'"parameters", "first_moment"', {"runtime/engine/tensors.py"}, id="the vectors of a run's state"),
    pytest.param(r"os\.kill\(\w[\w.]*, 0\)", {DURABLE}, id="whether a process is alive"),
    pytest.param(r"renameat2", {DURABLE}, id="exchanging two folders"),
    pytest.param(r"def (?:canonical_json)\b", {DURABLE}, id="the JSON that checksums are taken of"),
    pytest.param(r"\.__dataclass_fields__|get_type_hints\((?!kind\))", {"compiler/recipe/reference.py"}, id="reading dataclasses from plain data"),
]


@pytest.mark.parametrize(("pattern", "homes"), HOMES)
def test_a_fact_is_written_where_its_home_is_and_nowhere_else(pattern: str, homes: set[str]) -> None:
    sources = {path.relative_to(ROOT).as_posix(): path for name in ("runtime", "compiler") for path in (ROOT / name).rglob("*.py")}
    assert {name for name, path in sources.items() if re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)} == homes


def test_the_recipes_defaults_of_a_scenario_are_the_phones() -> None:
    phones = {field.name: field.default for field in dataclasses.fields(Scenario) if field.default is not dataclasses.MISSING}
    recipes = {field.name: field.default for field in dataclasses.fields(ScenarioRecipe) if field.default is not dataclasses.MISSING}
    shared = phones.keys() & recipes.keys()
    assert {"languages", "overlap_share", "heldout_share", "max_drop_share", "decode_tokens", "epochs"} <= shared
    assert {name: phones[name] for name in shared} == {name: recipes[name] for name in shared}


def test_the_recipes_choices_are_the_runtimes_own() -> None:
    assert fields_of(TrainRecipe)["adapter"][1] is AdapterKind
    assert fields_of(TrainRecipe)["targets"][1] == tuple[Projection, ...]
    assert fields_of(QuantizationRecipe)["merge"][1] is Policy
    assert tuple(MODULES) == PROJECTIONS


def test_every_type_that_an_adapter_folds_into_or_kernels_read_has_the_32_of_a_block() -> None:
    quantized = [TENSOR_TYPES[name] for name in {*FOLDABLE_TYPES, *DEQUANTIZABLE_TYPES} if TENSOR_TYPES[name].block_elements > 1]
    assert len(quantized) >= 5 and {kind.block_elements for kind in quantized} == {BLOCK_ELEMENTS}


@pytest.mark.parametrize("name", ["1x64", "16x1", "999x999999"])
def test_a_buckets_name_is_read_and_written_in_one_place(name: str) -> None:
    assert str(Bucket.parse(name)) == name and BUCKET.holds(name)


@pytest.mark.parametrize("name", ["", "1", "x64", "0x64", "1x", "1x064", "1x64x1", "1000x1", " 1x64", "-1x64", "1X64"])
def test_what_is_no_bucket_is_none_in_a_recipe_and_in_a_plan(name: str) -> None:
    assert not BUCKET.holds(name)
    with pytest.raises(ValueError, match="no bucket such as 1x256"):
        Bucket.parse(name)


@pytest.mark.parametrize(
    "matrix", [MatrixName(layer, projection, half) for layer in (0, 29) for projection in PROJECTIONS for half in get_args(Matrix)]
)
def test_a_matrix_name_is_read_and_written_in_one_place(matrix: MatrixName) -> None:
    assert MatrixName.parse(str(matrix)) == matrix
    assert str(matrix) == f"{matrix.weight}:{matrix.matrix}" and matrix.operand == f"{matrix.projection}:{matrix.matrix}"


@pytest.mark.parametrize(
    "name", ["blk.0.attn_q.weight", "blk.0.attn_q.weight:C", "blk.x.attn_q.weight:A", "blk.0.attn_norm.weight:A", "attn_q:A", ""]
)
def test_what_is_no_matrix_of_an_adapter_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"blk\.0\.attn_q\.weight"):
        MatrixName.parse(name)
