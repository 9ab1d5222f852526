"""Answering with an adapter beside the weights, against the training pass, which is compared with PEFT."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mobilefinetuner.runtime.adapter.flat_vector import tensors_of
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.bundle.plan import Plan
from mobilefinetuner.runtime.engine.decode import Decoder
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile

from tests.support.model_logits import merged_logits, mounted_logits, random_vector

IDS = [1, 7, 300, 45, 45, 9, 128, 511, 2, 80, 81, 82]


@pytest.fixture(scope="module", params=["grouped", "lora"])
def bundle(request, tiny_bundle_path, tiny_lora_bundle_path) -> Path:
    return tiny_bundle_path if request.param == "grouped" else tiny_lora_bundle_path


def opened(bundle: Path, adapter: AdapterTensors | None = None) -> Engine:
    plan = Plan.from_json(json.loads((bundle / "plan.json").read_text()))
    return Engine(plan, bundle / "kernels.so", GgufFile.open(bundle / "model.gguf"), 2, adapter)


def test_a_mounted_adapter_gives_the_training_passs_logits_at_once_and_token_by_token(bundle):
    with opened(bundle) as engine:
        plan = engine.plan
        vector = random_vector(plan.adapter, 11, 0.1)  # a larger one drives attention into saturation, which magnifies rounding
        wanted, without = mounted_logits(engine, IDS, vector), merged_logits(engine, IDS)
    assert abs(wanted - without).max() > 0.1, "the adapter must matter for this to be a test"
    with opened(bundle, tensors_of(plan.adapter, vector)) as engine:
        np.testing.assert_allclose(merged_logits(engine, IDS), wanted, atol=1e-5 * abs(wanted).max(), rtol=0)
        decoder = Decoder(engine)
        logits = [decoder.start(IDS[:3]).copy()] + [decoder.next(token).copy() for token in IDS[3:]]
    np.testing.assert_allclose(logits, wanted[2:], atol=1e-5 * abs(wanted).max(), rtol=0)


def test_an_adapter_of_another_kind_rank_scale_or_place_is_refused(bundle):
    with opened(bundle) as engine:
        plan = engine.plan.adapter
    sound = tensors_of(plan, random_vector(plan, 12, 0.5))
    name = next(iter(sound.pairs))
    a, b = sound.pairs[name]
    other = "lora" if plan.kind == "grouped" else "grouped"
    for adapter, reason in (
        (AdapterTensors(other, sound.scale, sound.pairs), f"is {other} of rank 4"),
        (AdapterTensors(sound.kind, 0.25, sound.pairs), "scale 0.25"),
        (AdapterTensors(sound.kind, sound.scale, {n: (x[:2], y[:, :2]) for n, (x, y) in sound.pairs.items()}), "rank 2"),
        (AdapterTensors(sound.kind, sound.scale, {n: p for n, p in sound.pairs.items() if n != name}), "changes other tensors"),
        (AdapterTensors(sound.kind, sound.scale, {**sound.pairs, name: (a[:, 1:], b)}), "has the shape"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=reason):
            opened(bundle, adapter)
