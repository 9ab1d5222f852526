"""The folder on the phone where runs, versions, caches and the audit log live.

In:  a path and the bundle it serves.
Out: Workspace: the places inside it and the lock that whoever changes anything holds.
The bundle is never written to, so a workspace inside it is refused. The lock belongs to a living process: the kernel
drops it when its owner dies, and where the file system has no locks, the owner's process number and start time decide.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import UserError
from .durable import (
    as_user_error,
    clean_leftovers,
    make_directory,
    open_to_lock,
    process_is_alive,
    read_sealed_json,
    storage_errors,
    write_sealed_json,
)  # fmt: skip

FORMAT = 1
MARKER_NAME = "workspace.json"
OWN_NAMES = ("versions", "runs", "cache", "lock", "audit.jsonl")
_held: set[Path] = set()
"""lock files that this very process holds"""


@dataclass(frozen=True)
class Owner:
    """Who holds a workspace."""

    pid: int
    started_ticks: int
    """clock ticks from boot to the process's start; tells a process from a later one with the same number; 0 = unknown"""
    boot: str
    """the boot's id, empty where the system has none"""
    command: str
    since_utc: str

    def is_alive(self) -> bool:
        if self.boot != _boot_id() or not process_is_alive(self.pid):
            return False
        return not self.started_ticks or _started_ticks(self.pid) in (0, self.started_ticks)

    def __str__(self) -> str:
        return f"{self.command!r} (process {self.pid}, since {self.since_utc})"


class Workspace:
    """Places and lock; making the object writes nothing."""

    def __init__(self, path: Path | str, bundle: Path | str | None = None) -> None:
        self.path = Path(path).absolute()
        self.versions_dir, self.runs_dir, self.cache_dir = self.path / "versions", self.path / "runs", self.path / "cache"
        self.audit_path, self.lock_path = self.path / "audit.jsonl", self.path / "lock"
        if bundle is not None and _is_inside(self.path, Path(bundle)):
            raise UserError(
                "--workspace",
                f"{self.path} is inside the bundle {bundle}",
                "any place outside it",
                "leave --workspace away: the default is beside the bundle",
            )
        if self.path.exists() and not self.path.is_dir():
            raise UserError("--workspace", f"{self.path} is not a directory", remedy="name a directory or a path that does not exist yet")
        self._check_marker()

    @property
    def tune_dir(self) -> Path:
        """Where `tune` keeps its checkpoints."""
        return self.runs_dir / "tune"

    def exists(self) -> bool:
        return (self.path / MARKER_NAME).is_file()

    def _check_marker(self) -> None:
        """Refuse a folder that is somebody else's, or a workspace that a newer runtime made."""
        marker = self.path / MARKER_NAME
        try:
            found = read_sealed_json(marker)
        except FileNotFoundError:
            with storage_errors(self.path):
                names = os.listdir(self.path) if self.path.is_dir() else []
            if any(name not in OWN_NAMES and not name.startswith(".") for name in names):
                raise UserError(
                    "--workspace", f"{self.path} holds other files", "an empty or new directory, or a workspace", "name a directory of its own"
                ) from None
            return
        except UserError:
            return  # the marker says only the format; a damaged one is written anew under the lock
        if found.get("format") != FORMAT:
            raise UserError(
                str(marker),
                f"workspace format {found.get('format')}",
                f"format {FORMAT}, which this runtime knows",
                "use the bundle that made this workspace, or another --workspace",
            )

    def _prepare(self) -> None:
        for place in (self.path, self.versions_dir, self.runs_dir, self.cache_dir):
            make_directory(place)

    @contextlib.contextmanager
    def locked(self, command: str) -> Iterator[Workspace]:
        """Hold the workspace for one command that changes it: layout made, leftovers of killed processes removed."""
        self._prepare()
        with _lock(self.lock_path, command):
            clean_leftovers(self.path)
            if not self._marker_is_intact():
                write_sealed_json(self.path / MARKER_NAME, {"format": FORMAT})
            yield self

    def owner(self) -> Owner | None:
        """Who works in it now; None when nobody does."""
        try:
            descriptor = os.open(self.lock_path, os.O_RDONLY)
        except OSError:
            return None
        try:
            owner = _read_owner(descriptor)
        finally:
            os.close(descriptor)
        return owner if owner is not None and owner.is_alive() else None

    def _marker_is_intact(self) -> bool:
        try:
            return read_sealed_json(self.path / MARKER_NAME) is not None
        except (FileNotFoundError, UserError):
            return False


def _is_inside(path: Path, folder: Path) -> bool:
    """Also through links: both are resolved first."""
    inner, outer = path.resolve(), folder.resolve()
    return inner == outer or outer in inner.parents


@contextlib.contextmanager
def _lock(path: Path, command: str) -> Iterator[None]:
    if path in _held:
        raise UserError(str(path.parent), "this process holds the workspace already")
    descriptor = open_to_lock(path)
    try:
        _acquire(path, descriptor, command)
        _held.add(path)
        try:
            yield
        finally:
            _held.discard(path)
            # The file stays: removing it would let two processes hold two files of one name.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _acquire(path: Path, descriptor: int, command: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_taken = False
    except BlockingIOError:
        is_taken = True
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.EINVAL, errno.ENOLCK):
            raise as_user_error(path, error) from error
        owner = _read_owner(descriptor)
        is_taken = owner is not None and owner.is_alive()
    if is_taken:
        raise UserError(
            str(path.parent),
            f"is in use by {_read_owner(descriptor) or 'another process'}",
            remedy="wait until it has finished, or name another --workspace",
        )
    me = Owner(os.getpid(), _started_ticks(os.getpid()), _boot_id(), command, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    with contextlib.suppress(OSError):  # a full disk must not keep anyone from pruning: the lock itself is held already
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(me)).encode(), 0)


def _read_owner(descriptor: int) -> Owner | None:
    """None when nobody is recorded or the record was never finished."""
    try:
        return Owner(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return None


def _started_ticks(pid: int) -> int:
    try:
        # The command's name may hold spaces and brackets: count the fields from its last bracket on.
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
