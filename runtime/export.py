"""Give a version to other tools: as a whole GGUF, as a PEFT folder, or as llama.cpp's LoRA file.

In:  a session, a version, a format, the target path.
Out: ExportResult; the target appears whole or not at all, and nothing that exists is overwritten.
The two adapter formats say what changed since the bundle's base, so the adapters of a version's whole lineage are put together.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from .adapter.forms import summed
from .adapter.gguf_lora import write_gguf_lora
from .adapter.peft_folder import write_peft_folder
from .adapter.tensors import AdapterTensors
from .errors import UserError
from .session import Session
from .storage.durable import READ_CHUNK_BYTES, TEMPORARY_SUFFIX, DurableFile, make_directory, publish_directory, remove
from .versions.merge import merge_version
from .versions.merge_policies import new_block
from .versions.record import BASE
from .versions.store import VersionStore
from .versions.version_block import VersionBlock

Format = Literal["gguf", "peft", "gguf-lora"]


@dataclass(frozen=True)
class ExportResult:
    """What was written."""

    version: str
    format: Format
    path: str
    bytes: int


def export_version(session: Session, version_id: str | None, form: Format, out: Path) -> ExportResult:
    """Write it; UserError when the version is damaged, the path is taken, or an ancestor's adapter is gone."""
    out = out.absolute()
    if os.path.lexists(out):
        raise UserError(str(out), "exists already", remedy="name a path that does not exist yet")
    if not out.parent.is_dir():
        raise UserError(str(out.parent), "is no directory", remedy="make it first, or name a path in an existing one")
    opened = session.open_version(version_id)
    if form == "gguf" and opened.adapter is not None:
        session.say(f"merging the adapter that {opened.id} mounts")
        n_bytes = merge_version(opened.model, opened.adapter, _block(session, opened.id), out).size_bytes
    elif form == "gguf":
        n_bytes = _copy(opened.model.path, out)
    else:
        adapter = lineage_adapter(session.versions, opened.id)
        name = str(session.bundle.recipe["model"]["name"])
        title = f"{name} {opened.id}"
        n_bytes = _write_folder(session, adapter, out, name) if form == "peft" else write_gguf_lora(out, adapter, session.base, title)
    return ExportResult(opened.id, form, str(out), n_bytes)


def _block(session: Session, version_id: str) -> VersionBlock:
    record = session.versions.record(version_id)
    block = new_block(session.bundle, record.parent, record.data_fingerprint, record.steps)
    return replace(block, id=version_id, created_utc=record.created_utc)


def lineage_adapter(store: VersionStore, version_id: str) -> AdapterTensors:
    """The update from the base to this version as one adapter."""
    if version_id == BASE:
        raise UserError("export", "the base has no adapter", remedy="name a version with --version, or --format gguf")
    adapters: list[AdapterTensors] = []
    while version_id != BASE:
        if store.is_pruned(version_id):
            raise UserError(
                f"version {version_id}", "was pruned, and its adapter is part of this lineage", remedy="--format gguf, which needs no adapter"
            )
        adapters.append(AdapterTensors.load(store.directory / version_id))
        record = store.record(version_id)
        # A mounted adapter was trained on from its parent's, so it holds all that came after the weights it stands on.
        version_id = record.mounted_on or record.parent
    return summed(adapters[::-1])


def _copy(source: Path, out: Path) -> int:
    with DurableFile(out, expected_bytes=source.stat().st_size) as target, source.open("rb") as file:
        while piece := file.read(READ_CHUNK_BYTES):
            target.write(piece)
    return target.size_bytes


def _write_folder(session: Session, adapter: AdapterTensors, out: Path, name: str) -> int:
    staged = out.with_name(f".{out.name}{TEMPORARY_SUFFIX}")
    remove(staged)
    make_directory(staged)
    try:
        n_bytes = write_peft_folder(staged, adapter, session.base, name)
        publish_directory(staged, out)
    finally:
        remove(staged)
    return n_bytes
