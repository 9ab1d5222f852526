"""A phone that is reached by ssh: a real sshd on a loopback port, in the arm64 root or on this machine.

In:  a folder for its storage and keys, Arm64Root or None.
Out: SshPhone: where it is, and MFT_SSH for the tools.
It is Termux' sshd in all that matters: not on port 22, keys only, a home folder of its own, python3 on the PATH.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.phone.arm64_root import CPU, QEMU, Arm64Root

CONFIG = """\
ListenAddress 127.0.0.1
HostKey {keys}/host
AuthorizedKeysFile {keys}/user.pub
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
SetEnv QEMU_CPU={cpu} HOME={home} PYTHONDONTWRITEBYTECODE=1
"""
CLIENT_OPTIONS = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "IdentitiesOnly=yes")


@dataclass(frozen=True)
class SshPhone:
    """A running sshd."""

    port: int
    home: str
    """where the tests put things, as the phone sees it"""
    environment: dict[str, str]

    def address(self, folder: str = "mft", port: int | None = None) -> str:
        return f"ssh://{getpass.getuser()}@127.0.0.1:{port or self.port}{self.home}/{folder}"


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def ssh_phone(storage: Path, root: Arm64Root | None = None) -> Iterator[SshPhone]:
    """sshd running for the time of the block."""
    keys, inside = storage / "keys", "/mnt" if root else str(storage)
    (storage / "home").mkdir(parents=True)
    keys.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    (storage / "sshd_config").write_text(CONFIG.format(cpu=CPU, keys=f"{inside}/keys", home=f"{inside}/home"))
    port = free_port()
    script = Path(__file__).with_name("namespace.py")
    namespace = [sys.executable, str(script), str(root.folder), str(storage), str(shutil.which(QEMU))] if root else []
    command = [*namespace, shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", f"{inside}/sshd_config", "-p", str(port)]
    if root is None and os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd as root wants it, and only the system's own start script makes it
    with (storage / "sshd.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "QEMU_CPU": CPU})
    try:
        _wait_until_listening(server, storage / "sshd.log")
        options = [*CLIENT_OPTIONS, f"IdentityFile={keys / 'user'}"]
        ssh = " ".join(["ssh", "-F", "none", *(f"-o {option}" for option in options)])
        yield SshPhone(port, f"{inside}/home", {**os.environ, "MFT_SSH": ssh})
    finally:
        server.terminate()
        server.wait()


def _wait_until_listening(server: subprocess.Popen, log: Path) -> None:
    """Until the log says so; RuntimeError with the log when sshd ended instead."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        text = ""
        while "Server listening" not in text:
            text += lines.read()
            if server.poll() is not None:
                raise RuntimeError(f"sshd did not start: {text}{lines.read()}")
