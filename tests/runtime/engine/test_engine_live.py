"""The engine against PyTorch, transformers and PEFT, where they are installed: whole tensors instead of fingerprints.

Tolerances as in test_engine_golden.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.engine_case import STEPS, adapter_pairs, exact_relative_error, load_inputs, merged_model, padded, samples

TOLERANCE, COURSE_TOLERANCE = 1e-4, 1e-3
LIVE_PROMPTS = 4
pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def oracle():
    """torch_model and engine_golden, or a skipped test where PyTorch is not installed."""
    for package in ("torch", "transformers", "peft"):
        pytest.importorskip(package)
    from tests.oracles import engine_golden, torch_model

    return torch_model, engine_golden


@pytest.fixture(scope="module")
def inputs() -> dict:
    return load_inputs()


def test_loss_and_every_gradient_agree_with_pytorch(real, oracle, inputs):
    kind, pairs = real.plan.adapter.kind, adapter_pairs(real.plan.adapter.kind, real.shapes, started=True)
    step, batch = real.step("2x64"), samples(inputs["batch"])
    real.assign(step, pairs)
    loss, matrices = real.gradient(step, batch)
    model = oracle[0].PeftModel(real.bundle / "model.gguf", kind, real.plan.adapter.scale, pairs)
    ids, attention, labels = padded(batch)
    wanted, embeddings = model.loss(ids, attention, labels)
    wanted.backward()
    here = attention.astype(bool)
    errors = {
        "loss": abs(loss - wanted.item()) / wanted.item(),
        "input": exact_relative_error(step.input_gradient().reshape(2, 64, -1)[here], embeddings.grad.numpy()[here]),
    }
    for name, gradients in model.gradients().items():
        errors |= {f"{name}:{m}": exact_relative_error(matrices[f"{name}:{m}"], g) for m, g in zip("AB", gradients)}
    print(f"{kind}: worst {max(errors, key=errors.get)} {max(errors.values()):.1e}, loss {errors['loss']:.1e}, input {errors['input']:.1e}")
    assert len(errors) == 2 + 2 * len(real.shapes)
    assert {name: error for name, error in errors.items() if not error <= TOLERANCE} == {}


@pytest.mark.slow
def test_a_course_agrees_with_torchs_adamw(real, oracle, inputs):
    kind, pairs = real.plan.adapter.kind, adapter_pairs(real.plan.adapter.kind, real.shapes, started=False)
    step, course = real.step("2x64"), samples(inputs["course"])
    real.assign(step, pairs)
    losses = real.train(step, course, STEPS)
    wanted, trained = oracle[1].train(real.bundle / "model.gguf", kind, pairs, course)
    print(f"{kind}: worst loss of the course {np.abs(np.subtract(losses, wanted)).max():.1e}")
    np.testing.assert_allclose(losses, wanted, rtol=0, atol=COURSE_TOLERANCE)
    moved = {str(t.name): step.state["parameters"][t.offset : t.offset + t.shape[0] * t.shape[1]].reshape(t.shape) for t in real.plan.adapter.tensors}
    # Adam divides by the gradient's own size, so where a gradient is almost nothing its rounding errors count in full.
    ours = np.concatenate([(moved[f"{n}:{m}"] - pairs[n][i]).reshape(-1) for n in pairs for i, m in enumerate("AB")])
    theirs = np.concatenate([(trained[n][i] - pairs[n][i]).reshape(-1) for n in pairs for i in (0, 1)])
    assert exact_relative_error(ours, theirs) < 2e-2


@pytest.mark.slow
def test_greedy_decoding_agrees_with_transformers(real, oracle, inputs, tmp_path):
    kind = real.plan.adapter.kind
    merged = merged_model(real.bundle / "model.gguf", kind, adapter_pairs(kind, real.shapes, started=True), tmp_path / "merged.gguf")
    prompts = inputs["prompts"][-LIVE_PROMPTS:]
    wanted = oracle[1].greedy(merged, prompts)
    real.reopen(merged)
    try:
        assert real.answers(prompts, [len(answer) for answer in wanted]) == wanted
    finally:
        real.reopen()
