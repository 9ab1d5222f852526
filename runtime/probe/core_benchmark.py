"""How fast a block trains on each kind of core and with how many threads.

In:  an opened bundle's plan, library and weights; the machine's clusters; seconds to spend.
Out: Measurements, from which the best number of threads is taken.
More threads can be slower: little cores hold up the others, and a phone's power budget is shared. So it is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..bundle.plan import Entry, Plan, n_bytes
from ..engine.engine import Engine
from ..engine.kernel_library import Program, aligned_bytes
from ..gguf.file import GgufFile
from .machine import Cluster

ENOUGH = 0.97
"""fewer threads are as good when they reach this share of the best speed: they draw less power"""
ENTRY = "block_vjp"


@dataclass(frozen=True)
class Measurement:
    """One block's backward pass on a set of cores, one thread on each."""

    cores: tuple[int, ...]
    calls_per_second: float
    gflops: float
    """arithmetic of the frozen matrix products alone"""


@dataclass(frozen=True)
class Benchmark:
    """What was measured."""

    bucket: str
    clusters: tuple[Measurement, ...]
    """one core of each cluster, in the machine's order"""
    threads: tuple[Measurement, ...]
    """the n fastest cores, n = 1, 2, …"""

    @property
    def best_threads(self) -> int:
        """The smallest number of threads that is practically as fast as the fastest."""
        fastest = max(m.calls_per_second for m in self.threads)
        return next(len(m.cores) for m in self.threads if m.calls_per_second >= ENOUGH * fastest)


def measure_cores(plan: Plan, library: Path, weights: GgufFile, clusters: Sequence[Cluster], seconds: float) -> Benchmark:
    """Measure every cluster and every number of threads, about `seconds` in all; the largest bucket is used."""
    order = [core for cluster in clusters for core in cluster.cores]
    single = [(cluster.cores[0],) for cluster in clusters]
    together = [tuple(order[:n]) for n in range(1, len(order) + 1)]
    bucket, each = plan.buckets[-1], seconds / (len(single) + len(together))
    found = {cores: _measure(plan, library, weights, bucket, cores, each) for cores in dict.fromkeys([*single, *together])}
    return Benchmark(bucket, tuple(found[cores] for cores in single), tuple(found[cores] for cores in together))


def _measure(plan: Plan, library: Path, weights: GgufFile, bucket: str, cores: tuple[int, ...], seconds: float) -> Measurement:
    with _on(cores), Engine(plan, library, weights, len(cores)) as engine:
        entry = plan.entry(ENTRY, bucket, engine.signatures[0])
        program, _memory = _bind(engine, entry, bucket)
        program.run()  # the first call reads the weights from storage and wakes the cores
        rate = _calls_per_second(program.run, seconds)
        return Measurement(cores, rate, rate * _gflop(entry))


def _calls_per_second(call: Callable[[], None], seconds: float) -> float:
    """At least one call; whole calls only."""
    started, calls = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < seconds or not calls:
        call()
        calls += 1
    return calls / elapsed if elapsed else 0.0


def _bind(engine: Engine, entry: Entry, bucket: str) -> tuple[Program, list[np.ndarray]]:
    """The entry of layer 0 with memory of its own for everything that is no weight."""
    rng, memory, addresses = np.random.default_rng(0), [], {}
    shared = {"cos", "sin"}
    for operand in entry.operands:
        if operand.role == "weight" or operand.name in shared:
            continue
        values = aligned_bytes(n_bytes(operand.shape, operand.dtype))
        if operand.dtype == "float32":
            values.view(np.float32)[:] = rng.normal(0, 0.1, values.nbytes // 4)
        memory.append(values)
        addresses[operand.name] = values.ctypes.data
    scratch = aligned_bytes(entry.scratch_bytes)
    programs = engine.block_programs(ENTRY, bucket, [addresses] * engine.plan.model.layers, scratch.ctypes.data)
    return programs[0], [*memory, scratch]


def _gflop(entry: Entry) -> float:
    """10⁹ multiplications and additions of the entry's products with frozen weights, from the shapes of their calls."""
    total = 0
    for call in entry.calls:
        if call.kernel.startswith(("matmul_q", "matmul_t_q")):
            m, n, k = (int(size) for size in call.kernel.rsplit("_", 1)[1].split("x"))
            total += 2 * m * n * k
    return total / 1e9


@contextmanager
def _on(cores: tuple[int, ...]):
    """Keep this thread, and those it makes, on these cores; without such a call the system decides."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
        yield
    finally:
        os.sched_setaffinity(0, before)
