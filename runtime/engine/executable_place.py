"""Load the kernel library from a place that allows execution.

In:  the path of kernels.so inside the bundle.
Out: a path that may be mapped as code: the same one, or a verified copy in the user's private cache.
SD cards and download folders are mounted noexec; asking for an executable page is the only test that holds for every mount, every
SELinux rule and every phone.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import MftError, UserError
from ..storage.durable import make_directory, write_bytes

CACHE_FOLDER = "mobilefinetuner-kernels"


def executable_path(library: Path, places: Sequence[Path] | None = None) -> Path:
    """Where to load `library` from.

    places: folders for a copy, the first that allows execution is taken; UserError when none does.
    """
    if may_execute(library):
        return library
    content = library.read_bytes()
    name = f"{hashlib.sha256(content).hexdigest()[:32]}.so"
    places = list(private_places() if places is None else places)
    for place in places:
        copy = _copy(content, place / f"{CACHE_FOLDER}-{os.getuid()}", name)
        if copy is not None and may_execute(copy):
            return copy
    raise UserError(
        str(library), "stands on storage whose files must not be executed, and so do all places for a copy", ", ".join(map(str, places)),
        "set TMPDIR to a folder from which programs may run, such as the home folder of Termux",
    )  # fmt: skip


def may_execute(path: Path) -> bool:
    """Whether the file's pages may be mapped as code."""
    with path.open("rb") as file:
        try:
            mmap.mmap(file.fileno(), mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        except PermissionError:
            return False
        except (OSError, ValueError):  # too short, or a file system that maps nothing: let the loader say what it finds
            return True
    return True


def private_places() -> list[Path]:
    """Folders of this user, most lasting first."""
    home = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache" if os.environ.get("HOME") else None)
    named = [home, os.environ.get("TMPDIR"), tempfile.gettempdir()]
    return list(dict.fromkeys(Path(place) for place in named if place))


def _copy(content: bytes, folder: Path, name: str) -> Path | None:
    """The library in `folder`, written anew unless the very bytes are there; None where that is not possible or not safe."""
    try:
        make_directory(folder)
        if folder.stat().st_uid != os.getuid() or folder.is_symlink():
            return None  # somebody else could exchange the code between our check and the loader's
        folder.chmod(0o700)
        copy = folder / name
        if not copy.is_file() or copy.read_bytes() != content:
            write_bytes(copy, content)
        return copy
    except (OSError, MftError):  # full, read-only or not ours: the next place may do
        return None
