"""Engines that tests share: the real model in a bundle of each adapter kind, and the tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

KIND_OVERRIDES = {"grouped": ("quantization=fold",), "lora": ("quantization=exact",)}


@pytest.fixture(scope="session", params=KIND_OVERRIDES)
def real(request: pytest.FixtureRequest, smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """SmolLM2 compiled for buckets 1x64 and 2x64 with the adapter of tests/oracles/engine_case.py, opened with two threads."""
    from tests.oracles.engine_case import RANK, SCALE
    from tests.support.bundle_cache import compiled
    from tests.support.engine_trial import EngineTrial

    kind = request.param
    bundle = compiled(
        tmp_path_factory.mktemp(kind) / "bundle", f"train.adapter={kind}", *KIND_OVERRIDES[kind], f"train.rank={RANK}", f"train.scale={SCALE}",
        "train.buckets=[1x64,2x64]", "scenario.window_tokens=64",
    )  # fmt: skip
    trial = EngineTrial.open(bundle, threads=2)
    yield trial
    trial.close()


@pytest.fixture
def tiny(tiny_bundle_path: Path) -> Iterator:
    """The tiny bundle, opened with two threads."""
    from tests.support.engine_trial import EngineTrial

    trial = EngineTrial.open(tiny_bundle_path, threads=2)
    yield trial
    trial.close()
