"""Where a phone is: adb[:SERIAL][:DIR], ssh://[user@]host[:port]/dir, or a folder of this machine.

In:  the word that was typed.
Out: Address.
A serial may be host:port (wireless debugging), so the folder is what begins with a slash.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ...runtime.errors import UserError

FORMS = "adb[:SERIAL][:DIR], ssh://[user@]host[:port]/dir, or a folder"
ADB_FOLDER = "/data/local/tmp/mobilefinetuner"
SSH_FOLDER = "mobilefinetuner"
ADB = re.compile(r"adb(?::(?P<serial>[^/:][^/]*?))?(?::(?P<folder>/.*))?")
HOST = re.compile(r"[A-Za-z0-9_%.:-]+")
USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Address:
    """One target."""

    kind: Literal["adb", "ssh", "path"]
    host: str
    """ssh: [user@]host; adb: the serial, empty for the only device; path: empty"""
    port: int | None
    folder: str
    """the folder there; for ssh a relative one is below the home folder"""

    @property
    def typed(self) -> str:
        """As one types it in a shell."""
        return shlex.quote(str(self))

    def __str__(self) -> str:
        if self.kind == "path":
            return self.folder
        if self.kind == "adb":
            return ":".join(["adb", *([self.host] if self.host else []), self.folder])
        user, at, name = self.host.rpartition("@")
        host = f"{user}{at}[{name}]" if ":" in name else self.host
        folder = self.folder if self.folder.startswith("/") else f"/~/{self.folder}"
        return f"ssh://{host}{f':{self.port}' if self.port else ''}{folder}"


def parse_address(text: str) -> Address:
    """The target that `text` means. UserError lists the forms."""
    if text == "adb" or text.startswith("adb:"):
        match = ADB.fullmatch(text)
        if match is None:
            raise UserError("target", f"{text!r} is no adb target", FORMS, f"adb:SERIAL:{ADB_FOLDER}")
        return Address("adb", match["serial"] or "", None, _folder(match["folder"] or ADB_FOLDER, text))
    if text.startswith("ssh://"):
        return _ssh(text)
    if "://" in text or not text:
        raise UserError("target", f"{text!r} is no target", FORMS)
    return Address("path", "", None, str(Path(text).expanduser().absolute()))


def _ssh(text: str) -> Address:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UserError("target", f"{text!r} has a port that is no number from 1 to 65535", FORMS) from None
    host = (parts.hostname or "") if "[" in parts.netloc else parts.netloc.rpartition("@")[2].partition(":")[0]
    # Words that begin with a dash would be read by ssh as options.
    if not HOST.fullmatch(host) or host.startswith("-") or (parts.username is not None and not USER.fullmatch(parts.username)):
        raise UserError("target", f"{text!r} names no host", FORMS, "ssh://user@192.168.1.20:8022/~/mobilefinetuner")
    if parts.password is not None or parts.query or parts.fragment:
        raise UserError("target", "has a password, '?' or '#' in it", FORMS, "let ssh ask for the password, or use a key")
    path = parts.path[3:] if parts.path.startswith("/~/") else parts.path
    return Address("ssh", f"{parts.username}@{host}" if parts.username else host, port, _folder(path.rstrip("/") or SSH_FOLDER, text))


def _folder(folder: str, text: str) -> str:
    if any(not sign.isprintable() for sign in folder) or ".." in folder.split("/"):
        raise UserError("target", f"{text!r} has '..' or a control character in its folder", "a plain path")
    return folder.rstrip("/") or "/"
