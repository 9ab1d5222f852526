"""What tests of several packages share: the real model, fetched once and kept in the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct's Q4_1 GGUF, as the shipped recipe names it."""
    from omegaconf import OmegaConf

    from mobilefinetuner.compiler.model_source import resolve_model
    from mobilefinetuner.compiler.recipe_schema import ModelSource

    recipe = OmegaConf.load(Path(__file__).parent.parent / "configs" / "model" / "smollm2_135m.yaml")
    return resolve_model(ModelSource(**OmegaConf.to_container(recipe.source)))
