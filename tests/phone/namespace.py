"""Start a command inside the arm64 root as if this machine were arm64, without changing anything outside.

In:  argv: ROOT STORAGE COMMAND… (run as a script: python namespace.py ROOT STORAGE COMMAND…).
Out: the command's own exit code.
A user namespace of its own may register qemu as the interpreter of arm64 programs (Linux 6.7 or newer); mounts and registration
end with the last process in it. STORAGE is the phone's writable storage, mounted at /mnt.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC = 4096, 16384
PR_SET_PDEATHSIG = 1
ELF_AARCH64 = rb"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
ELF_MASK = rb"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
BINFMT = "/proc/sys/fs/binfmt_misc"

_libc = ctypes.CDLL(None, use_errno=True)


def main(root: str, storage: str, qemu: str, *command: str) -> int:
    """Fork a child that enters the namespaces; the parent maps its users, which only it may."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
        _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        _enter(root, storage, qemu)
        os.execvp(command[0], command)
    os.close(ready[1])
    if os.read(ready[0], 1):
        users = "0 0 65536" if os.getuid() == 0 else f"0 {os.getuid()} 1"
        if os.getuid():
            Path(f"/proc/{child}/setgroups").write_text("deny")
        Path(f"/proc/{child}/uid_map").write_text(users)
        Path(f"/proc/{child}/gid_map").write_text("0 0 65536" if os.getuid() == 0 else f"0 {os.getgid()} 1")
        os.write(go[1], b"x")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: os.kill(child, number))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _enter(root: str, storage: str, qemu: str) -> None:
    """Become root of a tree in which arm64 programs start by themselves."""
    _mount("binfmt_misc", BINFMT, "binfmt_misc", 0)
    register = b":mft-arm64:M::" + ELF_AARCH64 + b":" + ELF_MASK + b":" + os.fsencode(qemu) + b":F"  # F: opened now, so the chroot need not hold it
    with open(f"{BINFMT}/register", "wb", buffering=0) as file:
        file.write(register)
    for name in ("proc", "sys", "dev"):
        _mount(f"/{name}", f"{root}/{name}", None, MS_BIND | MS_REC)
    _mount(storage, f"{root}/mnt", None, MS_BIND)
    os.chroot(root)
    os.chdir("/")


def _mount(source: str, place: str, kind: str | None, flags: int) -> None:
    _check(_libc.mount(os.fsencode(source), os.fsencode(place), os.fsencode(kind) if kind else None, ctypes.c_ulong(flags), None), f"mount {place}")


def _check(result: int, what: str) -> None:
    if result:
        sys.stderr.write(f"{what}: {os.strerror(ctypes.get_errno())}\n")
        os._exit(125)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
