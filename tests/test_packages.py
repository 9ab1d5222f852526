"""The packages as they are imported and installed: who may import whom, and that nothing is left out of the wheel.

ORDER is the house from the ground up: a module imports from its own entry and from those before it, never from one after it. It
belongs to the longest entry that names it or a folder around it. The compiler may import the whole runtime.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHONE_LIBRARIES = {"numpy", "tokenizers"}
FOLDER_MODULES_MAX = 15
ORDER = {
    "runtime": (
        "__init__", "errors", "message", "plain_data",
        "measures/text", "measures",
        "storage",
        "gguf",
        "bundle",
        "adapter",
        "engine",
        "data/text", "data/files", "data/records", "data/report", "data/readers", "data/scenario", "data/rules", "data",
        "versions",
        "train",
        "verify",
        "session",
        "probe",
        "ingest", "export", "tune", "import_adapter",
        "verbs",
        "cli",
    ),
    "compiler": (
        "__init__",
        "kernels",
        "recipe",
        "model",
        "lowering",
        "library",
        "bundle",
        "pipeline", "lock", "demo",
        "remote",
        "cli",
    ),
}  # fmt: skip
SOURCES = [path for name in ("runtime", "compiler") for path in sorted((ROOT / name).rglob("*.py"))]


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(level, module) of every import statement, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


def module_of(path: Path) -> str:
    """runtime/data/ingest.py -> runtime/data/ingest; a package is its __init__."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


MODULES = {module_of(path) for path in SOURCES}


def imported_modules(path: Path) -> set[str]:
    """Our own modules that a file imports anywhere in it; `from .package import module` is an import of that module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = "/".join([*module_of(path).split("/")[: -node.level], *(node.module.split(".") if node.module else ())])
            for alias in node.names:
                [name, *_] = [name for name in (f"{base}/{alias.name}", f"{base}/{alias.name}/__init__", base, f"{base}/__init__") if name in MODULES]
                found.add(name)
    return found


def place_of(module: str) -> tuple[str, int]:
    """(runtime or compiler, the number of its place in ORDER)."""
    area, _, inside = module.partition("/")
    around = [place for place in ORDER[area] if f"{inside}/".startswith(f"{place}/")]
    assert around, f"{module} has no place in ORDER"
    return area, ORDER[area].index(max(around, key=len))


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_no_module_imports_one_that_stands_after_it_in_the_order(path: Path) -> None:
    area, place = place_of(module_of(path))
    places = {module: place_of(module) for module in imported_modules(path)}
    assert not [module for module, (other, number) in places.items() if other == area and number > place]


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter({module_of(path): imported_modules(path) for path in SOURCES}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_folder_has_more_modules_than_a_reader_can_overlook() -> None:
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in SOURCES if path.name != "__init__.py")
    assert not {folder: count for folder, count in counts.items() if count > FOLDER_MODULES_MAX}


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
