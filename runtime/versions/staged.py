"""A version in the making: a hidden folder beside the finished versions, until publish() renames it into its place.

In:  the adapter, the version block, the weights that the adapter was trained on.
Out: a Version with its files; nothing is left behind when publish() was not reached.
merge() may be called again: the file before is removed, so one merged file at a time takes storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..adapter.tensors import AdapterTensors
from ..gguf.file import GgufFile
from ..storage.durable import publish_directory, remove, sha256_of_file, write_sealed_json
from .merge import REQUANTIZED_TYPES, MergeReport, RequantizedType, check_adapter_fits, merge_version
from .record import MODEL_NAME, RECORD_NAME, OpenedVersion, Version
from .version_block import VersionBlock


class StagedVersion:
    """Filled by merge() or mount(), then published."""

    def __init__(self, place: Path, block: VersionBlock, adapter: AdapterTensors, recipe: Mapping[str, Any]) -> None:
        self.id, self.published = block.id, False
        self._place, self._block, self._adapter, self._recipe = place, block, adapter, dict(recipe)
        self._record: Version | None = None

    @property
    def model(self) -> GgufFile:
        """The merged file, opened."""
        return GgufFile.open(self._place / MODEL_NAME)

    def merge(self, base: GgufFile, requantize_to: RequantizedType = REQUANTIZED_TYPES[-1]) -> MergeReport:
        """Write the weights with the adapter in them; UserError when it does not fit, changes nothing, or the storage refuses."""
        remove(self._place / MODEL_NAME)
        report = merge_version(base, self._adapter, self._block, self._place / MODEL_NAME, requantize_to)
        self._record = self._recorded(report.size_bytes, report.sha256, report.adapter_digest)
        return report

    def mount(self, on: OpenedVersion) -> None:
        """Leave the weights of `on` as they are and keep the adapter beside them; UserError when it does not fit."""
        check_adapter_fits(on.model, self._adapter, to_merge=False)
        remove(self._place / MODEL_NAME)
        self._record = self._recorded(self._adapter.n_bytes, sha256_of_file(on.model.path), self._adapter.digest(), on.weights_of)

    def publish(self) -> Version:
        """Let the version appear by one rename, not verified yet."""
        if self._record is None:
            raise ValueError(f"{self.id} has neither weights of its own nor any that it is mounted on")
        self._adapter.save(self._place)
        write_sealed_json(self._place / RECORD_NAME, asdict(self._record))
        publish_directory(self._place, self._place.with_name(self.id))
        self.published = True
        return self._record

    def _recorded(self, model_bytes: int, model_sha256: str, adapter_digest: str, mounted_on: str = "") -> Version:
        block = self._block
        return Version(block.id, block.parent, block.created_utc, model_bytes, model_sha256, adapter_digest, block.data_fingerprint, block.steps,
                       self._recipe, mounted_on=mounted_on)  # fmt: skip
