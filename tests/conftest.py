"""What tests of several packages share: the real model, fetched once and kept in the user's cache."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, cast

import pytest

BEGUN = pytest.StashKey[float]()
ONE_WORKER = ("tests/compiler/kernels/", "tests/phone/")
"""Folders whose tests share what is costly to make, or what a machine has one of: with several workers, one of them runs the whole folder."""
LONGEST = ("tests/runtime/engine/test_engine_golden.py", "tests/runtime/engine/test_engine_live.py", "tests/runtime/test_killed_runs.py", *ONE_WORKER)
"""With several workers, these begin first, so that none of them is alone at the end."""


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct's Q4_1 GGUF, as the shipped recipe names it."""
    from mobilefinetuner.compiler.model.source import resolve_model
    from mobilefinetuner.compiler.recipe.schema import ModelSource
    from omegaconf import OmegaConf

    recipe = OmegaConf.load(Path(__file__).parent.parent / "configs" / "model" / "smollm2_135m.yaml")
    return resolve_model(ModelSource(**cast(dict[str, Any], OmegaConf.to_container(recipe.source))))


@pytest.fixture(scope="session")
def tiny_model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer llama model with a real tokenizer and chat template: 512 tokens, Q4_1, 0.2 MB."""
    from tests.support.tiny_bundle import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_bundle_path(tiny_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of tiny_model_path for this machine: grouped adapter of rank 4, buckets 1x32, 1x64 and 2x32.

    Never written to: copy it to break it.
    """
    from tests.support.tiny_bundle import compile_tiny_bundle

    return compile_tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny", tiny_model_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=None, help="start no further test after so many minutes; the rest is skipped, with this reason")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """pytest -n 2: a file stays on one worker, so that what its tests share is made once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in ONE_WORKER if nodeid.startswith(folder)), nodeid.split("::")[0])

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # of one worker among several
        items.sort(key=lambda item: next((n for n, path in enumerate(LONGEST) if item.nodeid.startswith(path)), len(LONGEST)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    limit = item.config.getoption("--minutes")
    if limit is not None and time.monotonic() - item.config.stash[BEGUN] > 60 * limit:
        pytest.skip(f"the {limit:g} minutes for this run are used up")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGUN] = time.monotonic()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell started this in the background, and children would ignore Ctrl-C as well
        signal.signal(signal.SIGINT, signal.default_int_handler)
