"""Write a bundle so that it either exists completely or not at all.

In:  the files (bytes, or the path of a file to copy) and what the manifest says about them.
Out: the bundle's folder; the same content gives the same bytes, and a bundle that is already there is then left alone.
The folder is built beside its place and moved there in one step. Only a bundle is ever replaced, never another folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...runtime.bundle.folder import FORMAT_VERSION, MANIFEST_NAME, Bundle, FileRecord, Manifest, bundle_id_of, is_file_name, manifest_bytes
from ...runtime.errors import UserError
from ...runtime.plain_data import plain
from ...runtime.storage.durable import (
    READ_CHUNK_BYTES,
    DurableFile,
    make_directory,
    process_is_alive,
    publish_directory,
    remove,
    replace_directory,
    require_space,
    sha256_of_file,
    storage_errors,
    write_bytes,
)  # fmt: skip

BUILDING_SUFFIX = ".building"
WRITTEN_KEYS = ("abi", "base_conversions", "recipe", "required_cpu_features", "tools")
"""what the caller says; the writer adds files, format_version and bundle_id"""


def write_bundle(out: Path, files: Mapping[str, bytes | Path], manifest_fields: Mapping[str, Any]) -> Path:
    """Write `files` and their manifest to the folder `out` and return it.

    manifest_fields: abi (a dict with at least `arch`), base_conversions (a list), recipe, required_cpu_features, tools (name -> version).
    Raises UserError when `out` is something else than a bundle, or cannot be written.
    """
    _check_names(files, manifest_fields)
    _refuse_foreign(out)
    try:
        _write_bundle(out, files, manifest_fields)
    except UserError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError):
            raise
        found = f"the bundle cannot be written ({cause.strerror or cause})"
        raise UserError(str(out), found, remedy="out=DIR with a folder that can be written to") from cause
    return out


def _write_bundle(out: Path, files: Mapping[str, bytes | Path], manifest_fields: Mapping[str, Any]) -> None:
    with storage_errors(out):
        manifest = build_manifest(files, manifest_fields)
        if _holds(out, manifest):
            return
        make_directory(out.parent)
        _remove_abandoned(out)
    n_bytes = sum(record["n_bytes"] for record in manifest["files"].values()) + len(manifest_bytes(manifest))
    require_space(out.parent, n_bytes, remedy="out=DIR on another volume")
    building = out.with_name(f".{out.name}.{os.getpid()}{BUILDING_SUFFIX}")
    try:
        _fill(building, files, manifest)
        _move_into_place(building, out)
    finally:
        with contextlib.suppress(UserError):  # the first error is the one to report; the next compiler removes the rest
            remove(building)


def build_manifest(files: Mapping[str, bytes | Path], manifest_fields: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of these files."""
    records = {name: plain(_record(content)) for name, content in sorted(files.items())}
    manifest = {**manifest_fields, "files": records, "format_version": FORMAT_VERSION}
    return {**manifest, "bundle_id": bundle_id_of(manifest)}


def _check_names(files: Mapping[str, bytes | Path], manifest_fields: Mapping[str, Any]) -> None:
    """The compiler's own mistakes, found before anything is written."""
    if {*manifest_fields} != {*WRITTEN_KEYS} or {*WRITTEN_KEYS, "files", "format_version", "bundle_id"} != {f.name for f in fields(Manifest)}:
        raise ValueError(f"manifest fields are {sorted(manifest_fields)}, not {sorted(WRITTEN_KEYS)}")
    bad = [name for name in files if not is_file_name(name)]
    if bad:
        raise ValueError(f"a bundle cannot hold files of these names: {bad}")


def _refuse_foreign(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UserError(str(out), "is a file or a link, and a bundle is a folder", remedy="out=DIR elsewhere")
    present = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    if not present:
        return
    compiled = _names_in_manifest(out / MANIFEST_NAME)
    if not compiled:
        raise UserError(str(out), "is a folder that is not a bundle, so it is not replaced", remedy="out=DIR with a new or empty folder")
    foreign = sorted(present - compiled)
    if foreign:
        found = f"holds what was not compiled, and replacing the bundle would delete it: {', '.join(foreign)}"
        raise UserError(str(out), found, remedy="move it elsewhere, or out=DIR")


def _names_in_manifest(path: Path) -> set[str]:
    """The names of a bundle's files, of whatever format version; empty where the folder is no bundle."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        return {*manifest["files"], MANIFEST_NAME} if manifest["bundle_id"] else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _record(content: bytes | Path) -> FileRecord:
    if isinstance(content, bytes):
        return FileRecord(len(content), hashlib.sha256(content).hexdigest())
    return FileRecord(content.stat().st_size, sha256_of_file(content))


def _chunks(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while chunk := file.read(READ_CHUNK_BYTES):
            yield chunk


def _holds(out: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether `out` is this very bundle, undamaged."""
    try:
        return (out / MANIFEST_NAME).read_bytes() == manifest_bytes(manifest) and bool(Bundle.open(out, to_execute=False))
    except (UserError, OSError):
        return False


def _remove_abandoned(out: Path) -> None:
    """Delete what a compiler that was killed left beside `out`."""
    for folder in out.parent.glob(f".{out.name}.*{BUILDING_SUFFIX}"):
        owner = folder.name.removeprefix(f".{out.name}.").split(".")[0]
        if owner.isdigit() and (int(owner) == os.getpid() or not process_is_alive(int(owner))):
            remove(folder)


def _fill(building: Path, files: Mapping[str, bytes | Path], manifest: Mapping[str, Any]) -> None:
    """Write every file and, last, the manifest; a source that changed since it was hashed is an error."""
    make_directory(building)
    for name, content in sorted(files.items()):
        with DurableFile(building / name) as file:
            for chunk in _chunks(content):
                file.write(chunk)
        if plain(FileRecord(file.size_bytes, file.sha256)) != manifest["files"][name]:
            raise UserError(str(building.parent), f"the bundle cannot be written: {name} changed while it was copied", remedy="compile it again")
    write_bytes(building / MANIFEST_NAME, manifest_bytes(manifest))


def _move_into_place(building: Path, out: Path) -> None:
    _refuse_foreign(out)
    if out.exists() and any(out.iterdir()):
        replace_directory(building, out)
    else:
        publish_directory(building, out)
