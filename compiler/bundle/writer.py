"""Write a bundle so that it either exists completely or not at all.

In:  the files (bytes, or the path of a file to copy) and what the manifest says about them.
Out: the bundle's folder; the same content gives the same bytes, and a bundle that is already there is then left alone.
The folder is built beside its place and moved there in one step. Only a bundle is ever replaced, never another folder.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runtime.bundle.folder import FORMAT_VERSION, MANIFEST_KEYS, MANIFEST_NAME, Bundle, bundle_id_of, canonical_json, is_file_name
from ...runtime.errors import UserError

CHUNK_BYTES = 1 << 20
BUILDING_SUFFIX = ".building"
RENAME_EXCHANGE, AT_FDCWD = 2, -100  # linux/fs.h, fcntl.h
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
        out.parent.mkdir(parents=True, exist_ok=True)
        manifest = build_manifest(files, manifest_fields)
        if _holds(out, manifest):
            return out
        _remove_abandoned(out)
        _require_space(out.parent, manifest)
        building = Path(tempfile.mkdtemp(prefix=f".{out.name}.{os.getpid()}.", suffix=BUILDING_SUFFIX, dir=out.parent))
        try:
            _fill(building, files, manifest)
            _move_into_place(building, out)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        found = f"the bundle cannot be written ({error.strerror or error})"
        raise UserError(str(out), found, remedy="out=DIR with a folder that can be written to") from error
    return out


def build_manifest(files: Mapping[str, bytes | Path], manifest_fields: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of these files."""
    records = {name: _record(content) for name, content in sorted(files.items())}
    manifest = {**manifest_fields, "files": records, "format_version": FORMAT_VERSION}
    return {**manifest, "bundle_id": bundle_id_of(manifest)}


def _check_names(files: Mapping[str, bytes | Path], manifest_fields: Mapping[str, Any]) -> None:
    """The compiler's own mistakes, found before anything is written."""
    if sorted(manifest_fields) != sorted(WRITTEN_KEYS) or set(MANIFEST_KEYS) - set(WRITTEN_KEYS) != {"files", "format_version", "bundle_id"}:
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


def _record(content: bytes | Path) -> dict[str, Any]:
    digest, n_bytes = hashlib.sha256(), 0
    for chunk in _chunks(content):
        digest.update(chunk)
        n_bytes += len(chunk)
    return {"n_bytes": n_bytes, "sha256": digest.hexdigest()}


def _chunks(content: bytes | Path):
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _holds(out: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether `out` is this very bundle, undamaged."""
    try:
        return (out / MANIFEST_NAME).read_bytes() == canonical_json(manifest) and bool(Bundle.open(out, to_execute=False))
    except (UserError, OSError):
        return False


def _remove_abandoned(out: Path) -> None:
    """Delete what a compiler that was killed left beside `out`."""
    for folder in out.parent.glob(f".{out.name}.*{BUILDING_SUFFIX}"):
        owner = folder.name.removeprefix(f".{out.name}.").split(".")[0]
        if owner.isdigit() and int(owner) != os.getpid() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's process: alive
        return True
    return True


def _require_space(folder: Path, manifest: Mapping[str, Any]) -> None:
    needed = sum(record["n_bytes"] for record in manifest["files"].values()) + len(canonical_json(manifest))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(str(folder), f"has {free >> 20} MiB free, and the bundle has {needed >> 20} MiB", remedy="out=DIR on another volume")


def _fill(building: Path, files: Mapping[str, bytes | Path], manifest: Mapping[str, Any]) -> None:
    """Write every file and, last, the manifest; a source that changed since it was hashed is an error."""
    building.chmod(0o755)
    for name, content in sorted(files.items()):
        _write(building / name, _chunks(content))
        if _record(building / name) != manifest["files"][name]:
            raise OSError(errno.EIO, f"{name} changed while it was copied")
    _write(building / MANIFEST_NAME, [canonical_json(manifest)])
    _flush_folder(building)


def _write(path: Path, chunks: Any) -> None:
    with path.open("xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _move_into_place(building: Path, out: Path) -> None:
    """Rename, or exchange with the bundle that is there; `building` then holds the old one."""
    _refuse_foreign(out)
    if not out.exists() or not any(out.iterdir()):
        os.rename(building, out)
    elif not _exchange(building, out):
        old = building.with_name(f"{building.name}-old{BUILDING_SUFFIX}")
        os.rename(out, old)
        try:
            os.rename(building, out)
        except OSError:
            os.rename(old, out)
            raise
        shutil.rmtree(old, ignore_errors=True)
    _flush_folder(out.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system or the file system has no such call."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot flush a folder; the rename stands
            raise
    finally:
        os.close(descriptor)
