"""The smallest model that has every part, as a shape and an adapter for the graph."""

from __future__ import annotations

from mobilefinetuner.compiler.lowering.graph import AdapterSpec
from mobilefinetuner.compiler.model.shape import ModelShape
from mobilefinetuner.runtime.bundle.plan import PROJECTIONS

SHAPE = ModelShape("llama", "tiny", 2, 64, 4, 2, 16, 128, 512, 1e4, 1e-5, 256, True, {})


def adapter(kind: str = "grouped", targets: tuple[str, ...] = PROJECTIONS) -> AdapterSpec:
    return AdapterSpec(kind, 4, 0.5, targets)
