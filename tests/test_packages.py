"""The packages as they are imported and installed: who may import whom, and that nothing is left out of the wheel."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHONE_LIBRARIES = {"numpy", "tokenizers"}
SOURCES = [path for name in ("runtime", "compiler") for path in sorted((ROOT / name).rglob("*.py"))]


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(level, module) of every import statement, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


@pytest.mark.parametrize("path", [p for p in SOURCES if p.is_relative_to(ROOT / "runtime")], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_runtime_imports_only_the_standard_library_numpy_tokenizers_and_itself(path: Path) -> None:
    depth = len(path.relative_to(ROOT / "runtime").parts)
    for level, module in imports_of(path):
        if level:
            assert level <= depth, f"{'.' * level}{module} leaves the runtime"
        else:
            top = module.split(".")[0]
            assert top in sys.stdlib_module_names or top in PHONE_LIBRARIES, f"import {module}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_inside_the_packages_imports_are_relative(path: Path) -> None:
    assert not [module for level, module in imports_of(path) if not level and module.startswith("mobilefinetuner")]


def test_every_package_folder_is_installed() -> None:
    listed = set(re.findall(r'"mobilefinetuner\.([a-z_.]+)",', (ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    found = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for name in ("compiler", "runtime", "configs", "templates")
        for init in (ROOT / name).rglob("__init__.py")
    }
    assert listed == found


def test_every_module_opens_with_its_sentence() -> None:
    silent = [str(p.relative_to(ROOT)) for p in SOURCES if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert not silent
