"""A phone that is reached by adb: the real adb client and server, and adbd.py as the device, on this machine or in the arm64 root.

In:  the device's storage folder, Arm64Root or None.
Out: AdbPhone: its serial, its folder, and the environment for the tools.
The adb server has a port of its own, so that a server of the user's is left alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.phone.arm64_root import CPU, QEMU, Arm64Root
from tests.phone.ssh_phone import free_port

ADBD = Path(__file__).with_name("adbd.py")


@dataclass(frozen=True)
class AdbPhone:
    """A running device."""

    port: int
    folder: str
    """where the tests put things, as the device sees it"""
    environment: dict[str, str]

    def address(self, folder: str = "mft", port: int | None = None) -> str:
        return f"adb:127.0.0.1:{port or self.port}:{self.folder}/{folder}"


@contextmanager
def adb_phone(storage: Path, root: Arm64Root | None = None, old: bool = False) -> Iterator[AdbPhone]:
    """The device and an adb server for the time of the block."""
    storage.mkdir(parents=True, exist_ok=True)
    port = free_port()
    options = [str(port), *(["--old"] if old else [])]
    if root is None:
        command = [sys.executable, str(ADBD), *options]
    else:
        shutil.copy(ADBD, storage / ADBD.name)
        namespace = [sys.executable, str(ADBD.with_name("namespace.py")), str(root.folder), str(storage), str(shutil.which(QEMU))]
        command = [*namespace, "/usr/bin/python3", f"/mnt/{ADBD.name}", *options]
    environment = {**os.environ, "ANDROID_ADB_SERVER_PORT": str(free_port()), "ADB_VENDOR_KEYS": "", "HOME": str(storage), "QEMU_CPU": CPU}
    device = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment)
    try:
        if device.stdout.readline() != b"listening\n":
            raise RuntimeError("the device did not start")
        yield AdbPhone(port, "/mnt" if root else str(storage), environment)
    finally:
        subprocess.run(["adb", "kill-server"], env=environment, capture_output=True, check=False)
        device.terminate()
        device.wait()
