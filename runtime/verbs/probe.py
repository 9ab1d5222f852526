"""mft.pyz probe: write a device profile of this machine, with the best number of threads measured."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..probe.core_benchmark import Benchmark, measure_cores
from ..probe.machine import Machine, read_machine
from ..probe.profile import device_profile, profile_yaml
from ..session import Session
from ..storage.durable import write_bytes

SUMMARY = "write a device profile of this machine: mft compile device=FILE.yaml"
RUNS_ANY_BUNDLE = True
"""the bundle need not be made for this machine: that is what one probes for"""
SECONDS = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, metavar="FILE.yaml", help="write the profile there instead of printing it")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="how long to measure (default: 10; 0: do not measure)")


def run(session: Session, options: argparse.Namespace) -> int:
    machine = read_machine()
    benchmark = _measure(session, machine, options.seconds)
    profile = profile_yaml(machine, benchmark)
    if options.output:
        if options.output.suffix not in (".yaml", ".yml"):
            raise UserError("--output", f"{str(options.output)!r} does not end in .yaml", "a file name that does, so that mft compile takes it")
        write_bytes(options.output.absolute(), profile.encode())
    document = {"profile": device_profile(machine, benchmark), **_facts(machine, benchmark)}
    session.result(document, f"wrote {options.output}" if options.output else profile.rstrip("\n"))
    return 0


def _measure(session: Session, machine: Machine, seconds: float) -> Benchmark | None:
    if seconds <= 0:
        return None
    try:
        session.bundle.require_machine(machine.cpu)
    except UserError as error:
        session.say(f"note: not measured, because the kernels of this bundle do not run here: {error}")
        return None
    session.say(f"measuring {len(machine.cores)} cores for about {seconds:g} seconds")
    return measure_cores(session.plan, session.bundle.kernel_library(machine.cpu), session.base, machine.clusters, seconds)


def _facts(machine: Machine, benchmark: Benchmark | None) -> dict[str, Any]:
    """Everything beside the profile, for --json."""
    return {
        "clusters": [dataclasses.asdict(cluster) for cluster in machine.clusters],
        "total_bytes": machine.total_bytes,
        "available_bytes": machine.available_bytes,
        "cpu_features": sorted(machine.cpu.features),
        "system": machine.system,
        "sensors": list(machine.sensors),
        "software": dict(machine.software),
        "benchmark": dataclasses.asdict(benchmark) if benchmark else None,
    }
