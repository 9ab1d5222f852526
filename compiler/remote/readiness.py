"""Whether a phone can run a bundle, and the exact lines to type there when it cannot yet.

In:  a connected target and the bundle.
Out: Readiness; UserError with the lines for that kind of phone.
The phone's processor is asked through the bundle's own code (runtime/cpu_features.py), not by its name.
"""

from __future__ import annotations

import importlib.resources
import json
import shlex
from dataclasses import dataclass

from ...runtime.bundle import Bundle
from ...runtime.cpu_features import MachineCpu
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

import json, sys
_cpu = read_machine_cpu()
print(json.dumps({"python": list(sys.version_info[:3]), "arch": _cpu.arch, "features": sorted(_cpu.features),
                  "numpy": _version("numpy"), "tokenizers": _version("tokenizers")}))
"""
INSTALL = {
    "termux": ("pkg install python python-numpy", "pkg install rust && pip install tokenizers"),
    "debian": ("apt install python3 python3-venv", "python3 -m venv {folder}/venv && {folder}/venv/bin/pip install numpy tokenizers"),
    "android": (
        "adb shell has no Python; install Termux from F-Droid, run there: pkg install python openssh && sshd, and use "
        "--to ssh://PHONE:8022/~/mobilefinetuner",
        "push a Python with numpy and tokenizers to the phone and name it: --python PATH",
    ),
    "other": ("install Python 3.10 or newer", "python3 -m venv {folder}/venv && {folder}/venv/bin/pip install numpy tokenizers"),
}
"""(for Python itself, for the two packages)"""


@dataclass(frozen=True)
class Readiness:
    """What was found on a phone that is ready."""

    python: str
    """the command that starts Python there"""
    versions: dict[str, str]
    system: str
    """termux, debian, android or other"""


def python_there(target: Target, named: str | None = None) -> str:
    """Path of the Python to use: the one named, the one named at an earlier push, the folder's venv, or python3. Empty when there is none."""
    folder = shlex.quote(target.folder)
    if named:
        script = f"command -v {shlex.quote(named)}"
    else:
        script = (
            f"p=$(cat {folder}/.python 2>/dev/null); [ -n \"$p\" ] && [ -x \"$p\" ] && {{ echo \"$p\"; exit 0; }}\n"
            f"[ -x {folder}/venv/bin/python3 ] && {{ echo {folder}/venv/bin/python3; exit 0; }}\n"
            "command -v python3 || command -v python"
        )
    done = target.run(script)
    return done.text.strip().splitlines()[0] if done.code == 0 and done.text.strip() else ""


def check_target(target: Target, bundle: Bundle, needed_bytes: int, named_python: str | None = None) -> Readiness:
    """Python, its packages, the processor and the space there. UserError lists everything that is missing at once."""
    system = _system(target)
    for_python, for_packages = (line.format(folder=target.folder) for line in INSTALL[system])
    python = python_there(target, named_python)
    if not python:
        found = f"has no {named_python}" if named_python else "has no Python"
        raise UserError(str(target.address), found, "Python 3.10 or newer", f"{for_python}; then {for_packages}")
    facts = _ask(target, python)
    problems, remedies = [], []
    if tuple(facts["python"]) < OLDEST_PYTHON:
        problems.append(f"has Python {'.'.join(map(str, facts['python']))} where 3.10 is the oldest that works")
        remedies.append(for_python)
    for name in ("numpy", "tokenizers"):
        if not facts[name] or facts[name].startswith("broken"):
            problems.append(f"has no Python package {name}" if not facts[name] else f"has a {name} that does not load ({facts[name][8:]})")
            line = for_python if system == "termux" and name == "numpy" else for_packages
            remedies += [line] if line not in remedies else []
    free = free_bytes_there(target, target.folder)
    if free is not None and free < needed_bytes + SPARE_BYTES:
        problems.append(f"has {free >> 20} MB free where {(needed_bytes + SPARE_BYTES) >> 20} MB are needed")
        remedies.append("free some space, or name another folder")
    if problems:
        raise UserError(str(target.address), ", ".join(problems), remedy="; ".join(remedies))
    bundle.require_machine(MachineCpu(facts["arch"], frozenset(facts["features"])))
    versions = {"python": ".".join(map(str, facts["python"])), "numpy": facts["numpy"], "tokenizers": facts["tokenizers"]}
    return Readiness(python, versions, system)


def _system(target: Target) -> str:
    script = (
        'case "$PREFIX" in *com.termux*) echo termux; exit;; esac\n'
        "if command -v apt >/dev/null; then echo debian; elif command -v getprop >/dev/null; then echo android; else echo other; fi"
    )
    return target.run(script).text.strip()


def _ask(target: Target, python: str) -> dict:
    """What Python there says about itself and its processor."""
    source = (importlib.resources.files("mobilefinetuner.runtime") / "cpu_features.py").read_text(encoding="utf-8") + CHECK
    path = f"{target.folder}/{CHECK_NAME}"
    target.send(source.encode(), path)
    done = target.run(f"{shlex.quote(python)} {shlex.quote(path)} 2>&1; code=$?; rm -f {shlex.quote(path)}; exit $code")
    lines = [line for line in done.text.splitlines() if line.startswith("{")]
    if done.code or not lines:
        last = (done.text.strip().splitlines() or ["nothing"])[-1]
        raise UserError(str(target.address), f"the Python there ({python}) does not work: {last}", remedy="reinstall it, or name another with --python")
    return json.loads(lines[-1])
