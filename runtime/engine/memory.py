"""How much memory each phase needs, from the static plan; and how much this machine has free now.

In:  the plan, the size of the weights, threads and a bucket.
Out: PhaseMemory per phase. The compiler checks it against the device's budget, the runtime against what is free.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence

from ..bundle.plan import Bucket, Phase, PhaseMemory, Plan, scoring_buckets
from ..errors import UserError
from .tensors import TensorSpec, adapter_tensors, decoding_tensors, mounted_tensors, scoring_tensors, training_tensors

FLOOR_BYTES = 56 << 20
"""Python, numpy, tokenizers, the plan and the bound programs (benchmarks/memory_floor.py: 41 MB with a vocabulary of 512), and reading the data"""
VOCABULARY_ENTRY_BYTES = 1312
"""what a token takes in the tokenizer and in the headers of the two models that verification compares; 88 MB in all were measured with
49,152 tokens and one header"""
MERGE_ROWS_BYTES = 16 << 20
"""what a merge holds at once: some rows of one tensor, in fp32"""
MEMINFO, STATUS = "/proc/meminfo", "/proc/self/status"


def floor_bytes(plan: Plan) -> int:
    """What is taken before anything is computed."""
    return FLOOR_BYTES + plan.model.vocab * VOCABULARY_ENTRY_BYTES


def phase_table(plan: Plan, weights_bytes: int, threads: int, bucket: str) -> tuple[PhaseMemory, ...]:
    """The phases' needs when training runs in `bucket`."""
    state = adapter_tensors(plan)
    training = [*state, *training_tensors(plan, bucket)]
    # Verification reads texts and prompts in buckets of every length.
    scoring = [s for bucket in scoring_buckets(plan.buckets) for s in scoring_tensors(plan, bucket)]
    workspaces = plan.workspace_bytes * threads

    def phase(name: Phase, specs: Sequence[TensorSpec], scratch: int) -> PhaseMemory:
        parts = {part: sum(s.n_bytes for s in specs if s.part == part) for part in ("adapter", "optimizer", "activations", "scratch")}
        return PhaseMemory(
            name, weights_bytes, parts["adapter"], parts["optimizer"], parts["activations"], parts["scratch"] + scratch, floor_bytes(plan)
        )

    return (
        phase("load", [], 0),
        phase("forward", [s for s in training if s.part != "optimizer"], workspaces),
        phase("backward", training, workspaces),
        phase("optimizer", training, workspaces),
        phase("merge", [s for s in state if s.part == "adapter"], MERGE_ROWS_BYTES),
        phase("verify", [*mounted_tensors(plan), *scoring, *decoding_tensors(plan)], workspaces),
    )


def peak_bytes(plan: Plan, weights_bytes: int, threads: int, bucket: str) -> int:
    """The largest phase."""
    return max(phase.total for phase in phase_table(plan, weights_bytes, threads, bucket))


def choose_bucket(plan: Plan, weights_bytes: int, threads: int, longest_sample: int, available_bytes: int | None) -> str:
    """The largest training bucket that fits into what is free; UserError when none that holds the longest sample does.

    available_bytes: None where the system does not tell; then the compiled budget has to do.
    """
    holding = [bucket for bucket in plan.buckets if Bucket.parse(bucket).tokens >= longest_sample]
    if not holding:
        longest_row = max(Bucket.parse(bucket).tokens for bucket in plan.buckets)
        raise UserError("data", f"has a sample of {longest_sample} tokens", f"at most {longest_row}", "ingest with this bundle")
    if available_bytes is None:
        return holding[-1]
    needs = {bucket: peak_bytes(plan, weights_bytes, threads, bucket) for bucket in holding}
    fitting = [b for b in holding if needs[b] <= available_bytes]
    if not fitting:
        smallest = holding[0]
        raise UserError(
            "memory", f"{available_bytes / 2**20:,.0f} MB are free", f"{needs[smallest] / 2**20:,.0f} MB for bucket {smallest}",
            "close other programs, or compile a bundle with smaller train.buckets and scenario.window_tokens",
        )  # fmt: skip
    return fitting[-1]


def available_bytes() -> int | None:
    """Memory that can be taken without pushing others out, by the kernel's own estimate; None where it does not say."""
    try:
        with open(MEMINFO, encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def peak_rss_bytes() -> int:
    """The most memory this process ever had resident, mapped weights included.

    The kernel's VmHWM, because getrusage also counts what the parent process had when it started this one.
    """
    if os.path.exists(STATUS):
        with open(STATUS, encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
