"""Move files to a target and back so that a cut cable costs one piece, and nothing is believed before its checksum was seen.

In:  a Target and files with size and sha256.
Out: the files there, or here, whole and under their names; UserError when the way stays broken.
A piece is first a file of its own and is then appended only if what is there has exactly the length it should have: a late
write of an earlier, lost connection can therefore never end up in the middle.
"""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime.errors import UserError
from ...runtime.storage.durable import sha256_of_file
from .retry import Retry
from .target import ConnectionLost, Target

PART = ".part"
AGAIN = "the same command again: it goes on where it stopped"
SLACK_BYTES = 1 << 20
"""storage that has no more than this beside a piece and its copy is called full"""
Progress = Callable[[str, int, int], None]
"""name, bytes there, bytes in all"""


@dataclass(frozen=True)
class FileThere:
    """A file that has to be on the target."""

    source: Path
    n_bytes: int
    sha256: str


class Transfer:
    """Moves files between here and one target."""

    def __init__(self, target: Target, retry: Retry, progress: Progress) -> None:
        self.target, self.retry, self._progress = target, retry, progress

    def send(self, file: FileThere, path: str) -> None:
        """Put a file at `path` there, going on with what an earlier try left in path.part."""
        for _ in range(2):
            self.retry.until_done(lambda: self._send_pieces(file, path + PART), AGAIN)
            if self.retry.until_done(lambda: self._accept(file, path), AGAIN):
                return
        raise UserError(str(self.target.address), f"{path} differs from what was sent, twice", remedy="check that storage; it seems to be failing")

    def _send_pieces(self, file: FileThere, part: str) -> None:
        arrived = self._size_there(part)
        if arrived > file.n_bytes:
            self.target.run(f"rm -f {shlex.quote(part)}")
            arrived = 0
        with file.source.open("rb") as source:
            source.seek(arrived)
            while arrived < file.n_bytes or file.n_bytes == 0:
                piece = source.read(self.target.PIECE_BYTES)
                self._append(piece, part, arrived)
                arrived += len(piece)
                self.retry.progress()
                self._progress(file.source.name, arrived, file.n_bytes)
                if not piece:
                    return

    def _append(self, piece: bytes, part: str, offset: int) -> None:
        """Add `piece` to `part`, which must be `offset` bytes long."""
        place = f"{part}.{uuid.uuid4().hex[:12]}"
        extra, whole = shlex.quote(place), shlex.quote(part)
        try:
            self.target.send(piece, place)
        except ConnectionLost:
            self._refuse_full_storage(piece, extra)
            raise
        done = self.target.run(
            f"touch {whole}; [ $(wc -c < {whole}) -eq {offset} ] && [ $(wc -c < {extra}) -eq {len(piece)} ] && cat {extra} >> {whole}; code=$?\n"
            f"rm -f {extra}; [ $code -eq 0 ] && [ $(wc -c < {whole}) -eq {offset + len(piece)} ]"
        )
        if done.code:
            self._refuse_full_storage(piece, extra)
            raise ConnectionLost(f"{self.target.address}: a piece of {Path(part).name.removesuffix(PART)} did not arrive whole")

    def _refuse_full_storage(self, piece: bytes, extra: str) -> None:
        """UserError when a piece failed because there is no room for it; trying again would not help."""
        self.target.run(f"rm -f {extra}")
        free = free_bytes_there(self.target, self.target.folder)
        if free is not None and free < 2 * len(piece) + SLACK_BYTES:
            found = f"the storage there is full ({free >> 20} MB are free)"
            raise UserError(str(self.target.address), found, remedy=f"free some space there, then {AGAIN}")

    def _size_there(self, path: str) -> int:
        text = self.target.run(f"[ -f {shlex.quote(path)} ] && wc -c < {shlex.quote(path)} || echo 0").text.strip()
        return int(text or 0)

    def _accept(self, file: FileThere, path: str) -> bool:
        """Give the part its name if its checksum is right, else remove it."""
        part, name = shlex.quote(path + PART), shlex.quote(path)
        done = self.target.run(
            f"if [ ! -f {part} ] && [ -f {name} ]; then mv {name} {part}; fi\n"  # the answer to an earlier acceptance was lost
            f'[ "$(sha256sum < {part} | cut -c1-64)" = {file.sha256} ] && mv {part} {name}'
        )
        if done.code:
            self.target.run(f"rm -f {part}")
        return done.code == 0

    def fetch(self, path: str, to: Path) -> Path:
        """Bring a file here; `to` appears whole, going on with what an earlier try left beside it."""
        n_bytes, digest = self.retry.until_done(lambda: self._facts(path), AGAIN)
        part = to.with_name(f".{to.name}.{digest[:16]}{PART}")
        to.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            self.retry.until_done(lambda: self._fetch_pieces(path, part, n_bytes), AGAIN)
            if sha256_of_file(part) == digest:
                os.replace(part, to)
                return to
            part.unlink()
        raise UserError(str(to), f"differs from {path} on the target, twice", remedy="check both storages; one seems to be failing")

    def _facts(self, path: str) -> tuple[int, str]:
        done = self.target.run(f"[ -f {shlex.quote(path)} ] || exit 3; wc -c < {shlex.quote(path)}; sha256sum < {shlex.quote(path)}")
        if done.code == 3:
            raise UserError(str(self.target.address), f"there is no file {path}", remedy=f"mft on {self.target.address.typed} versions")
        words = done.text.split()
        if done.code or len(words) < 2:
            raise ConnectionLost(f"{self.target.address}: {path} cannot be read")
        return int(words[0]), words[1]

    def _fetch_pieces(self, path: str, part: Path, n_bytes: int) -> None:
        with part.open("ab") as file:
            while file.tell() < n_bytes:
                piece = self.target.receive(path, file.tell(), min(self.target.PIECE_BYTES, n_bytes - file.tell()))
                if not piece:
                    raise ConnectionLost(f"{self.target.address}: {path} ended early")
                file.write(piece)
                file.flush()
                self.retry.progress()
                self._progress(path.rpartition("/")[2], file.tell(), n_bytes)
            file.flush()
            os.fsync(file.fileno())


