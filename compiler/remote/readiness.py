"""Whether a phone can run a bundle, and the exact lines to type there when it cannot yet.

In:  a connected target and the bundle.
Out: Readiness; UserError with the lines for that kind of phone.
The phone's processor is asked through the bundle's own code (runtime/bundle/cpu_features.py), not by its name.
"""

from __future__ import annotations

import importlib.resources
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from ...runtime.bundle.cpu_features import MachineCpu
from ...runtime.bundle.folder import Bundle
from ...runtime.errors import UserError
from .target import Target
from .transfer import free_bytes_there

OLDEST_PYTHON = (3, 10)
SPARE_BYTES = 32 << 20
CHECK_NAME = ".check.py"
CHECK = """
def _version(name):
    try:
        import importlib.metadata
        __import__(name)
        return importlib.metadata.version(name)
    except Exception as error:
        return "" if isinstance(error, ImportError) and getattr(error, "name", "") == name else "broken: %s" % (error,)

def _makes_venv():
    try:
        import ensurepip, venv
        return True
    except ImportError:
        return False

import json, sys
_cpu = read_machine_cpu()
print(json.dumps({"python": list(sys.version_info[:3]), "arch": _cpu.arch, "features": sorted(_cpu.features),
                  "numpy": _version("numpy"), "tokenizers": _version("tokenizers"), "makes_venv": _makes_venv()}))
"""
VENV = "python3 -m venv {venv} && {venv}/bin/pip install numpy tokenizers"
PhoneSystem = Literal["termux", "debian", "android", "other"]
INSTALL: dict[PhoneSystem, tuple[str, str]] = {
    "termux": ("pkg install python python-numpy", "pkg install rust && pip install tokenizers"),
    "debian": ("{sudo}apt install python3 python3-venv", VENV),
    "android": (
        "adb shell has no Python; in Termux (from F-Droid): pkg install python openssh && sshd, then --to ssh://PHONE:8022/~/mobilefinetuner",
        "push a Python with numpy and tokenizers to the phone and name it: --python PATH",
    ),
    "other": ("install Python 3.10 or newer", VENV),
}
"""(for Python itself, for the two packages)"""
PACKAGES = ("numpy", "tokenizers")
GENERIC = {"aarch64": "generic_armv8", "x86_64": "generic_x86_64"}
"""the profile whose bundle runs on every machine of that kind"""


@dataclass(frozen=True)
class Readiness:
    """What was found on a phone that is ready."""

    python: str
    """the command that starts Python there"""
    versions: dict[str, str]
    system: PhoneSystem


def python_there(target: Target, named: str | None = None) -> str:
    """Path of the Python to use: the one named, the one named at an earlier push, the folder's venv, or python3. Empty when there is none."""
    folder = shlex.quote(target.folder)
    if named:
        script = f"command -v {shlex.quote(named)}"
    else:
        script = (
            f'p=$(cat {folder}/.python 2>/dev/null); [ -n "$p" ] && [ -x "$p" ] && {{ echo "$p"; exit 0; }}\n'
            f"[ -x {folder}/venv/bin/python3 ] && {{ echo {folder}/venv/bin/python3; exit 0; }}\n"
            "command -v python3 || command -v python"
        )
    done = target.run(script)
    return done.text.strip().splitlines()[0] if done.code == 0 and done.text.strip() else ""


def check_target(target: Target, bundle: Bundle, needed_bytes: int, named_python: str | None = None) -> Readiness:
    """Python, its packages, the processor and the space there. UserError lists everything that is missing at once."""
    system, is_root = _system(target)
    for_python, for_packages = _install_lines(target.folder, system, is_root)
    python = python_there(target, named_python)
    if not python:
        found = f"has no {named_python}" if named_python else "has no Python"
        raise UserError(str(target.address), found, "Python 3.10 or newer", _typed_there([for_python, for_packages]))
    facts = _ask(target, python)
    if named_python:
        for_packages = f"{shlex.quote(python)} -m pip install numpy tokenizers"
    problems, lines = _software_problems(facts, system, for_python, for_packages)
    free = free_bytes_there(target, target.folder)
    too_full = free is not None and free < needed_bytes + SPARE_BYTES
    if free is not None and too_full:
        problems.append(f"has {free >> 20} MB free where {(needed_bytes + SPARE_BYTES) >> 20} MB are needed")
    if problems:
        remedies = ["free some space there, or name another folder"] if too_full else []
        raise UserError(str(target.address), ", ".join(problems), remedy="; ".join([*remedies, *([_typed_there(lines)] if lines else [])]))
    _require_processor(target, bundle, MachineCpu(facts["arch"], frozenset(facts["features"])))
    versions = {"python": ".".join(map(str, facts["python"])), **{name: facts[name] for name in PACKAGES}}
    return Readiness(python, versions, system)


