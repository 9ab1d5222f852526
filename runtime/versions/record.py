"""What is known of a version: its record, the store's listing, a version that was opened.

Out: frozen records; BASE is the bundle's own model, which has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..adapter.tensors import AdapterTensors
from ..gguf.file import GgufFile

BASE = "base"
MODEL_NAME, RECORD_NAME = "model.gguf", "version.json"
VERSION_ID = re.compile(r"v(\d{4,})")
Verdict = Literal["promote", "warn", "keep"]
"""of verification; keep: the version before it stays in use"""
State = Literal["unverified", Verdict]


@dataclass(frozen=True)
class Version:
    """One version's record."""

    id: str
    parent: str
    created_utc: str
    model_bytes: int
    """of its own weights; of the adapter when it is mounted"""
    model_sha256: str
    """of the file with the weights"""
    adapter_digest: str
    data_fingerprint: str
    steps: int
    recipe: Mapping[str, Any]
    verdict: State = "unverified"
    reasons: tuple[str, ...] = ()
    scores: Mapping[str, float] | None = None
    """what verification measured, by name"""
    mounted_on: str = ""
    """the version whose weights the adapter is computed beside; empty when it was merged into weights of its own"""


@dataclass(frozen=True)
class Listing:
    """The store as it is now."""

    current: str
    versions: tuple[Version, ...]
    """oldest first"""
    pruned: frozenset[str]
    """ids whose weights were removed"""
    notices: tuple[str, ...]
    """what is damaged, in sentences"""

    def as_json(self) -> dict[str, Any]:
        return {
            "current": self.current,
            "notices": list(self.notices),
            "versions": [
                {
                    "id": version.id,
                    "parent": version.parent,
                    "created": version.created_utc,
                    "bytes": version.model_bytes,
                    "verdict": version.verdict,
                    "reasons": list(version.reasons),
                    "scores": dict(version.scores or {}),
                    "steps": version.steps,
                    "data_fingerprint": version.data_fingerprint,
                    "mounted_on": version.mounted_on,
                    "pruned": version.id in self.pruned,
                }
                for version in self.versions
            ],
        }


@dataclass(frozen=True)
class OpenedVersion:
    """A version whose checksum was verified just now; the base's is the bundle's business."""

    id: str
    model: GgufFile
    notices: tuple[str, ...]
    """why it is not the one that was current, in sentences; show them"""
    adapter: AdapterTensors | None = None
    """to be mounted beside the weights"""
    mounted_on: str = ""
    """the version that `model` belongs to when it is not its own"""

    @property
    def weights_of(self) -> str:
        """The version whose weights these are."""
        return self.mounted_on or self.id


@dataclass(frozen=True)
class Switch:
    """What a rollback did."""

    before: str
    after: str
    notices: tuple[str, ...]


def version_number(version_id: str) -> int:
    """7 for v0007; 0 for whatever is no id."""
    match = VERSION_ID.fullmatch(version_id)
    return int(match[1]) if match else 0
