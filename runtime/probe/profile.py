"""Write a device profile for the machine that this runs on.

In:  Machine, and a Benchmark where the bundle's kernels run here.
Out: the profile's keys, and its YAML text with everything else that was found as comments.
`mft compile device=FILE.yaml` takes it as it is; only features that the kernel reports are listed.
"""

from __future__ import annotations

from typing import Any

from ..bundle.cpu_features import X86_EXTRAS, Arch, features_of_x86_cpu, x86_level
from ..errors import UserError
from .core_benchmark import Benchmark
from .machine import Machine

ARM_FEATURES = ("fp", "asimd", "crc32", "atomics", "asimdrdm", "fphp", "asimdhp", "asimddp", "asimdfhm", "lrcpc", "i8mm", "bf16")
"""what kernels may use, in /proc/cpuinfo spelling; SVE is left out: no kernel is written for it"""
ARM_CPUS = (
    ("cortex-a78", (*ARM_FEATURES[:8], "lrcpc", "i8mm", "bf16")),
    ("cortex-a76", (*ARM_FEATURES[:8], "lrcpc")),
)
"""(LLVM cpu, the features it takes for granted), best first; otherwise generic"""
MTRIPLES: dict[Arch, str] = {"aarch64": "aarch64-linux-android", "x86_64": "x86_64-linux-gnu"}
"""the library is the same for glibc, musl and Android; Android's triple keeps to the stricter rules"""
MEMORY_SHARE, FREE_SHARE = 4, 2
"""a process gets a quarter of all memory and half of what is free: more gets it killed on a phone"""
MEMORY_STEP_MB, SMALLEST_MB, LARGEST_MB = 32, 64, 4096
BIG_CORE_SHARE = 0.5
"""without a measurement, cores of at least this share of the largest capacity compute"""


def device_profile(machine: Machine, benchmark: Benchmark | None = None) -> dict[str, Any]:
    """The profile's keys in the order they are written. UserError when there are no kernels for the machine."""
    arch = machine.cpu.arch
    if arch not in MTRIPLES:
        raise UserError("probe", f"this machine is a {arch}", ", ".join(MTRIPLES))
    cpu, features = _cpu_and_features(machine)
    return {
        "name": machine.name,
        "arch": arch,
        "mtriple": MTRIPLES[arch],
        "cpu": cpu,
        "features": features,
        "cores": len(machine.cores),
        "threads": benchmark.best_threads if benchmark else _big_cores(machine),
        "memory_budget_mb": _memory_budget_mb(machine),
    }


def profile_yaml(machine: Machine, benchmark: Benchmark | None = None) -> str:
    """The device profile as a file."""
    values = device_profile(machine, benchmark)
    lines = [f"# {line}".rstrip() for line in _remarks(machine, benchmark)]
    for key, value in values.items():
        text = f"[{', '.join(value)}]" if isinstance(value, list) else f'"{value}"' if key == "name" else str(value)
        lines.append(f"{key}: {text}")
    return "\n".join(lines) + "\n"


def _cpu_and_features(machine: Machine) -> tuple[str, list[str]]:
    has = machine.cpu.features
    if machine.cpu.arch == "x86_64":
        cpu = x86_level(has)
        return cpu, [*features_of_x86_cpu(cpu), *(name for name in X86_EXTRAS if name in has)]
    cpu = next((name for name, implied in ARM_CPUS if has.issuperset(implied)), "generic")
    return cpu, [name for name in ARM_FEATURES if name in has]


def _big_cores(machine: Machine) -> int:
    capacities = {cluster.cores: cluster.capacity or cluster.max_mhz or 0 for cluster in machine.clusters}
    largest = max(capacities.values())
    return sum(len(cores) for cores, capacity in capacities.items() if capacity >= BIG_CORE_SHARE * largest)


def _memory_budget_mb(machine: Machine) -> int:
    known = [size // share for size, share in ((machine.total_bytes, MEMORY_SHARE), (machine.available_bytes, FREE_SHARE)) if size]
    budget_mb = min(known, default=SMALLEST_MB << 20) >> 20
    return max(SMALLEST_MB, min(LARGEST_MB, budget_mb // MEMORY_STEP_MB * MEMORY_STEP_MB))


def _remarks(machine: Machine, benchmark: Benchmark | None) -> list[str]:
    """Everything that is not a key of the profile."""
    lines = [f"Probed on {machine.name} ({machine.system}): mft compile device=THIS_FILE.yaml", ""]
    for number, cluster in enumerate(machine.clusters):
        facts = [cluster.kind or "cores", f"cpu {_ranges(cluster.cores)}"]
        facts += [f"capacity {cluster.capacity}"] if cluster.capacity else []
        facts += [f"up to {cluster.max_mhz} MHz"] if cluster.max_mhz else []
        facts += [f"one core {benchmark.clusters[number].gflops:.2f} GFLOP/s"] if benchmark else []
        lines.append(f"cluster {number}: {', '.join(facts)}")
    if benchmark:
        speeds = ", ".join(f"{len(m.cores)}: {m.gflops:.2f}" for m in benchmark.threads)
        lines.append(f"GFLOP/s by threads (block's backward pass, bucket {benchmark.bucket}): {speeds}")
    else:
        lines.append("threads: not measured; the number of big cores")
    memory = [f"{name} {size >> 20} MB" for name, size in (("total", machine.total_bytes), ("free", machine.available_bytes)) if size]
    lines.append(f"memory: {', '.join(memory) or 'hidden'}; pages of {machine.page_size_kib} KiB")
    lines.append(f"sensors: {', '.join(machine.sensors) or 'none can be read'}")
    lines.append("software: " + ", ".join(f"{name} {version}" for name, version in machine.software.items()))
    return lines


def _ranges(cores: tuple[int, ...]) -> str:
    return f"{cores[0]}-{cores[-1]}" if len(cores) > 1 and cores[-1] - cores[0] == len(cores) - 1 else ",".join(map(str, cores))
