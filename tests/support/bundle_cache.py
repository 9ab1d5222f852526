"""Bundles for the tests, each compiled once for as long as neither the source nor the tools nor the machine change.

In:  overrides as `mft compile` takes them.
Out: a bundle's folder, copied from build/test-bundles/, to which it was compiled by whichever test session needed it first.
Tests that are about compiling itself use compile_anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.support.short_stack import on_a_short_stack

ROOT = Path(__file__).parents[2]
SOURCES = ("compiler", "runtime", "configs", "templates", "pyproject.toml")
TOOLS = ("apache-tvm", "apache-tvm-ffi", "gguf", "hydra-core", "jinja2", "numpy", "omegaconf", "tokenizers", "ziglang")
CACHE = ROOT / "build" / "test-bundles"
KEPT_STATES = 2
"""folders in the cache: the state of the source now, and the one before it, which another session may still use"""


def compile_anew(out: Path, *overrides: str) -> Path:
    """The bundle of the customer-service scenario for this machine, where the overrides do not say otherwise."""
    from mobilefinetuner.compiler.pipeline import compile_bundle
    from mobilefinetuner.compiler.recipe.load import load_recipe

    recipe = load_recipe(["scenario=customer_service", "device=host", "train.replay_questions=2", f'out="{out}"', *overrides])
    return on_a_short_stack(compile_bundle, recipe, lambda _text: None)


def compiled(out: Path, *overrides: str) -> Path:
    """compile_anew, or a copy of what it made for the same overrides and the same contents of the files that they name."""
    folder = _state_folder() / _digest(b"".join(_meaning(word) for word in overrides))[:32]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            building = folder.with_suffix(".part")
            shutil.rmtree(building, ignore_errors=True)
            compile_anew(building, *overrides)
            building.rename(folder)
    return shutil.copytree(folder, out)


@functools.cache
def _state_folder() -> Path:
    """Where bundles of the present source, tools and machine are; folders of older states are removed."""
    paths = [path for name in SOURCES for path in sorted([ROOT / name, *(ROOT / name).rglob("*")]) if _counts(path)]
    source = b"".join(_line(path.relative_to(ROOT), _digest(path.read_bytes())) for path in paths)
    tools = b"".join(_line(name, importlib.metadata.version(name)) for name in TOOLS)
    folder = CACHE / _digest(source + tools + _machine())[:32]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for old in sorted(CACHE.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT_STATES]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _machine() -> bytes:
    """What a recipe for device=host reads from the machine, and the Python that compiles."""
    from mobilefinetuner.compiler.recipe.host_machine import MACHINE_FACTS, machine_fact

    return _line(platform.python_version(), *(machine_fact(name) for name in MACHINE_FACTS))


def _meaning(override: str) -> bytes:
    """An override, with the contents of the file or folder that it names in place of the path."""
    name, _, value = override.partition("=")
    path = Path(value.strip('"'))
    if not path.is_absolute() or not path.exists():
        return _line(override)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return _line(name, path.name, *(f"{p.relative_to(path)} {_digest(p.read_bytes())}" for p in files))


def _line(*parts: object) -> bytes:
    return "\0".join(map(str, parts)).encode() + b"\n"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time compiles a bundle; others wait for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
