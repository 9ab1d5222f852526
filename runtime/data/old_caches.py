"""The training caches of a workspace: which there are, and which may be removed.

In:  the folder of caches, what versions and checkpoints refer to.
Out: their paths; one of them, loaded; those that were removed.
Each ingest of other data or settings leaves a cache as large as the data. The newest few stay, so that going back and forth
between settings costs nothing; one that a version was made from stays for `verify`, one that a checkpoint belongs to for `--resume`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError
from ..storage.durable import remove, storage_errors
from .cache import TrainingCache

CACHES_KEPT = 3
"""how many that nothing refers to stay"""
_PREFIX_CHARS = 16
"""of the fingerprint, which are a cache's name"""
_CHECKPOINT_HEAD_BYTES = 1 << 20
"""a checkpoint names its data in the JSON at its beginning"""


def caches_in(cache_dir: Path) -> list[Path]:
    """All of them, oldest first."""
    return sorted(cache_dir.glob("*.mftcache"), key=lambda path: (path.stat().st_mtime_ns, path.name))


def cache_of(cache_dir: Path, fingerprint: str) -> TrainingCache:
    """The one with this data; UserError when it has been removed."""
    for path in sorted(cache_dir.glob(f"{fingerprint[:_PREFIX_CHARS]}*.mftcache")):
        return TrainingCache.load(path)
    raise UserError("data", f"the training cache {fingerprint[:_PREFIX_CHARS]}… is no longer in {cache_dir}", remedy="ingest the data again")


def prune_caches(cache_dir: Path, fingerprints: Iterable[str], runs_dir: Path) -> list[Path]:
    """Remove all but the newest CACHES_KEPT of the caches that no fingerprint and no checkpoint below runs_dir names."""
    named = {fingerprint[:_PREFIX_CHARS] for fingerprint in fingerprints}
    with storage_errors(cache_dir):
        spare = [path for path in reversed(caches_in(cache_dir)) if path.stem[:_PREFIX_CHARS] not in named]
        if len(spare) <= CACHES_KEPT:
            return []
        heads = [_head(path) for path in sorted(runs_dir.rglob("*")) if path.is_file()]
    spare = [path for path in spare if not any(path.stem[:_PREFIX_CHARS].encode() in head for head in heads)]
    for path in spare[CACHES_KEPT:]:
        remove(path)
    return spare[CACHES_KEPT:]


def _head(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(_CHECKPOINT_HEAD_BYTES)
