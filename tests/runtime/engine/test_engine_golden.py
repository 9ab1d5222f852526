"""The engine on SmolLM2's real weights against values that PyTorch and PEFT gave (tests/oracles/engine_golden.py).

Tolerances: relative error 1e-4 for the loss and for the gradient of the input and of every adapter matrix; 1e-3 nats for each loss of a
course of 30 AdamW steps; greedy answers token for token.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.oracles.engine_case import CASES, STEPS, adapter_pairs, load_inputs, merged_model, relative_error, samples

TOLERANCE, COURSE_TOLERANCE = 1e-4, 1e-3


@pytest.fixture
def golden(real) -> dict[str, np.ndarray]:
    """Loss, course, and the fingerprint of every gradient by name."""
    with np.load(CASES / f"{real.plan.adapter.kind}.npz") as file:
        return {
            "loss": file["loss"],
            "course": file["course"],
            **dict(zip(file["names"].tolist(), file["fingerprints"].astype(np.float64), strict=True)),
        }


@pytest.fixture(scope="module")
def inputs() -> dict:
    return load_inputs()


def test_loss_and_every_gradient_are_pytorchs(real, golden, inputs):
    step = real.step("2x64")
    real.assign(step, adapter_pairs(real.plan.adapter.kind, real.shapes, started=True))
    batch = samples(inputs["batch"])
    loss, matrices = real.gradient(step, batch)
    errors = {"loss": abs(loss - golden["loss"]) / golden["loss"]}
    errors |= {name: relative_error(matrix, golden[name], name) for name, matrix in matrices.items()}
    tokens = np.arange(64)[None] < np.array([[len(s.token_ids)] for s in batch])
    errors["input"] = relative_error(step.input_gradient()[tokens.reshape(-1)], golden["input"], "input")
    assert len(errors) == 2 + 2 * 7 * real.plan.model.layers
    assert {name: error for name, error in errors.items() if not error <= TOLERANCE} == {}


def test_the_losses_of_a_course_are_pytorchs(real, golden, inputs):
    step = real.step("2x64")
    real.assign(step, adapter_pairs(real.plan.adapter.kind, real.shapes, started=False))
    losses = real.train(step, samples(inputs["course"]), STEPS)
    np.testing.assert_allclose(losses, golden["course"], rtol=0, atol=COURSE_TOLERANCE)
    assert losses[-1] < 0.7 * losses[0]


def test_greedy_answers_of_the_merged_model_are_those_of_transformers(real, inputs, tmp_path):
    kind = real.plan.adapter.kind
    wanted = json.loads((CASES / "greedy.json").read_text(encoding="utf-8"))[kind]
    assert len(wanted) >= 20 and sum(map(len, wanted)) >= 200
    real.reopen(merged_model(real.bundle / "model.gguf", kind, adapter_pairs(kind, real.shapes, started=True), tmp_path / "merged.gguf"))
    try:
        assert real.answers(inputs["prompts"], [len(answer) for answer in wanted]) == wanted
    finally:
        real.reopen()
