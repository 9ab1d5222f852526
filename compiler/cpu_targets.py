"""What the code generator is told about a processor, and what /proc/cpuinfo calls the same thing.

In:  the kernel's feature names (avx512f, asimddp, …).
Out: LLVM's names for mcpu and mattr, and the x86-64 level that a set of features amounts to.
Linux, LLVM and Arm each have a name of their own for the same instruction set extension.
"""

from __future__ import annotations

# x86-64 psABI levels, in /proc/cpuinfo spelling: each level includes the ones before it
X86_LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("x86-64-v2", ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")),
    ("x86-64-v3", ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")),
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
)
# /proc/cpuinfo name -> LLVM name, for what kernels can use and no mcpu level implies
X86_EXTRAS = {"avx_vnni": "avxvnni", "avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16"}
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


def llvm_attributes(arch: str, features: tuple[str, ...]) -> tuple[str, ...]:
    """LLVM's mattr ("+dotprod", …) for what the profile lists beyond its cpu; each name once, in order."""
    table = ARM_ATTRIBUTES if arch == "aarch64" else X86_EXTRAS
    return tuple(dict.fromkeys(f"+{table[name]}" for name in features if name in table))
