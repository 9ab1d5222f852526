"""The only way anything durable is written.

In:  bytes, in pieces or whole, and the path where they shall be.
Out: either the complete new file, or the old one untouched; a UserError when the storage refuses.
Protocol: space is checked, a temporary file in the same directory is written and flushed, read back and compared by
checksum, renamed over the target, and the directory is flushed. A file is never changed in place, so whoever has the
old one mapped keeps it. Temporary names end in TEMPORARY_SUFFIX; whoever holds the workspace's lock may remove them.
Every system call that changes storage goes through the FileLayer in use, so a test can stop at each of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import UserError

TEMPORARY_SUFFIX = ".mft-tmp"
READ_CHUNK_BYTES = 1 << 20
SPACE_MARGIN_BYTES = 1 << 14
SPACE_MARGIN_SHARE = 64
"""left free for the file system's own records: 16 KiB and a 64th of what is written, so that a small file, such as the
one that names the current version, still fits on a disk that is all but full"""
FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
RENAME_EXCHANGE, AT_FDCWD = 2, -100  # linux/fs.h, fcntl.h
READ_ONLY_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)


class FileLayer:
    """The system calls that change storage, one method each."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open_to_append(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def open_to_lock(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def fsync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some phone file systems (FUSE) cannot flush a directory; the rename stands, only its moment is open.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)

    def exchange(self, one: Path, other: Path) -> bool:
        """Swap two directories in one step; False where the system or the file system cannot."""
        try:
            renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        except (AttributeError, OSError, TypeError):
            return False
        if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
            return True
        if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            return False
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path, 0o755)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def free_bytes(self, directory: Path) -> int:
        volume = os.statvfs(directory)
        return volume.f_bavail * volume.f_frsize


_layer = FileLayer()


@contextlib.contextmanager
def use_layer(layer: FileLayer) -> Iterator[None]:
    """Send every change through `layer` while the block runs."""
    global _layer
    before, _layer = _layer, layer
    try:
        yield
    finally:
        _layer = before


def as_user_error(path: Path, error: OSError) -> UserError:
    """The sentence for a storage that refuses."""
    if error.errno in FULL_ERRORS:
        return UserError(
            str(path), "cannot be written, the storage is full", remedy="free some space and run the command again; nothing is left half written"
        )
    if error.errno in READ_ONLY_ERRORS:
        return UserError(str(path), "cannot be written, the place is read-only", remedy="choose another --workspace or make this one writable")
    return UserError(str(path), f"the storage refuses ({error.strerror or error})", remedy="check that the place still exists and is healthy")


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into the user's sentence."""
    try:
        yield
    except OSError as error:
        raise as_user_error(path, error) from error


def require_space(
    directory: Path, n_bytes: int, remedy: str = "free some space or choose a --workspace on another volume; nothing was changed"
) -> None:
    """Refuse before writing when the volume that is written to cannot take n_bytes more."""
    needed_bytes = n_bytes + SPACE_MARGIN_BYTES + n_bytes // SPACE_MARGIN_SHARE
    with storage_errors(directory):
        free_bytes = _layer.free_bytes(directory)
    if free_bytes < needed_bytes:
        raise UserError(
            str(directory),
            f"{needed_bytes:,} bytes are needed and {free_bytes:,} are free",
            remedy=remedy,
        )


class DurableFile:
    """A file that appears whole or not at all: `with DurableFile(path) as file: file.write(...)`.

    head_bytes: a first part that is written last with write_head, for headers that hold a checksum of what follows
    expected_bytes: what is about to be written, for the space check
    After the block: sha256 and size_bytes of the file as it was read back.
    """

    def __init__(self, path: str | os.PathLike[str], expected_bytes: int = 0, head_bytes: int = 0) -> None:
        self.path = Path(path)
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
        self._expected_bytes, self._head_bytes = expected_bytes, head_bytes
        self._head, self._tail = b"", hashlib.sha256()
        self.size_bytes, self.sha256 = head_bytes, ""
        self._descriptor = -1

    def __enter__(self) -> DurableFile:
        require_space(self.path.parent, self._expected_bytes)
        with storage_errors(self.path):
            if os.path.lexists(self._temporary):  # left by a process that was killed and had our number
                _layer.unlink(self._temporary)
            self._descriptor = _layer.create(self._temporary)
            os.lseek(self._descriptor, self._head_bytes, os.SEEK_SET)
        return self

    def write(self, data: Any) -> int:
        """Append the bytes of any C-contiguous buffer."""
        view = memoryview(data)
        if not view.nbytes:  # an empty view cannot be cast
            return 0
        view = view.cast("B")
        with storage_errors(self.path):
            _write_all(self._descriptor, view)
        self._tail.update(view)
        self.size_bytes += view.nbytes
        return view.nbytes

    def tail_sha256(self) -> str:
        """Of everything written so far after the head."""
        return self._tail.hexdigest()

    def write_head(self, data: bytes) -> None:
        if len(data) != self._head_bytes:
            raise ValueError(f"the head has {len(data)} bytes, {self._head_bytes} were set aside")
        with storage_errors(self.path):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            _write_all(self._descriptor, memoryview(data))
        self._head = data

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                with storage_errors(self.path):
                    self._commit()
        finally:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            # After the rename the temporary is gone; a failed clean-up is left to clean_leftovers.
            with contextlib.suppress(OSError):
                if os.path.lexists(self._temporary):
                    _layer.unlink(self._temporary)

    def _commit(self) -> None:
        if len(self._head) != self._head_bytes:
            raise ValueError(f"{self.path.name}: the head was never written")
        _layer.fsync(self._descriptor)
        self.sha256 = self._read_back()
        _layer.replace(self._temporary, self.path)
        _layer.fsync_directory(self.path.parent)

    def _read_back(self) -> str:
        """Compare what the storage holds with what was written; the whole file's sha256."""
        if hasattr(os, "posix_fadvise"):  # ask the storage and not the page cache
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        head = os.read(self._descriptor, self._head_bytes) if self._head_bytes else b""
        tail, size_bytes = hashlib.sha256(), len(head)
        whole = hashlib.sha256(head) if head else tail
        while piece := os.read(self._descriptor, READ_CHUNK_BYTES):
            tail.update(piece)
            if whole is not tail:
                whole.update(piece)
            size_bytes += len(piece)
        if (head, size_bytes, tail.digest()) != (self._head, self.size_bytes, self._tail.digest()):
            raise UserError(
                str(self.path),
                "the storage gave back other bytes than were written to it",
                remedy="use another volume, this one is failing; nothing was changed",
            )
        return whole.hexdigest()


