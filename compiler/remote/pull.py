"""Bring a version's weights, a log or any other file from a phone.

In:  a connected target, what is wanted.
Out: the file here, or the folder with its files, their checksums compared with those over there.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath

from ...runtime.errors import UserError
from .push import LINK
from .retry import Retry
from .target import Target
from .transfer import AGAIN, Progress, Transfer

VERSION = re.compile(r"v\d{4,}")
WANTED = "current, a version such as v0001, base, audit, or the path of a file or folder in the target's folder"


def pull(target: Target, what: str, to: Path | None, retry: Retry, progress: Progress) -> Path:
    """Fetch `what` to `to` or, where that is a folder, into it (default: here, under its own name)."""
    workspace = f"{target.folder}/{LINK}-workspace"
    if what == "current":
        what = retry.until_done(lambda: _current(target, workspace), AGAIN)
    if what == "base":
        path, name = f"{target.folder}/{LINK}/model.gguf", "base.gguf"
    elif VERSION.fullmatch(what):
        path, name = f"{workspace}/versions/{what}/model.gguf", f"{what}.gguf"
    elif what == "audit":
        path, name = f"{workspace}/audit.jsonl", "audit.jsonl"
    else:
        path, name = _inside(target, what), PurePosixPath(what).name
    place = Path(name) if to is None else to / name if to.is_dir() else to
    transfer = Transfer(target, retry, progress)
    below = retry.until_done(lambda: _files_below(target, path), AGAIN)
    if not below:
        return transfer.fetch(path, place)
    for file in below:
        transfer.fetch(f"{path}/{file}", place / file)
    return place


def _files_below(target: Target, folder: str) -> list[str]:
    """Paths of the files in a folder there, relative to it; empty for what is no folder."""
    found = target.run(f"[ -d {shlex.quote(folder)} ] && cd {shlex.quote(folder)} && find . -type f").text.splitlines()
    return sorted(line[2:] for line in found if line.startswith("./") and ".." not in line.split("/"))  # nothing may land outside


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
