"""What a phone or board says about itself: cores, memory, sensors, software.

In:  /proc, /sys and the environment, as a process without root may read them.
Out: Machine; what the system hides is None or empty and never guessed.
Cores are grouped by the kernel's own measure of their capacity; a chip's marketing name says nothing about that.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..bundle.cpu_features import MachineCpu, read_machine_cpu

CORE_NAMES = {
    "0xd03": "Cortex-A53", "0xd05": "Cortex-A55", "0xd07": "Cortex-A57", "0xd08": "Cortex-A72", "0xd09": "Cortex-A73", "0xd0a": "Cortex-A75",
    "0xd0b": "Cortex-A76", "0xd0d": "Cortex-A77", "0xd41": "Cortex-A78", "0xd44": "Cortex-X1", "0xd46": "Cortex-A510", "0xd47": "Cortex-A710",
    "0xd48": "Cortex-X2", "0xd4d": "Cortex-A715", "0xd4e": "Cortex-X3", "0xd80": "Cortex-A520", "0xd81": "Cortex-A720", "0xd82": "Cortex-X4",
    "0xd85": "Cortex-X925", "0xd87": "Cortex-A725",
}  # fmt: skip
"""Part numbers of Arm Limited (implementer 0x41), from Linux' arch/arm64/include/asm/cputype.h; used for people only"""
SENSOR_COMMANDS = ("termux-battery-status", "dumpsys")
BATTERY_FILES = ("capacity", "status", "temp")
System = Literal["termux", "android", "linux"]


@dataclass(frozen=True)
class Cluster:
    """Cores of one kind."""

    cores: tuple[int, ...]
    """numbers as in /sys/devices/system/cpu"""
    capacity: int | None
    """of 1024, the kernel's estimate of a core's speed; None where it gives none"""
    max_mhz: int | None
    kind: str
    """the core's name where its part number is known, else empty"""


@dataclass(frozen=True)
class Machine:
    """The facts a device profile is made of."""

    name: str
    cpu: MachineCpu
    clusters: tuple[Cluster, ...]
    """fastest first"""
    total_bytes: int | None
    available_bytes: int | None
    page_size_kib: int
    system: System
    sensors: tuple[str, ...]
    """what can be read here: thermal zones by type, battery files, commands"""
    software: Mapping[str, str]
    """name -> version"""

    @property
    def cores(self) -> tuple[int, ...]:
        """All usable cores, fastest first."""
        return tuple(core for cluster in self.clusters for core in cluster.cores)


def read_machine(root: Path = Path("/")) -> Machine:
    """This machine, with /proc and /sys below `root`."""
    memory = _meminfo(_text(root / "proc/meminfo"))
    return Machine(
        _name(root), read_machine_cpu(root / "proc"), read_clusters(root), memory.get("MemTotal"), memory.get("MemAvailable"),
        os.sysconf("SC_PAGE_SIZE") // 1024, _system(), _sensors(root), _software(),
    )  # fmt: skip


def read_clusters(root: Path = Path("/")) -> tuple[Cluster, ...]:
    """The cores that this process may use, grouped by capacity and frequency, fastest first."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    kinds = _core_kinds(_text(root / "proc/cpuinfo"))
    groups: dict[tuple[int, int, str], list[int]] = {}
    for core in usable:
        folder = root / f"sys/devices/system/cpu/cpu{core}"
        capacity, khz = _number(folder / "cpu_capacity"), _number(folder / "cpufreq/cpuinfo_max_freq")
        groups.setdefault((capacity or 0, (khz or 0) // 1000, kinds.get(core, "")), []).append(core)
    ordered = sorted(groups.items(), key=lambda item: (-item[0][0], -item[0][1], item[1]))
    return tuple(Cluster(tuple(cores), capacity or None, mhz or None, kind) for (capacity, mhz, kind), cores in ordered)


def _core_kinds(cpuinfo: str) -> dict[int, str]:
    """Core number -> name, from the 'CPU part' lines of an arm64 cpuinfo."""
    kinds, core = {}, None
    for line in cpuinfo.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor" and value.isdigit():
            core = int(value)
        elif key == "CPU part" and core is not None:
            kinds[core] = CORE_NAMES.get(value, value)
    return kinds


def _meminfo(text: str) -> dict[str, int]:
    """Bytes by name."""
    pairs = (line.split() for line in text.splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in pairs if len(words) > 1 and words[1].isdigit()}


def _name(root: Path) -> str:
    """The model's name: Android's property, the board's device tree, the host's name."""
    model = _output("getprop", "ro.product.model") or _text(root / "proc/device-tree/model").rstrip("\0") or platform.node()
    letters = "".join(c if c.isascii() and c.isalnum() else "_" for c in model.lower()).strip("_")
    return letters or "phone"


def _system() -> System:
    if "com.termux" in os.environ.get("PREFIX", ""):
        return "termux"
    return "android" if shutil.which("getprop") else "linux"


def _sensors(root: Path) -> tuple[str, ...]:
    found = [f"battery {name}" for name in BATTERY_FILES if _text(root / "sys/class/power_supply/battery" / name)]
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*")) if (root / "sys/class/thermal").is_dir() else []
    found += [f"thermal {_text(zone / 'type').strip() or zone.name}" for zone in zones if _number(zone / "temp") is not None]
    return tuple(found + [name for name in SENSOR_COMMANDS if shutil.which(name)])


def _software() -> dict[str, str]:
    software = {"python": platform.python_version(), "kernel": platform.release(), "c library": " ".join(platform.libc_ver()).strip() or "not glibc"}
    for package in ("numpy", "tokenizers"):
        try:
            software[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            software[package] = "missing"
    return software


def _output(*command: str) -> str:
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout.strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # Android hides much of /sys from apps; a hidden fact is a missing one
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None
