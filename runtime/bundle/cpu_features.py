"""What this machine's processor can do, as its kernel reports it.

In:  /proc/self/auxv (arm64: HWCAP, HWCAP2) or /proc/cpuinfo (x86-64: flags; arm64 where auxv cannot be read: Features).
Out: MachineCpu(arch, features), the features in the kernel's own /proc/cpuinfo spelling.
The chip's name is never consulted: a kernel may hide what the chip has (SVE), and then using it ends in SIGILL.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Arch = Literal["x86_64", "aarch64"]
ARCHES: tuple[Arch, ...] = get_args(Arch)
"""what kernels are made for; a machine may be something else"""
# Bit order of AT_HWCAP and AT_HWCAP2 in Linux' arch/arm64/include/uapi/asm/hwcap.h
HWCAP_NAMES = [
    "fp",
    "asimd",
    "evtstrm",
    "aes",
    "pmull",
    "sha1",
    "sha2",
    "crc32",
    "atomics",
    "fphp",
    "asimdhp",
    "cpuid",
    "asimdrdm",
    "jscvt",
    "fcma",
    "lrcpc",
    "dcpop",
    "sha3",
    "sm3",
    "sm4",
    "asimddp",
    "sha512",
    "sve",
    "asimdfhm",
    "dit",
    "uscat",
    "ilrcpc",
    "flagm",
    "ssbs",
    "sb",
    "paca",
    "pacg",
]
HWCAP2_NAMES = [
    "dcpodp",
    "sve2",
    "sveaes",
    "svepmull",
    "svebitperm",
    "svesha3",
    "svesm4",
    "flagm2",
    "frint",
    "svei8mm",
    "svef32mm",
    "svef64mm",
    "svebf16",
    "i8mm",
    "bf16",
    "dgh",
    "rng",
    "bti",
    "mte",
]
# x86-64 psABI levels, in /proc/cpuinfo spelling: each level includes the ones before it
X86_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("x86-64-v2", ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")),
    ("x86-64-v3", ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")),
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
)
# /proc/cpuinfo name -> LLVM name, for what kernels can use and no mcpu level implies
X86_EXTRAS = {"avx_vnni": "avxvnni", "avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16"}
AT_HWCAP, AT_HWCAP2 = 16, 26
ARCH_NAMES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


@dataclass(frozen=True)
class MachineCpu:
    """A processor as far as kernels care."""

    arch: str
    """x86_64 or aarch64; anything else as the OS spells it"""
    features: frozenset[str]
    """names as in /proc/cpuinfo: avx2, avx512f; asimd, asimddp, i8mm"""

    def lacks(self, required: Sequence[str]) -> list[str]:
        """The required features that are not there, in the order given."""
        return [name for name in required if name not in self.features]


def read_machine_cpu(proc: Path = Path("/proc")) -> MachineCpu:
    """This machine's processor; without a readable /proc no feature is claimed."""
    machine = platform.machine().lower()
    arch = ARCH_NAMES.get(machine, machine)
    features = _features_of_auxv(_bytes_of(proc / "self" / "auxv")) if arch == "aarch64" else frozenset()
    if not features:
        features = features_of_cpuinfo(_bytes_of(proc / "cpuinfo").decode("utf-8", "replace"))
    return MachineCpu(arch, features)


def x86_level(features: frozenset[str]) -> str:
    """The highest x86-64 level all of whose features are there."""
    level = "x86-64"
    for name, needed in X86_LEVELS:
        if not features.issuperset(needed):
            break
        level = name
    return level


def features_of_x86_cpu(cpu: str) -> tuple[str, ...]:
    """What code for this x86-64 level may use, so that the machine must have it; empty for other cpu names."""
    names = [name for name, _ in X86_LEVELS]
    upto = names.index(cpu) + 1 if cpu in names else 0
    return tuple(feature for _, needed in X86_LEVELS[:upto] for feature in needed)


def features_of_cpuinfo(text: str) -> frozenset[str]:
    """What every listed core has: the intersection of all `flags` (x86) or `Features` (arm64) lines."""
    common: set[str] | None = None
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() in ("flags", "Features"):
            common = set(value.split()) if common is None else common & set(value.split())
    return frozenset(common or ())


def _features_of_auxv(auxv: bytes) -> frozenset[str]:
    """Features from the auxiliary vector: pairs of native 64-bit words (key, value)."""
    names: set[str] = set()
    for offset in range(0, len(auxv) - 15, 16):
        key, value = struct.unpack_from("=QQ", auxv, offset)
        table = {AT_HWCAP: HWCAP_NAMES, AT_HWCAP2: HWCAP2_NAMES}.get(key, [])
        names.update(name for bit, name in enumerate(table) if value >> bit & 1)
    return frozenset(names)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # Android hides parts of /proc: then the feature is not claimed and the caller says so
        return b""
