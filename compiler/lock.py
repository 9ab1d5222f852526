"""Golden checksums of reference bundles, so that a change of their content is seen and meant.

In:  lock files (bundles/*.lock.json): the overrides of a recipe and the checksums its bundle had.
Out: the differences of a bundle compiled now, or the file written anew.
mft.pyz is left out: it is the runtime's source, which has its own history.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..runtime.bundle.folder import Bundle
from ..runtime.errors import UserError

LEFT_OUT = ("mft.pyz",)
SUFFIX = ".lock.json"


def main(words: Sequence[str], progress: Callable[[str], None]) -> int:
    """mft lock FILE…: compile each lock file's recipe and compare, or --write what came out."""
    parser = argparse.ArgumentParser(
        prog="mft lock", description="Compile reference bundles and compare their checksums with the lock files; exit code 2 when one differs."
    )
    parser.add_argument("files", nargs="+", type=Path, metavar=f"NAME{SUFFIX}", help="such as bundles/shop-armv8_2.lock.json")
    parser.add_argument("--write", action="store_true", help="write the checksums of now into the files instead of comparing")
    options = parser.parse_args(words)
    for path in options.files:
        lock = read_lock(path)
        found = checksums_of(lock["overrides"], progress)
        if options.write:
            path.write_text(json.dumps({"overrides": lock["overrides"], **found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        elif different := differences(lock, found):
            raise UserError(str(path), f"the bundle differs in {', '.join(different)}", remedy=f"look why; if it is meant: mft lock --write {path}")
        print(f"{path}: {'written' if options.write else 'as locked'}")
    return 0


def read_lock(path: Path) -> dict:
    """The lock file; one that is to be written for the first time needs its overrides alone."""
    try:
        lock = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(str(path), f"is no lock file ({error})", '{"overrides": ["scenario=…", "device=…"]}') from None
    if not isinstance(lock, dict) or not isinstance(lock.get("overrides"), list):
        raise UserError(str(path), "names no overrides", '{"overrides": ["scenario=…", "device=…"]}')
    return lock


def checksums_of(overrides: Sequence[str], progress: Callable[[str], None]) -> dict:
    """files (name -> sha256) and required CPU features of the recipe's bundle."""
    from .pipeline import compile_bundle
    from .recipe.load import load_recipe

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bundle"
        bundle = Bundle.open_manifest(compile_bundle(load_recipe([*overrides, f'out="{out}"']), progress))
        files = {name: record.sha256 for name, record in bundle.files.items() if name not in LEFT_OUT}
        return {"files": files, "required_cpu_features": list(bundle.manifest.required_cpu_features)}


def differences(lock: dict, found: dict) -> list[str]:
    """Names of what differs."""
    before, now = lock.get("files", {}), found["files"]
    names = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    return names + [key for key in ("required_cpu_features",) if lock.get(key) != found[key]]
