"""A tiny base model and adapters for the tests of the version store: real files, a few kilobytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.gguf.blocks import quantize
from mobilefinetuner.runtime.gguf.file import GgufFile, TensorSource, write_gguf
from mobilefinetuner.runtime.gguf.types import Field
from mobilefinetuner.runtime.versions.version_block import RESERVED_KEY, VersionBlock, reserved_field

ADAPTED = "blk.0.attn_q.weight"
SHAPE = (8, 64)


def make_base_model(path: Path) -> Path:
    values = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    write_gguf(
        path,
        {"general.architecture": Field("str", "llama"), RESERVED_KEY: reserved_field()},
        [
            TensorSource(ADAPTED, SHAPE, "Q4_1", lambda: quantize(values, "Q4_1")),
            TensorSource("output_norm.weight", SHAPE[1:], "F32", lambda: values[0]),
        ],
    )
    return path


def make_small_adapter(seed: int) -> AdapterTensors:
    rng = np.random.default_rng(seed)
    return AdapterTensors("grouped", 0.5, {ADAPTED: (rng.normal(size=(2, 2)).astype(np.float32), rng.normal(size=(8, 2)).astype(np.float32))})


def make_block(parent: str, steps: int = 10) -> VersionBlock:
    return VersionBlock(
        id="",
        parent=parent,
        base_id="tiny",
        base_sha256="a" * 64,
        data_fingerprint="b" * 64,
        steps=steps,
        recipe_sha256="c" * 64,
        created_utc="2026-01-31T12:00:00Z",
        tool="mobilefinetuner 0.1.0",
    )


def add_version(store, parent: str, seed: int, verdict: str | None = "promote") -> str:
    """Merge, judge and promote a version trained from `parent`."""
    with store.staged(make_block(parent), make_small_adapter(seed), {"train": {"seed": seed}}) as new:
        new.merge(GgufFile.open(store.model_path(parent)))
        new.publish()
    if verdict:
        store.judge(new.id, verdict, ("recall rose",), {"recall": 0.6})
        if verdict != "keep":
            store.promote(new.id)
    return new.id


def mount_version(store, on: str, seed: int) -> str:
    """A version that is an adapter beside the weights of `on`, not judged."""
    with store.staged(make_block(on), make_small_adapter(seed), {}) as new:
        new.mount(store.open(on))
        new.publish()
    return new.id
