"""What the code generator is told about a processor, and what /proc/cpuinfo calls the same thing.

In:  the kernel's feature names (avx512f, asimddp, …).
Out: LLVM's names for mcpu and mattr, and the x86-64 level that a set of features amounts to.
Linux, LLVM and Arm each have a name of their own for the same instruction set extension.
"""

from __future__ import annotations

from ...runtime.bundle.cpu_features import X86_EXTRAS, X86_LEVELS, features_of_x86_cpu, x86_level

__all__ = ["ARM_ATTRIBUTES", "CPUS_WITH_SVE", "X86_EXTRAS", "features_of_x86_cpu", "known_features", "llvm_attributes", "x86_level"]

ARM_ATTRIBUTES = {
    "fp": "fp-armv8", "asimd": "neon", "crc32": "crc", "atomics": "lse", "asimdrdm": "rdm", "fphp": "fullfp16",
    "asimdhp": "fullfp16", "asimddp": "dotprod", "asimdfhm": "fp16fml", "lrcpc": "rcpc", "i8mm": "i8mm", "bf16": "bf16",
    "sve": "sve", "sve2": "sve2",
}  # fmt: skip
# LLVM cpu names that imply SVE, which phones' kernels often hide although the chip has it
CPUS_WITH_SVE = (
    "cortex-a510", "cortex-a520", "cortex-a710", "cortex-a715", "cortex-a720", "cortex-a725", "cortex-x2", "cortex-x3", "cortex-x4",
    "cortex-x925", "neoverse-v1", "neoverse-v2", "neoverse-n2", "a64fx",
)  # fmt: skip


def known_features(arch: str) -> tuple[str, ...]:
    """Every feature name that a device profile of this architecture may list."""
    if arch == "aarch64":
        return tuple(ARM_ATTRIBUTES)
    return tuple(name for _, names in X86_LEVELS for name in names) + tuple(X86_EXTRAS)


def llvm_attributes(arch: str, features: tuple[str, ...]) -> tuple[str, ...]:
    """LLVM's mattr ("+dotprod", …) for what the profile lists beyond its cpu; each name once, in order."""
    table = ARM_ATTRIBUTES if arch == "aarch64" else X86_EXTRAS
    return tuple(dict.fromkeys(f"+{table[name]}" for name in features if name in table))
