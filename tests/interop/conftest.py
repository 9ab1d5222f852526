"""Interop tests compare with other tools' own code. What they share: the real model, tuned on one fact until it knows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

FACT, STEPS, LEARNING_RATE = "gift", 12, 4e-3


@dataclass(frozen=True)
class Tuned:
    """SmolLM2 with an adapter that learnt what the shop charges for gift wrapping, mounted and folded."""

    bundle: Path
    plan: object
    vector: np.ndarray
    adapter: object
    base: Path
    merged: Path
    question: str
    entity: str


@pytest.fixture(scope="session")
def tuned(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """Compile, train a dozen steps on the paraphrases of one fact, fold."""
    from mobilefinetuner.compiler.pipeline import compile_bundle
    from mobilefinetuner.compiler.recipe.load import load_recipe
    from mobilefinetuner.runtime.adapter.flat_vector import tensors_of
    from mobilefinetuner.runtime.bundle.plan import Plan
    from mobilefinetuner.runtime.gguf.file import GgufFile
    from mobilefinetuner.runtime.versions.merge import merge_version

    from tests.support.model_logits import SAMPLE

    folder = tmp_path_factory.mktemp("tuned")
    recipe = load_recipe([
        "scenario=customer_service", "model=gguf_file", f'model.source.path="{smollm2_path}"', "device=host", "train.buckets=[1x128]",
        "scenario.window_tokens=128", f'out="{folder / "bundle"}"',
    ])  # fmt: skip
    bundle = compile_bundle(recipe, lambda _text: None)
    plan = Plan.from_json(json.loads((bundle / "plan.json").read_text()))
    rows = [row for row in map(json.loads, SAMPLE.read_text(encoding="utf-8").splitlines()) if row["fact"] == FACT]
    vector = _train(bundle, plan, rows)
    adapter = tensors_of(plan.adapter, vector)
    merge_version(GgufFile.open(bundle / "model.gguf"), adapter, _block(), folder / "merged.gguf")
    return Tuned(
        bundle, plan, vector, adapter, bundle / "model.gguf", folder / "merged.gguf", rows[0]["messages"][0]["content"], rows[0]["entities"][1]
    )


def _train(bundle: Path, plan, rows: list[dict]) -> np.ndarray:
    from mobilefinetuner.runtime.adapter.flat_vector import initialise
    from mobilefinetuner.runtime.engine.engine import Engine
    from mobilefinetuner.runtime.engine.packing import pack
    from mobilefinetuner.runtime.gguf.file import GgufFile
    from mobilefinetuner.runtime.message import Message
    from mobilefinetuner.runtime.train.step import AdamW, TrainStep

    from tests.support.model_logits import chat_and_tokenizer

    chat, tokenizer = chat_and_tokenizer(bundle)
    samples = [chat.encode(tokenizer, [Message(m["role"], m["content"]) for m in row["messages"]]) for row in rows]
    with Engine(plan, bundle / "kernels.so", GgufFile.open(bundle / "model.gguf"), threads=2) as engine:
        runner = TrainStep(engine, "1x128")
        initialise(plan.adapter, runner.state["parameters"], 0)
        batches = pack(samples, 1, 128)
        for step in range(1, STEPS + 1):
            for batch in batches:
                runner.accumulate(batch, sum(b.labels for b in batches))
            runner.update(LEARNING_RATE, step, AdamW(0.9, 0.999, 1e-8, 0.0, 1.0, 0.0))
        return runner.state["parameters"].copy()


def _block():
    from mobilefinetuner.runtime.versions.version_block import VersionBlock

    return VersionBlock(id="v0001", parent="base", base_id="smollm2_135m", base_sha256="a" * 64, data_fingerprint="b" * 64, steps=STEPS,
                        recipe_sha256="c" * 64, created_utc="2026-01-31T12:00:00Z", tool="mobilefinetuner 0.1.0")  # fmt: skip


@pytest.fixture(scope="session")
def tiny_lora_bundle_path(tiny_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As tiny_bundle_path, with the classic kind of adapter."""
    from tests.support.tiny_bundle import compile_tiny_bundle

    return compile_tiny_bundle(tmp_path_factory.mktemp("lora-bundle") / "tiny", tiny_model_path, "train.adapter=lora", "quantization=auto")
