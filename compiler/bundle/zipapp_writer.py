"""Pack the runtime into mft.pyz, the one file that `python3 mft.pyz VERB` runs on the phone.

In:  the package mobilefinetuner.runtime as it stands in this installation.
Out: a zip archive as bytes: sorted names, fixed times and modes, stored and not deflated, so that no zlib version shows.
It begins by checking itself: a damaged archive ends in a sentence, not in whatever broken code happens to do.
"""

from __future__ import annotations

import importlib.resources
import io
import zipfile
from pathlib import Path

PACKED_SUFFIXES = (".py", ".json", ".txt")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip archive can tell
MAIN = '''\
"""Run the phone's commands from inside this archive."""

import sys
import zipfile

if sys.version_info < (3, 10):
    sys.stderr.write("mft.pyz: this is Python %d.%d; allowed: 3.10 or newer\\n" % sys.version_info[:2])
    sys.exit(2)


def main():
    archive = __file__[: -len("/__main__.py")]
    try:
        damaged = zipfile.ZipFile(archive).testzip()
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        damaged = str(error)
    if damaged is not None:
        sys.stderr.write("%s: is damaged (%s); try: copy the bundle again from where it was compiled\\n" % (archive, damaged))
        return 2
    try:
        from mobilefinetuner.runtime.cli import main as run
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "tokenizers"):
            raise
        sys.stderr.write("mft.pyz: the Python package %s is not installed; try: pip install numpy tokenizers\\n" % error.name)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
'''


def make_zipapp(runtime: Path | None = None) -> bytes:
    """The archive's bytes; `runtime` is the package's folder, by default the installed one."""
    runtime = runtime or Path(str(importlib.resources.files("mobilefinetuner.runtime")))
    members = {"__main__.py": MAIN.encode(), "mobilefinetuner/__init__.py": b'"""MobileFineTuner, packed for the phone."""\n'}
    for path in runtime.rglob("*"):
        inside = path.relative_to(runtime)
        if path.suffix in PACKED_SUFFIXES and path.is_file() and not any(part.startswith((".", "__pycache__")) for part in inside.parts):
            members[f"mobilefinetuner/runtime/{inside.as_posix()}"] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(members.items()):
            archive.writestr(_entry(name), content)
    return buffer.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.create_system = 3  # Unix, wherever it is packed
    entry.external_attr = 0o100644 << 16
    return entry
