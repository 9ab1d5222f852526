"""Open a bundle, or say in one sentence why it must not be used.

In:  the bundle's folder.
Out: Bundle, whose files are exactly those that were compiled: nothing may be mapped or executed before open() has returned.
The manifest is checked first and as bytes: it has one canonical form, so a flipped bit anywhere in it is found as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UserError
from ..plain_data import bind
from ..storage.durable import sha256_of_file
from .cpu_features import MachineCpu, read_machine_cpu

FORMAT_VERSION = 3
"""raised whenever an older runtime would misread a newer bundle or the other way round"""
MANIFEST_NAME = "manifest.json"
KERNELS_NAME = "kernels.so"
MANIFEST_MAX_BYTES = 16 << 20
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
COMPILE_AGAIN = "compile the bundle again, or copy it again from where it was compiled"


@dataclass(frozen=True)
class FileRecord:
    """One file of a bundle."""

    n_bytes: int
    """its size"""
    sha256: str
    """its checksum, 64 hexadecimal digits"""

    def __post_init__(self) -> None:
        if self.n_bytes < 0 or not SHA256.fullmatch(self.sha256):
            raise ValueError(f"{self.n_bytes} bytes and sha256 {self.sha256!r} describe no file")


@dataclass(frozen=True)
class LibraryVariant:
    """A further kernel library, for better processors."""

    file: str
    required_cpu_features: tuple[str, ...]
    """in /proc/cpuinfo spelling"""


@dataclass(frozen=True)
class Abi:
    """Which machines the kernels are made for."""

    arch: str
    """x86_64 or aarch64"""
    mtriple: str = ""
    """LLVM target triple"""
    cpu: str = ""
    """LLVM mcpu"""
    variants: tuple[LibraryVariant, ...] = ()
    """best first"""


@dataclass(frozen=True)
class Manifest:
    """Everything in manifest.json."""

    abi: Abi
    base_conversions: tuple[Mapping[str, Any], ...]
    """what became of tensors whose type no kernel reads"""
    bundle_id: str
    """hash over all the rest"""
    files: Mapping[str, FileRecord]
    """every file but the manifest"""
    format_version: int
    recipe: Mapping[str, Any]
    """as plain values"""
    required_cpu_features: tuple[str, ...]
    """in /proc/cpuinfo spelling"""
    tools: Mapping[str, str]
    """name -> version"""

    def __post_init__(self) -> None:
        odd = [name for name in self.files if not is_file_name(name)]
        if odd:
            raise ValueError(f"{odd[0]!r} is no name of a file in a bundle")
        absent = [variant.file for variant in self.abi.variants if variant.file not in self.files]
        if absent:
            raise ValueError(f"the kernels {absent[0]!r} are not among the files")


@dataclass(frozen=True)
class Bundle:
    """A verified bundle."""

    folder: Path
    """where it is; never written to"""
    manifest: Manifest

    @property
    def files(self) -> Mapping[str, FileRecord]:
        """Every file but the manifest."""
        return self.manifest.files

    @classmethod
    def open(cls, folder: str | Path, machine: MachineCpu | None = None, to_execute: bool = True) -> Bundle:
        """Verify everything; with to_execute=False all but whether this machine can run it. Raises UserError."""
        bundle = cls.open_manifest(folder)
        _refuse_missing_and_extra(bundle)
        for name in sorted(bundle.files):
            bundle.verify_file(name)
        if to_execute:
            bundle.require_machine(machine or read_machine_cpu())
        return bundle

    @classmethod
    def open_manifest(cls, folder: str | Path) -> Bundle:
        """Verify the manifest alone; the files are not looked at yet."""
        return cls(Path(folder), _read_manifest(Path(folder) / MANIFEST_NAME))

    @property
    def bundle_id(self) -> str:
        """Hash over everything in the bundle: equal ids mean equal bytes."""
        return self.manifest.bundle_id

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The recipe it was compiled from, as plain values."""
        return self.manifest.recipe

    def path(self, name: str) -> Path:
        """Where one of its files is."""
        if name not in self.files:
            raise UserError(str(self.folder), f"the bundle holds no {name!r}", ", ".join(sorted(self.files)), COMPILE_AGAIN)
        return self.folder / name

    def kernel_library(self, machine: MachineCpu) -> Path:
        """The best kernel library that this machine can run: the first variant whose features it has, else the plain one."""
        for variant in self.manifest.abi.variants:
            if not machine.lacks(variant.required_cpu_features):
                return self.path(variant.file)
        return self.path(KERNELS_NAME)

    def verify_file(self, name: str) -> None:
        """Compare one file's size and checksum with the manifest."""
        path, record = self.path(name), self.files[name]
        n_bytes, digest = _size_and_sha256(path)
        if n_bytes != record.n_bytes:
            raise UserError(str(path), f"has {n_bytes} bytes", f"{record.n_bytes} bytes", COMPILE_AGAIN)
        if digest != record.sha256:
            raise UserError(str(path), f"is damaged: its sha256 is {digest[:16]}…", f"{record.sha256[:16]}…", COMPILE_AGAIN)

    def require_machine(self, machine: MachineCpu) -> None:
        """Refuse kernels that would end in SIGILL here."""
        arch, where = self.manifest.abi.arch, str(self.folder)
        if machine.arch != arch:
            raise UserError(
                where, f"is compiled for {arch}, this machine is {machine.arch}", remedy=f"compile it with a device whose arch is {machine.arch}"
            )
        lacking = machine.lacks(self.manifest.required_cpu_features)
        if lacking:
            raise UserError(where, f"needs CPU features that this machine does not report: {', '.join(lacking)}",
                            remedy="compile it with device.features and device.cpu that this machine has")  # fmt: skip


