"""The base as a bundle carries it: what is converted to what, with which error, and what stays bit for bit."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from mobilefinetuner.compiler.model.base_model import write_base_model
from mobilefinetuner.compiler.recipe.load import load_recipe
from mobilefinetuner.runtime.gguf.file import GgufFile

from tests.support.tiny_bundle import TinySizes, tiny_overrides, write_tiny_model

GROUPED, LORA = ("train.adapter=grouped",), ("train.adapter=lora",)
CASES = [
    pytest.param("Q4_1", GROUPED, "Q4_1", 0.0, id="a foldable base stays"),
    pytest.param("Q5_1", GROUPED, "Q5_1", 0.0, id="with five bits too"),
    pytest.param("Q4_0", GROUPED, "Q4_1", 1e-9, id="Q4_0 folds as Q4_1"),
    pytest.param("Q5_0", GROUPED, "Q5_1", 1e-9, id="Q5_0 folds as Q5_1"),
    pytest.param("Q8_0", GROUPED, "Q5_1", 0.05, id="Q8_0 has to be rounded to fold"),
    pytest.param("Q8_0", LORA, "Q8_0", 0.0, id="but not for a classic LoRA"),
    pytest.param("Q4_0", LORA, "Q4_0", 0.0, id="nor has Q4_0"),
    pytest.param("Q8_0", (*GROUPED, "quantization=mount"), "Q8_0", 0.0, id="nor for an adapter that is mounted"),
    pytest.param("F16", GROUPED, "Q5_1", 0.05, id="F16 is quantized to fold"),
    pytest.param("BF16", LORA, "Q8_0", 0.01, id="and otherwise to eight bits"),
    pytest.param("Q8_0", (*GROUPED, "quantization.base=Q4_1"), "Q4_1", 0.1, id="as small as asked for"),
]


@pytest.mark.parametrize(("kind", "overrides", "wanted", "error"), CASES)
def test_projections_come_to_a_type_that_the_adapter_can_be_merged_into(tmp_path: Path, kind, overrides, wanted, error) -> None:
    source = GgufFile.open(write_tiny_model(tmp_path / "tiny.gguf", TinySizes(projections=kind)))
    recipe = load_recipe(["scenario=customer_service", "device=host", *tiny_overrides(source.path), *overrides])
    conversions = write_base_model(source, tmp_path / "base.gguf", recipe.quantization, recipe.train)
    made = GgufFile.open(tmp_path / "base.gguf")
    types = {info.type_name for name, info in made.tensors.items() if name.startswith("blk.") and "norm" not in name}
    assert types == {wanted}
    assert [(c.from_type, c.to_type, c.tensors) for c in conversions] == ([] if kind == wanted else [(kind, wanted, 14)])
    for name in source.tensors:
        before, after = dequantized(source, name), dequantized(made, name)
        found = np.linalg.norm(after - before) / np.linalg.norm(before)
        assert found <= (error if name.startswith("blk.") else 0), name
        if conversions and name == conversions[0].worst_tensor:
            assert conversions[0].worst_error == pytest.approx(found, rel=1e-5, abs=1e-12)
    assert made.tensors.keys() == source.tensors.keys()


def dequantized(file: GgufFile, name: str) -> np.ndarray:
    info = file.tensors[name]
    raw = np.array(file.data(name)).reshape(-1, info.row_bytes)
    return gguf.dequantize(raw, gguf.GGMLQuantizationType[info.type_name]).astype(np.float64)


@pytest.mark.parametrize(("kind", "wanted"), [("F16", "Q8_0"), ("F32", "Q8_0"), ("Q4_0", "Q4_0"), ("Q5_1", "Q5_1")])
def test_an_embedding_only_changes_when_no_kernel_reads_it(tmp_path: Path, kind, wanted) -> None:
    source = GgufFile.open(write_tiny_model(tmp_path / "tiny.gguf", TinySizes(embedding=kind)))
    recipe = load_recipe(["scenario=customer_service", "device=host", *tiny_overrides(source.path)])
    write_base_model(source, tmp_path / "base.gguf", recipe.quantization, recipe.train)
    assert GgufFile.open(tmp_path / "base.gguf").tensors["token_embd.weight"].type_name == wanted
