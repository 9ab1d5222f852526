"""Phones for the tests: the same tests run over every transport that this machine can offer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from tests.phone.adb_phone import adb_phone
from tests.phone.arm64_root import QEMU, Arm64Root, arm64_root, missing_tools
from tests.phone.ssh_phone import ssh_phone

TRANSPORTS = ("path", "android-tools", "ssh", "adb", "adb-old")
"""android-tools: a folder, with Android's shell (mksh) and commands (toybox) in place of this machine's"""


@dataclass(frozen=True)
class Phone:
    """A phone that is this machine itself, behind one transport."""

    transport: str
    address: Callable[..., str]
    """(folder, port) -> what is typed as TARGET"""
    port: int | None
    folder: Path
    """address() as a path of this machine"""


@pytest.fixture(params=[TRANSPORTS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in TRANSPORTS[1:])])
def phone(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Phone]:
    """Tests that use it run once per transport; a folder stands for all of them in the short run."""
    yield from open_phone(request.param, tmp_path, monkeypatch)


@pytest.fixture(params=TRANSPORTS)
def any_phone(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Phone]:
    """For the few tests that always run over every transport."""
    yield from open_phone(request.param, tmp_path, monkeypatch)


def open_phone(transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Phone]:
    storage = tmp_path / "phone"
    if transport == "android-tools":
        monkeypatch.setenv("PATH", f"{_android_tools(tmp_path / 'tools')}:{os.environ['PATH']}")
    if transport in ("path", "android-tools"):
        yield Phone(transport, lambda folder="mft", port=None: str(storage / folder), None, storage / "mft")
        return
    tool = "sshd" if transport == "ssh" else "adb"
    if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin"):
        _unavailable(f"{tool} is not installed")
    with ssh_phone(storage) if transport == "ssh" else adb_phone(storage, old=transport == "adb-old") as made:
        for name in set(made.environment) - {"HOME"}:
            monkeypatch.setenv(name, made.environment[name])
        inside = Path(made.home if transport == "ssh" else made.folder)
        yield Phone(transport, made.address, made.port, inside / "mft")


@pytest.fixture(params=["ssh", "adb"])
def arm64_transport(request: pytest.FixtureRequest) -> str:
    """How the arm64 phone is reached; skipped where the program for it is missing."""
    if not shutil.which("sshd" if request.param == "ssh" else "adb", path=f"{os.environ['PATH']}:/usr/sbin"):
        _unavailable(f"{request.param} is not installed")
    return request.param


def _android_tools(folder: Path) -> Path:
    """A folder with mksh as sh and with toybox' commands."""
    missing = [name for name in ("mksh", "toybox") if not shutil.which(name)]
    if missing:
        _unavailable(f"not installed: {', '.join(missing)}")
    folder.mkdir()
    (folder / "sh").symlink_to(str(shutil.which("mksh")))
    for command in subprocess.run(["toybox"], capture_output=True, text=True, check=True).stdout.split():
        if not (folder / command).exists():
            (folder / command).symlink_to(str(shutil.which("toybox")))
    return folder


@pytest.fixture(scope="session")
def arm64() -> Arm64Root:
    """The arm64 root; the test is skipped where it cannot be made."""
    missing = missing_tools()
    if missing:
        _unavailable(f"not installed: {', '.join(missing)} (apt install qemu-user-static debootstrap)")
    try:
        return arm64_root()
    except RuntimeError as error:
        _unavailable(f"the arm64 root cannot be made here: {error}")


@pytest.fixture(scope="session")
def arm64_system(arm64: Arm64Root, tmp_path_factory: pytest.TempPathFactory) -> Arm64Root:
    """The root as a system of its own, in which arm64 programs start each other; skipped where the kernel cannot do that for one tree."""
    script, storage = Path(__file__).with_name("namespace.py"), tmp_path_factory.mktemp("storage")
    words = [sys.executable, str(script), str(arm64.folder), str(storage), str(shutil.which(QEMU)), "/usr/bin/true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        _unavailable(f"arm64 programs cannot be registered in a namespace (Linux 6.7 or newer can): {done.stderr.strip()}")
    return arm64


def _unavailable(reason: str) -> NoReturn:
    """Skip; with MFT_REQUIRE_PHONE set, as where everything is meant to be installed, fail."""
    if os.environ.get("MFT_REQUIRE_PHONE"):
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A real model under qemu takes many minutes: only for those who ask for it."""
    if "phone" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("phone"):
            item.add_marker(pytest.mark.skip(reason="many minutes under qemu; ask for it with: pytest -m phone"))
