"""Refuse a device's cpu that the code generator does not know, or whose code would need more than the profile lists.

In:  the device profile.
Out: nothing, or a UserError. LLVM is asked, not a list of ours.
For a name that LLVM does not know it would build for a generic processor and complain once for every kernel; for one that it knows,
it uses whatever the name implies, listed or not, and the phone would meet that as an illegal instruction.
"""

from __future__ import annotations

import difflib

import tvm

from ...runtime.errors import UserError
from ..recipe.cpu_targets import ARM_ATTRIBUTES
from ..recipe.schema import DeviceRecipe

NEWEST_ARM = "v8.2a"
NEXT_ARM = "v8.3a"
"""From here on LLVM may use instructions that no feature of a profile stands for (flag manipulation, pointer authentication, mops)"""


def check_device_cpus(device: DeviceRecipe) -> None:
    """Of the profile itself and of its variants."""
    _check(device, "device.cpu", device.cpu, device.features)
    for number, variant in enumerate(device.variants):
        _check(device, f"device.variants[{number}].cpu", variant.cpu, variant.features)


def _check(device: DeviceRecipe, where: str, cpu: str, features: tuple[str, ...]) -> None:
    known = _ask("llvm_get_cpu_archlist", device.mtriple, "generic")
    if cpu not in known:
        near = difflib.get_close_matches(cpu, known, 4)
        allowed = ", ".join([*near, "generic"]) + f", or another {device.arch} processor that LLVM has"
        raise UserError(where, f"{cpu!r} is not known to LLVM", allowed, "the nearest older one")
    if device.arch != "aarch64":
        return
    implied = _ask("llvm_get_cpu_features", device.mtriple, cpu)
    if NEXT_ARM in implied:
        remedy = "cortex-a78, with what the chip has beyond it listed in the features"
        raise UserError(where, f"{cpu} is newer than Arm{NEWEST_ARM}", f"up to Arm{NEWEST_ARM}, such as cortex-a76", remedy)
    unlisted = [name for name, attribute in ARM_ATTRIBUTES.items() if attribute in implied and name not in features]
    if unlisted:
        raise UserError(
            where, f"{cpu} uses features that the profile does not list: {', '.join(unlisted)}", remedy="list them, or choose an older cpu"
        )


def _ask(question: str, mtriple: str, cpu: str) -> list[str]:
    target = tvm.target.Target({"kind": "llvm", "mtriple": mtriple, "mcpu": cpu})
    return [str(name) for name in tvm.get_global_func(f"target.{question}")(target)]
