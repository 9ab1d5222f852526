"""Bring a version's weights, a log or any other file from a phone.

In:  a connected target, what is wanted.
Out: the file here, its checksum compared with the one over there.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

from ...runtime.errors import UserError
from .patience import Patience
from .push import LINK
from .target import Target
from .transfer import AGAIN, Progress, Transfer

VERSION = re.compile(r"v\d{4,}")
WANTED = "current, a version such as v0001, base, audit, or a path in the target's folder"


def pull(target: Target, what: str, to: Path | None, patience: Patience, progress: Progress) -> Path:
    """Fetch `what` to the file or folder `to` (default: here, under its own name)."""
    workspace = f"{target.folder}/{LINK}-workspace"
    if what == "current":
        what = patience.keep_trying(lambda: _current(target, workspace), AGAIN)
    if what == "base":
        path, name = f"{target.folder}/{LINK}/model.gguf", "base.gguf"
    elif VERSION.fullmatch(what):
        path, name = f"{workspace}/versions/{what}/model.gguf", f"{what}.gguf"
    elif what == "audit":
        path, name = f"{workspace}/audit.jsonl", "audit.jsonl"
    else:
        path, name = _inside(target, what), PurePosixPath(what).name
    place = Path(name) if to is None else to / name if to.is_dir() else to
    return Transfer(target, patience, progress).fetch(path, place)


def _current(target: Target, workspace: str) -> str:
    """The id in versions/current; base when nothing was promoted yet."""
    text = target.run(f"cat {shlex.quote(workspace)}/versions/current 2>/dev/null").text
    found = VERSION.search(text)
    return found[0] if found else "base"


def _inside(target: Target, what: str) -> str:
    path = PurePosixPath(what)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise UserError("pull", f"{what!r} is not in the target's folder", WANTED)
    return f"{target.folder}/{path}"
