"""Which files are read: paths, folders and zip archives opened up into a flat, sorted list of sources.

In:  paths as the user typed them, and the endings that some reader knows.
Out: Source objects that open as byte streams, in an order that does not depend on the file system.
Nothing is ever unpacked to disk: members of an archive are streamed, so a path inside it can do no harm.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO

from ...errors import UserError

_MAX_MEMBER_BYTES = 8 << 30
_MAX_ARCHIVE_RATIO = 1000
_HASH_CHUNK_BYTES = 1 << 20
_ARCHIVE_ERRORS = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError)


@dataclass(frozen=True)
class Endings:
    """Which files are looked at, by the lower-case ending of their names."""

    known: tuple[str, ...]
    """in folders and archives no others are"""
    documents: tuple[str, ...] = ()
    """those of them that are one file even where they are a zip archive inside"""


@dataclass(frozen=True)
class Source:
    """One file to read."""

    name: str
    """as reports show it: the path as typed, or archive.zip!member"""
    path: Path
    """the file itself, or the archive it is in"""
    member: str | None = None
    """name inside the archive"""
    n_bytes: int = 0
    """uncompressed size"""
    named: bool = False
    """the user named this very file: then it must be readable, while a stray file in a folder is only reported"""
    fault: str = ""
    """why it cannot be read, if that was seen when the folder was listed; it is then reported and left out"""
    progress: Progress = field(default_factory=lambda: Progress(), compare=False, repr=False)
    """how far the stream that was opened last has been read"""

    @property
    def suffix(self) -> str:
        """Lower-case ending with its dot."""
        return Path(self.member or self.path.name).suffix.lower()

    def open(self) -> BinaryIO:
        """A fresh stream of the file's bytes. UserError when it cannot be opened."""
        try:
            if self.member is None:
                return _Followed(open(self.path, "rb", buffering=0), self)
            archive = zipfile.ZipFile(self.path)
            return _Followed(_Member(archive, archive.open(self.member)), self)
        except _ARCHIVE_ERRORS as error:
            raise self.unreadable(error) from None

    def unreadable(self, error: Exception) -> UserError:
        """The sentence for a source that fails while it is opened or read."""
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return UserError(self.name, f"cannot be read ({reason})", remedy="check the file and its permissions")

    def sha256(self) -> str:
        """Digest of the whole content, streamed."""
        digest = hashlib.sha256()
        with self.open() as stream:
            while chunk := stream.read(_HASH_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()


@dataclass
class Progress:
    """Bytes read so far."""

    n_bytes: int = 0


class _Followed(io.BufferedReader):
    """A stream that counts what was read, and names its source when reading fails; read in large pieces, so that costs nothing."""

    def __init__(self, raw: io.RawIOBase, source: Source) -> None:
        super().__init__(raw, _HASH_CHUNK_BYTES)
        self._source, source.progress.n_bytes = source, 0

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            data = super().read(size)
        except OSError as error:
            raise self._source.unreadable(error) from None
        self._source.progress.n_bytes += len(data)
        return data


class _Member(io.RawIOBase):
    """A zip member that closes its archive when it is closed."""

    def __init__(self, archive: zipfile.ZipFile, stream: IO[bytes]) -> None:
        self._archive, self._stream = archive, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            piece = self._stream.read(len(buffer))
        except Exception as error:  # zlib.error, BadZipFile, EOFError: a damaged member, whatever the library calls it
            raise OSError(f"damaged archive member: {error}") from error
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._archive.close()
        super().close()


def expand(paths: Sequence[str | os.PathLike], endings: Endings) -> list[Source]:
    """All sources under the given paths. UserError for a missing, special or empty path; none is listed twice."""
    if not paths:
        raise UserError("ingest", "no data was named", remedy="name a file, a folder or a zip archive")
    found: dict[tuple[str, str | None], Source] = {}
    for path in map(Path, paths):
        for source in _expand_one(path, endings):
            key = (os.path.realpath(source.path), source.member)
            if key not in found or (source.named and not found[key].named):
                found[key] = source
    return list(found.values())


def _expand_one(path: Path, endings: Endings) -> Iterator[Source]:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(str(path), f"cannot be read ({error.strerror})", remedy="check the path") from None
    if stat.S_ISDIR(mode):
        yield from _folder(path, endings)
    elif stat.S_ISREG(mode):
        yield from _file(path, str(path), endings, named=True)
    else:
        raise UserError(str(path), "is neither a file nor a folder", allowed="files, folders, zip archives")


def _folder(folder: Path, endings: Endings) -> Iterator[Source]:
    """Text files and archives of a folder tree in the order of their names; hidden ones are left out."""
    sources: list[Source] = []
    closed: list[OSError] = []
    for root, folders, files in os.walk(folder, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(root, name)
            if not name.startswith(".") and path.suffix.lower() in (*endings.known, ".zip") and path.is_file():
                sources.extend(_stray(path, endings))
    sources += [Source(error.filename, Path(error.filename), fault=f"{error.filename}: cannot be read ({error.strerror})") for error in closed]
    if not sources:
        raise UserError(str(folder), "holds no file that can be read", allowed=" ".join((*endings.known, ".zip")))
    yield from sources


def _stray(path: Path, endings: Endings) -> list[Source]:
    """A file that was found and not named: one that cannot be read does not end the job."""
    try:
        return list(_file(path, str(path), endings, named=False))
    except UserError as error:
        return [Source(str(path), path, fault=str(error))]


def _file(path: Path, name: str, endings: Endings, named: bool) -> Iterator[Source]:
    is_document = path.suffix.lower() in endings.documents
    if not is_document and (path.suffix.lower() == ".zip" or _begins_like_zip(path, name)):
        yield from _archive(path, name, endings)
    else:
        yield Source(name, path, None, path.stat().st_size, named)


def _begins_like_zip(path: Path, name: str) -> bool:
    try:
        with open(path, "rb") as stream:
            return stream.read(4) == b"PK\x03\x04"
    except OSError as error:
        raise UserError(name, f"cannot be read ({error.strerror})", remedy="check the file and its permissions") from None


def _archive(path: Path, name: str, endings: Endings) -> Iterator[Source]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = sorted(archive.infolist(), key=lambda info: info.filename)
    except (*_ARCHIVE_ERRORS, ValueError) as error:
        raise UserError(name, f"is not a readable zip archive ({error})", remedy="export it again") from None
    usable = [info for info in members if _is_usable(info, endings)]
    if not usable:
        raise UserError(name, "holds no file that can be read", allowed=" ".join(endings.known))
    for info in usable:
        if info.flag_bits & 1:
            raise UserError(f"{name}!{info.filename}", "is encrypted", remedy="unpack it with its password and name the folder")
        if info.file_size > _MAX_MEMBER_BYTES or info.file_size > _MAX_ARCHIVE_RATIO * max(info.compress_size, 1024):
            raise UserError(f"{name}!{info.filename}", f"would unpack to {info.file_size} bytes, more than any export", remedy="unpack it yourself")
        yield Source(f"{name}!{info.filename}", path, info.filename, info.file_size)


def _is_usable(info: zipfile.ZipInfo, endings: Endings) -> bool:
    parts = info.filename.split("/")
    hidden = any((part.startswith(".") and part.strip(".")) or part == "__MACOSX" for part in parts)
    return not info.is_dir() and not hidden and Path(info.filename).suffix.lower() in endings.known


def total_bytes(sources: Iterable[Source]) -> int:
    """How much is to be read."""
    return sum(source.n_bytes for source in sources)