def _require_processor(target: Target, bundle: Bundle, cpu: MachineCpu) -> None:
    """What the bundle's own check would say on the phone, said from here."""
    arch, lacking = bundle.manifest.abi.arch, cpu.lacks(bundle.manifest.required_cpu_features)
    if cpu.arch != arch:
        found = f"is {cpu.arch}, and {bundle.folder} is compiled for {arch}"
        remedy = f"mft compile with a device whose arch is {cpu.arch}, such as device={GENERIC.get(cpu.arch, 'host')}"
        raise UserError(str(target.address), found, remedy=remedy)
    if lacking:
        found = f"does not report CPU features that {bundle.folder} needs: {', '.join(lacking)}"
        remedy = f"mft compile device={GENERIC.get(arch, 'host')}, push that, then mft on {target.address.typed} probe --output my-phone.yaml"
        raise UserError(str(target.address), found, remedy=remedy)


def _install_lines(folder: str, system: PhoneSystem, is_root: bool) -> tuple[str, str]:
    """What is typed there for Python itself, and for the two packages."""
    words = {"venv": shlex.quote(f"{folder}/venv"), "sudo": "" if is_root else "sudo "}
    for_python, for_packages = (line.format(**words) for line in INSTALL[system])
    return for_python, for_packages


def _software_problems(facts: dict, system: PhoneSystem, for_python: str, for_packages: str) -> tuple[list[str], list[str]]:
    """(what is wrong with the Python there, the lines that put it right), both empty when all is well."""
    problems, lines = [], []
    if tuple(facts["python"]) < OLDEST_PYTHON:
        problems.append(f"has Python {'.'.join(map(str, facts['python']))} where 3.10 is the oldest that works")
        lines.append(for_python)
    for name in PACKAGES:
        if facts[name] and not facts[name].startswith("broken"):
            continue
        problems.append(f"has a {name} that does not load ({facts[name][8:]})" if facts[name] else f"has no Python package {name}")
        if (system == "termux" and name == "numpy") or (system == "debian" and not facts["makes_venv"]):
            lines.append(for_python)  # numpy is a package of Termux; Debian keeps what makes a venv apart from Python
        if system != "termux" or name != "numpy":
            lines.append(for_packages)
    return problems, list(dict.fromkeys(lines))


def _typed_there(lines: Sequence[str]) -> str:
    """A remedy with a line of its own for each command, to be copied."""
    return "\n  ".join(["these lines there, then the same command again:", *lines])


def _system(target: Target) -> tuple[PhoneSystem, bool]:
    """(what kind of system, whether we are its root)."""
    script = (
        'case "$PREFIX" in *com.termux*) echo termux; exit;; esac\n'
        "if command -v apt >/dev/null; then echo debian; elif command -v getprop >/dev/null; then echo android; else echo other; fi\n"
        "[ -w / ] && echo root"
    )
    words = target.run(script).text.split()
    system = cast(PhoneSystem, next((known for known in INSTALL if known in words), "other"))
    return system, "root" in words


def _ask(target: Target, python: str) -> dict:
    """What Python there says about itself and its processor."""
    source = (importlib.resources.files("mobilefinetuner.runtime") / "bundle" / "cpu_features.py").read_text(encoding="utf-8") + CHECK
    path = f"{target.folder}/{CHECK_NAME}"
    target.send(source.encode(), path)
    done = target.run(f"{shlex.quote(python)} {shlex.quote(path)} 2>&1; code=$?; rm -f {shlex.quote(path)}; exit $code")
    lines = [line for line in done.text.splitlines() if line.startswith("{")]
    if done.code or not lines:
        last = (done.text.strip().splitlines() or ["nothing"])[-1]
        found = f"the Python there ({python}) does not work: {last}"
        raise UserError(str(target.address), found, remedy="reinstall it, or name another with --python")
    return json.loads(lines[-1])
