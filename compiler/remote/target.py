"""What a target can do, whatever connects it: run a POSIX shell script, take bytes, give bytes.

In:  Address.
Out: Target; ConnectionLost when the way there broke, which callers answer by trying again.
A script's exit code and output travel in its standard output, so that old devices without exit codes or separate streams do.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runtime.errors import MftError, UserError
from .address import Address

BEGIN, MARK = "mft-begin", "mft-exit"
BEGINNING = re.compile(rb"^" + BEGIN.encode() + rb"\r?\n", re.MULTILINE)
ENDING = re.compile(rb"\n?" + MARK.encode() + rb":(\d+)[\r\n]*$")


class ConnectionLost(MftError):
    """The connection broke or never stood; what was going on may be tried again."""


@dataclass(frozen=True)
class Finished:
    """A script that ran to its end."""

    code: int
    output: bytes
    """standard output; on some devices errors as well"""

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace").replace("\r\n", "\n")


class Target(ABC):
    """A connected target. Scripts run in `address.folder`'s parent-independent shell: use `folder` for paths."""

    PIECE_BYTES = 8 << 20
    """how much is sent at once: what a break costs at most"""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.folder = address.folder

    @abstractmethod
    def words(self, script: str, terminal: bool = False) -> list[str]:
        """The command of this machine that runs `script` there."""

    @abstractmethod
    def send(self, piece: bytes, path: str) -> None:
        """Write a file there. ConnectionLost leaves it undefined."""

    def receive(self, path: str, offset: int, length: int) -> bytes:
        """Bytes of a file there; fewer at its end."""
        done = self.run(f"tail -c +{offset + 1} {shlex.quote(path)} | head -c {length} | base64")
        if done.code:
            raise ConnectionLost(f"{self.address}: {path} cannot be read")
        return base64.b64decode(b"".join(done.output.split()))

    def run(self, script: str) -> Finished:
        """Run a script to its end. ConnectionLost when its end was not seen."""
        # A subshell, so that an `exit` in the script does not skip the mark. Start-up files of a login shell may print before ours.
        done = self._call(self.words(f"echo {BEGIN}; ( {script}\n); echo {MARK}:$?"))
        begin, ending = BEGINNING.search(done.stdout), ENDING.search(done.stdout)
        if begin is None or ending is None:
            raise ConnectionLost(f"{self.address}: {self.complaint(done)}")
        return Finished(int(ending[1]), done.stdout[begin.end() : max(begin.end(), ending.start())])

    def _call(self, words: Sequence[str], stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        try:
            source: dict[str, Any] = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
            return subprocess.run(words, capture_output=True, check=False, **source)
        except FileNotFoundError:
            raise UserError(str(self.address), f"the program {words[0]} is not installed here", remedy=self.INSTALL) from None

    def complaint(self, done: subprocess.CompletedProcess[bytes]) -> str:
        """The connecting program's own last words."""
        lines = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else f"the connection ended (exit code {done.returncode})"

    INSTALL = ""
    """how the connecting program is installed"""

    def prepare(self) -> None:  # noqa: B027 - most ways need nothing here
        """Whatever has to be done before the first call."""

    def reconnect(self) -> None:  # noqa: B027 - most ways need nothing here
        """Whatever helps before the next try."""

    def close(self) -> None:  # noqa: B027 - most ways need nothing here
        """Let go of the connection."""

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalTarget(Target):
    """A folder of this machine, such as a phone's storage that is mounted here."""

    def words(self, script: str, terminal: bool = False) -> list[str]:
        return ["sh", "-c", script]

    def send(self, piece: bytes, path: str) -> None:
        try:
            Path(path).write_bytes(piece)
        except OSError as error:
            raise UserError(path, f"cannot be written ({error.strerror})", remedy="free some space, or choose another folder") from error


class SshTarget(Target):
    """OpenSSH's client; one connection serves all calls."""

    INSTALL = "apt install openssh-client"
    OPTIONS = ("ConnectTimeout=15", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlMaster=auto", "ControlPersist=60")

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._sockets = tempfile.TemporaryDirectory(prefix="mft-")

    def _ssh(self) -> list[str]:
        options = [*self.OPTIONS, f"ControlPath={self._sockets.name}/%C"]
        port = ["-p", str(self.address.port)] if self.address.port else []
        return [*shlex.split(os.environ.get("MFT_SSH", "ssh")), *(word for o in options for word in ("-o", o)), *port]

    def words(self, script: str, terminal: bool = False) -> list[str]:
        # The login shell there may be fish or csh; sh reads the script from the one word that every shell passes on unchanged.
        return [*self._ssh(), *(["-t"] if terminal else []), "--", self.address.host, f"sh -c {shlex.quote(script)}"]

    def send(self, piece: bytes, path: str) -> None:
        done = self._call(self.words(f"cat > {shlex.quote(path)} && echo {MARK}:0"), piece)
        if not ENDING.search(done.stdout):
            raise ConnectionLost(f"{self.address}: {self.complaint(done)}")

    def reconnect(self) -> None:
        self._call([*self._ssh(), "-O", "exit", "--", self.address.host])

    def close(self) -> None:
        self.reconnect()
        self._sockets.cleanup()


class AdbTarget(Target):
    """Android's own debug bridge. Devices before Android 7 tell no exit codes and mix output and errors."""

    INSTALL = "apt install adb"

    def _adb_itself(self) -> list[str]:
        return shlex.split(os.environ.get("MFT_ADB", "adb"))

    def _adb(self) -> list[str]:
        return [*self._adb_itself(), *(["-s", self.address.host] if self.address.host else [])]

    def words(self, script: str, terminal: bool = False) -> list[str]:
        return [*self._adb(), "shell", *(["-t"] if terminal else []), script]

    def send(self, piece: bytes, path: str) -> None:
        with tempfile.TemporaryDirectory(prefix="mft-") as folder:
            file = Path(folder) / "piece"
            file.write_bytes(piece)
            done = self._call([*self._adb(), "push", str(file), path])
        if done.returncode:
            raise ConnectionLost(f"{self.address}: {self.complaint(done)}")

    def receive(self, path: str, offset: int, length: int) -> bytes:
        part = f"{self.folder}/.piece-{os.getpid()}"
        done = self.run(f"tail -c +{offset + 1} {shlex.quote(path)} | head -c {length} > {shlex.quote(part)}")
        with tempfile.TemporaryDirectory(prefix="mft-") as folder:
            file = Path(folder) / "piece"
            pulled = self._call([*self._adb(), "pull", part, str(file)])
            if done.code or pulled.returncode or not file.is_file():
                raise ConnectionLost(f"{self.address}: {self.complaint(pulled)}")
            content = file.read_bytes()
        self.run(f"rm -f {shlex.quote(part)}")
        return content

    def prepare(self) -> None:
        if ":" in self.address.host:
            self._call([*self._adb_itself(), "connect", self.address.host])

    def reconnect(self) -> None:
        if ":" in self.address.host:  # over the network: adb calls a device offline whose connection broke, and keeps it so
            self._call([*self._adb_itself(), "disconnect", self.address.host])
            self.prepare()
        else:
            self._call([*self._adb_itself(), "reconnect", "offline"])

    def complaint(self, done: subprocess.CompletedProcess[bytes]) -> str:
        text = super().complaint(done)
        if "unauthorized" in text:
            return f"{text}; unlock the phone and allow USB debugging in the dialog that it shows"
        if "no devices" in text:
            return f"{text}; switch on USB debugging in the phone's developer options and plug it in"
        return text


def connect(address: Address) -> Target:
    """The target at this address; its folder is made absolute. UserError when nobody answers there."""
    target = {"path": LocalTarget, "ssh": SshTarget, "adb": AdbTarget}[address.kind](address)
    try:
        target.prepare()
        where = target.run("pwd -P").text.strip() if not address.folder.startswith("/") else ""
        target.run(":")
    except ConnectionLost as error:
        target.close()
        raise UserError(str(address), str(error).partition(": ")[2], remedy=_remedy(address)) from error
    if where:
        target.folder = f"{where.rstrip('/')}/{address.folder}"
    return target


def _remedy(address: Address) -> str:
    if address.kind == "ssh":
        return f"ssh {f'-p {address.port} ' if address.port else ''}{address.host} (must work by itself; in Termux: run sshd)"
    return "adb devices (must list the phone as 'device')"