def _write_all(descriptor: int, view: memoryview) -> None:
    while view.nbytes:
        view = view[_layer.write(descriptor, view) :]


def write_bytes(path: Path | str, data: bytes) -> str:
    """Write a whole file; returns its sha256."""
    with DurableFile(path, expected_bytes=len(data)) as file:
        file.write(data)
    return file.sha256


def write_json(path: Path | str, value: Any) -> str:
    """Write JSON with sorted keys, so that equal values give equal bytes; returns the file's sha256."""
    return write_bytes(path, (json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1) + "\n").encode("utf-8", "surrogatepass"))


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value that checksums are taken of."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8", "surrogatepass")


def write_sealed_json(path: Path | str, body: Any) -> None:
    """JSON that carries its own checksum, so that a flipped bit is noticed."""
    write_json(path, {"body": body, "sha256": hashlib.sha256(canonical_json(body)).hexdigest()})


def read_sealed_json(path: Path | str) -> Any:
    """The body; UserError when the file is damaged, FileNotFoundError when there is none."""
    try:
        sealed = json.loads(Path(path).read_bytes())
        if sealed["sha256"] == hashlib.sha256(canonical_json(sealed["body"])).hexdigest():
            return sealed["body"]
        found = "is damaged: its checksum does not match"
    except FileNotFoundError:
        raise
    except OSError as error:
        found = f"cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, RecursionError):
        found = "is damaged: it is not the JSON that was written"
    raise UserError(str(path), found)


def open_to_lock(path: Path) -> int:
    """A descriptor of a file that stays, for locking it."""
    with storage_errors(path):
        return _layer.open_to_lock(path)


def append_line(path: Path, line: bytes) -> None:
    """Add one line at the end and flush it; a kill can leave a torn last line, never change an earlier one."""
    with storage_errors(path):
        is_new = not path.exists()
        descriptor = _layer.open_to_append(path)
        try:
            _write_all(descriptor, memoryview(line + b"\n"))
            _layer.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            _layer.fsync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Make the directory and its missing parents, each entry flushed."""
    with storage_errors(path):
        missing = [place for place in (path, *path.parents) if not place.is_dir()]
        for place in reversed(missing):
            _layer.mkdir(place)
            _layer.fsync_directory(place.parent)


def publish_directory(staged: Path, target: Path) -> None:
    """Let a complete directory appear under its final name in one step."""
    with storage_errors(target):
        _layer.fsync_directory(staged)
        _layer.replace(staged, target)
        _layer.fsync_directory(target.parent)


def replace_directory(staged: Path, target: Path) -> None:
    """Let a complete directory take the place of the one that is there, which is removed. Where two directories cannot be
    exchanged in one step, the old one steps aside for a moment, and comes back when the new one does not arrive."""
    with storage_errors(target):
        _layer.fsync_directory(staged)
        old = staged
        if not _layer.exchange(staged, target):
            old = staged.with_name(f"{staged.name}-old{staged.suffix}")
            _layer.replace(target, old)
            try:
                _layer.replace(staged, target)
            except OSError:
                _layer.replace(old, target)
                raise
        _layer.fsync_directory(target.parent)
        _remove(old)


def remove(path: Path) -> None:
    """Remove a file or a whole directory; nothing there is no error."""
    with storage_errors(path):
        _remove(path)


def _remove(path: Path) -> None:
    try:
        is_directory = stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_directory:
        _layer.unlink(path)
        return
    for inner in sorted(path.iterdir()):
        _remove(inner)
    _layer.rmdir(path)


def clean_leftovers(directory: Path) -> list[str]:
    """Remove what killed processes left half written below `directory`; returns the names. Needs the workspace's lock."""
    removed = []
    for root, directories, files in os.walk(directory):
        for name in sorted(directories + files):
            if name.endswith(TEMPORARY_SUFFIX):
                remove(Path(root) / name)
                removed.append(name)
        directories[:] = [name for name in directories if not name.endswith(TEMPORARY_SUFFIX)]
    return removed


def sha256_of_file(path: Path, offset: int = 0) -> str:
    """Of the file's bytes from `offset` on, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(offset)
        while piece := file.read(READ_CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def process_is_alive(pid: int) -> bool:
    """Whether a process of this number runs, such as the one that a temporary name belongs to."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's process, and alive
    return True
