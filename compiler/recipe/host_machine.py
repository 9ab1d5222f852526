"""The machine the compiler runs on, as a device profile sees it.

In:  /proc and the operating system.
Out: the values behind ${machine:arch}, ${machine:cpu}, … in configs/device/host.yaml.
They are read when the recipe is resolved and end up in it as plain values: nothing later asks the machine again.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from omegaconf import OmegaConf

from ...runtime.bundle.cpu_features import ARCHES, MachineCpu, read_machine_cpu
from ...runtime.errors import UserError
from .cpu_targets import X86_EXTRAS, features_of_x86_cpu, known_features, x86_level

MACHINE_FACTS = ("arch", "mtriple", "cpu", "features", "cores")


def register_machine_resolver() -> None:
    """Make ${machine:FACT} available to every YAML; calling it again changes nothing."""
    OmegaConf.register_new_resolver("machine", machine_fact, replace=True)


def machine_fact(name: str, machine: MachineCpu | None = None) -> Any:
    """One fact about this machine, by the name it has in a device profile."""
    if sys.platform != "linux":
        raise UserError("device", f"this machine runs {sys.platform}", "linux for device=host", "device=generic_armv8")
    machine = machine or read_machine_cpu()
    if machine.arch not in ARCHES:
        raise UserError("device", f"this machine is a {machine.arch}", ", ".join(ARCHES), "device=generic_armv8")
    if name == "arch":
        return machine.arch
    if name == "mtriple":
        return f"{machine.arch}-linux-gnu"
    if name == "cpu":
        return x86_level(machine.features) if machine.arch == "x86_64" else "generic"
    if name == "features":
        return _usable_features(machine)
    if name == "cores":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    raise UserError("machine", f"{name!r} is not a fact about the machine", ", ".join(MACHINE_FACTS))


def _usable_features(machine: MachineCpu) -> list[str]:
    """What kernels for this machine may use: on x86-64 its level and the extras, on arm64 all that LLVM has a name for."""
    if machine.arch == "aarch64":
        return [name for name in known_features("aarch64") if name in machine.features]
    level = features_of_x86_cpu(x86_level(machine.features))
    return [*level, *(name for name in X86_EXTRAS if name in machine.features)]