def hashes_there(target: Target, folder: str, names: Sequence[str]) -> dict[str, str]:
    """sha256 of those of the files that are in that folder there."""
    files = " ".join(shlex.quote(name) for name in names)
    script = (
        f'cd {shlex.quote(folder)} 2>/dev/null || exit 0\nfor f in {files}; do [ -f "$f" ] && echo "$(sha256sum < "$f" | cut -c1-64) $f"; done; :'
    )
    lines = (line.partition(" ") for line in target.run(script).text.splitlines())
    return {name: digest for digest, _, name in lines if len(digest) == 64}


def free_bytes_there(target: Target, folder: str) -> int | None:
    """Room on the volume of a folder there; None where df says it in no known way."""
    lines = target.run(f"df -kP {shlex.quote(folder)} 2>/dev/null || df -k {shlex.quote(folder)}").text.strip().splitlines()
    words = " ".join(lines[1:]).split()
    return int(words[3]) * 1024 if len(words) > 3 and words[3].isdigit() else None


def print_progress(say: Callable[[str], None]) -> Progress:
    """A line for each file and, of those that take more than one piece, for every tenth."""
    shown: dict[str, int] = {}

    def progress(name: str, arrived: int, n_bytes: int) -> None:
        tenth = 10 if arrived >= n_bytes else 10 * arrived // max(n_bytes, 1)
        if shown.get(name) != tenth:
            shown[name] = tenth
            say(f"  {name}: {size_text(n_bytes)}" if tenth == 10 else f"  {name}: {arrived / 1e6:,.1f} of {n_bytes / 1e6:,.1f} MB")

    return progress


def size_text(n_bytes: int) -> str:
    """For people: 812 bytes, 14 KB, 98.4 MB."""
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    return f"{n_bytes / 1e3:,.0f} KB" if n_bytes < 1e6 else f"{n_bytes / 1e6:,.1f} MB"
