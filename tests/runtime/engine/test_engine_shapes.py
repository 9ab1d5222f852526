"""Models of other shapes and block types than SmolLM2's against PyTorch and PEFT: random weights, small sizes.

Tolerance: relative error 1e-4 for the loss and for every gradient; where the compiler rounds scales and minima of the base to fp16,
2e-2, for PyTorch reads the base as it was.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.oracles.engine_case import Sample, exact_relative_error, padded
from tests.support.engine_trial import EngineTrial
from tests.support.tiny_bundle import TinySizes, compile_tiny_bundle, write_tiny_model

TOLERANCE, ROUNDED_TOLERANCE = 1e-4, 2e-2
pytestmark = [pytest.mark.oracle, pytest.mark.slow]
CASES = {
    "a head of its own, lora on Q4_0": ({"tied": False, "projections": "Q4_0"}, ("train.adapter=lora", "quantization=exact", "train.rank=3")),
    "three heads on one key head, lora on Q8_0, two targets": (
        {"projections": "Q8_0", "embedding": "Q4_1", "head_dim": 32, "heads": 3, "kv_heads": 1, "d_model": 96},
        ("train.adapter=lora", "quantization=exact", "train.targets=[attn_k,ffn_down]"),
    ),
    "heads wider than the model, grouped": ({"head_dim": 48, "heads": 4, "kv_heads": 2, "ffn": 96, "layers": 3}, ("train.rank=5", "train.scale=0.7")),
    "grouped on Q5_0, which folds as Q5_1": ({"projections": "Q5_0", "embedding": "Q5_1"}, ()),
    "lora on Q5_0": ({"projections": "Q5_0", "embedding": "Q5_0", "tied": False}, ("train.adapter=lora",)),
    "grouped on Q4_K, which folds as Q4_1": ({"projections": "Q4_K", "d_model": 256, "ffn": 256, "heads": 16, "kv_heads": 16}, ()),
    "lora on Q5_K": ({"projections": "Q5_K", "d_model": 256, "ffn": 256, "heads": 16, "kv_heads": 16}, ("train.adapter=lora",)),
}


def random_pairs(trial: EngineTrial) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.RandomState(1)
    matrices = {str(t.name): rng.normal(0, 0.1, t.shape).astype(np.float32) for t in trial.plan.adapter.tensors}
    return {name: (matrices[f"{name}:A"], matrices[f"{name}:B"]) for name in trial.shapes}


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_other_shapes_agree_with_pytorch(case, tmp_path):
    for package in ("torch", "transformers", "peft"):
        pytest.importorskip(package)
    from tests.oracles.torch_model import PeftModel

    changes, overrides = CASES[case]
    model = write_tiny_model(tmp_path / "model.gguf", dataclasses.replace(TinySizes(), **changes))
    trial = EngineTrial.open(compile_tiny_bundle(tmp_path / "bundle", model, "train.buckets=[2x64]", *overrides), threads=2)
    try:
        rng = np.random.RandomState(0)
        rows = [Sample(rng.randint(3, 512, n).astype(np.int32), (rng.uniform(size=n) < 0.7).astype(np.uint8)) for n in (64, 50)]
        pairs, step = random_pairs(trial), trial.step("2x64")
        trial.assign(step, pairs)
        loss, matrices = trial.gradient(step, rows)
        oracle = PeftModel(model, trial.plan.adapter.kind, trial.plan.adapter.scale, pairs)
        wanted, _ = oracle.loss(*padded(rows))
        wanted.backward()
        errors = {"loss": abs(loss - wanted.item()) / wanted.item()}
        for name, gradients in oracle.gradients().items():
            errors |= {f"{name}:{m}": exact_relative_error(matrices[f"{name}:{m}"], g) for m, g in zip("AB", gradients)}
        assert len(errors) == 1 + len(matrices)
        tolerance = ROUNDED_TOLERANCE if changes.get("projections", "").endswith("_K") else TOLERANCE
        assert {name: error for name, error in errors.items() if not error <= tolerance} == {}
    finally:
        trial.close()
