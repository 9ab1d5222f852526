"""A phone on the desk: a Debian arm64 root under qemu's user mode, with Python, numpy, tokenizers, sshd and musl.

In:  nothing, or the folder to make it in:  python tests/phone/arm64_root.py [FOLDER]
Out: Arm64Root; made once and kept in the user's cache. Needs qemu-user-static, debootstrap and dpkg.
Its processor is a Cortex-A76: qemu's default model takes six times as long to import numpy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

QEMU = "qemu-aarch64-static"
SUITE = "trixie"
PYTHON = "3.13"
PACKAGES = "python3,ca-certificates,openssh-server,musl"
WHEELS = ("numpy==2.4.6", "tokenizers==0.23.3")
CPU = "cortex-a76"
DONE = ".complete"
ACCOUNTS = "root:x:0:0:root:/root:/bin/sh\nsshd:x:102:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"


@dataclass(frozen=True)
class Arm64Root:
    """A root folder that arm64 programs run in."""

    folder: Path

    @property
    def site(self) -> Path:
        """numpy and tokenizers for its Python."""
        return self.folder / "opt" / "site"

    def environment(self, cpu: str = CPU) -> dict[str, str]:
        """For programs under qemu. Settings of the host that would leak into the guest are left out."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS", "OMP", "PYTHON", "LD_"))}
        return {**kept, "QEMU_CPU": cpu, "PYTHONPATH": str(self.site), "PYTHONDONTWRITEBYTECODE": "1"}

    def python(self, cpu: str = CPU) -> tuple[list[str], dict[str, str]]:
        """(command, environment) that start its Python from outside, on the host's files."""
        return [QEMU, "-L", str(self.folder), str(self.folder / "usr/bin/python3")], self.environment(cpu)

    def run(self, *words: str, cpu: str = CPU) -> subprocess.CompletedProcess[str]:
        """Its Python with these words."""
        command, environment = self.python(cpu)
        return subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=False)


def missing_tools() -> list[str]:
    """What this machine lacks to make and use the root."""
    return [name for name in (QEMU, "debootstrap", "dpkg") if not shutil.which(name)]


def arm64_root(folder: Path | None = None) -> Arm64Root:
    """The root, made on first use. RuntimeError carries the end of the failing tool's output."""
    place = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mobilefinetuner" / f"arm64-{SUITE}-{PYTHON}"
    if not (place / DONE).is_file():
        building = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            _build(building)
            shutil.rmtree(place, ignore_errors=True)
            building.rename(place)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return Arm64Root(place)


def _build(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run("debootstrap", "--arch=arm64", "--foreign", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder))
    for archive in sorted((folder / "var/cache/apt/archives").glob("*.deb")):  # without running maintainer scripts: 13 s instead of minutes
        _run("dpkg", "-x", str(archive), str(folder))
        archive.unlink()
    (folder / "etc/passwd").write_text(ACCOUNTS)
    (folder / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (folder / "etc/shadow").write_text("root:*:19000:0:99999:7:::\n")
    (folder / "usr/bin/sh").unlink(missing_ok=True)
    (folder / "usr/bin/sh").symlink_to("dash")
    for name in ("run/sshd", "mnt"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _run(
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "opt/site"), "--only-binary=:all:",
        "--platform", "manylinux_2_28_aarch64", "--platform", "manylinux2014_aarch64", "--python-version", PYTHON, "--implementation", "cp",
        "--abi", f"cp{PYTHON.replace('.', '')}", "--abi", "abi3", *WHEELS,
    )  # fmt: skip
    site = folder / "usr/local/lib" / f"python{PYTHON}" / "dist-packages"
    site.mkdir(parents=True, exist_ok=True)
    (site / "phone.pth").write_text("/opt/site\n")
    (folder / DONE).touch()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:2])} failed: {(done.stdout + done.stderr)[-1500:]}")


if __name__ == "__main__":
    print(arm64_root(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else None).folder)