def manifest_bytes(document: Mapping[str, Any]) -> bytes:
    """The one byte form of a manifest: sorted keys, indented, UTF-8, a newline at the end."""
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def bundle_id_of(manifest: Mapping[str, Any]) -> str:
    """sha256 over the manifest without its own id."""
    return hashlib.sha256(manifest_bytes({key: value for key, value in manifest.items() if key != "bundle_id"})).hexdigest()


def _read_manifest(path: Path) -> Manifest:
    if not path.is_file():
        raise UserError(str(path.parent), f"is not a bundle: it has no {MANIFEST_NAME}", "a folder that mft compile has written")
    if path.stat().st_size > MANIFEST_MAX_BYTES:
        raise UserError(str(path), f"has {path.stat().st_size} bytes", f"at most {MANIFEST_MAX_BYTES}", COMPILE_AGAIN)
    content = path.read_bytes()
    try:
        manifest = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise UserError(str(path), "is damaged: it is not JSON", remedy=COMPILE_AGAIN) from None
    if not isinstance(manifest, dict):
        raise UserError(str(path), "is damaged: it is not an object", remedy=COMPILE_AGAIN)
    found = manifest.get("format_version")
    if found != FORMAT_VERSION:  # before anything else: another version may have another form
        raise UserError(str(path), f"has format_version {found!r}", f"{FORMAT_VERSION} is what this runtime ({__version__}) reads",
                        "use the mft.pyz of that bundle, or compile the bundle again with this version")  # fmt: skip
    if not _is_canonical(manifest, content) or bundle_id_of(manifest) != manifest.get("bundle_id"):
        raise UserError(str(path), "is damaged: its bundle_id does not belong to its content", remedy=COMPILE_AGAIN)
    try:
        return bind(Manifest, manifest, MANIFEST_NAME)
    except UserError as error:
        raise UserError(str(path), f"has a value of a form that no compiler writes: {error.where} {error.found}", remedy=COMPILE_AGAIN) from None


def _is_canonical(manifest: dict[str, Any], content: bytes) -> bool:
    try:
        return manifest_bytes(manifest) == content
    except ValueError:  # NaN, lone surrogates: nothing that the compiler writes
        return False


def is_file_name(name: str) -> bool:
    """Whether a bundle may hold a file of this name: no folders, nothing hidden, not the manifest."""
    return FILE_NAME.fullmatch(name) is not None and name != MANIFEST_NAME


def _refuse_missing_and_extra(bundle: Bundle) -> None:
    present = {entry.name for entry in os.scandir(bundle.folder)} - {MANIFEST_NAME}
    missing, extra = sorted(set(bundle.files) - present), sorted(present - set(bundle.files))
    if missing:
        raise UserError(str(bundle.folder), f"is incomplete: {', '.join(missing)} is missing", remedy=COMPILE_AGAIN)
    if extra:
        raise UserError(str(bundle.folder), f"holds what was not compiled: {', '.join(extra)}",
                        remedy="move it elsewhere: a bundle is never written to, a --workspace stands beside it")  # fmt: skip


def _size_and_sha256(path: Path) -> tuple[int, str]:
    """Size and checksum of a regular file."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(str(path), "is not a regular file", remedy=COMPILE_AGAIN)
        return status.st_size, sha256_of_file(path)
    except OSError as error:
        raise UserError(str(path), f"cannot be read ({error.strerror})", remedy=COMPILE_AGAIN) from None
