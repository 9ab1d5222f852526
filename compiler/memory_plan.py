"""How much memory each phase needs, from the static plan, and whether the device has it.

In:  the plan without its memory table, the size of the weights, the device's budget and threads.
Out: PhaseMemory per phase; UserError naming the setting that would make the recipe fit.
"""

from __future__ import annotations

import dataclasses

from ..runtime.errors import UserError
from ..runtime.plan import PhaseMemory, Plan, parse_bucket
from ..runtime.step_memory import TensorSpec, adapter_tensors, decoding_tensors, scoring_tensors, training_tensors

FLOOR_BYTES = 64 << 20
"""Python, numpy, the tokenizer with its vocabulary and the bound programs; measured by benchmarks/memory_floor.py"""
MERGE_ROWS_BYTES = 16 << 20
"""what a merge holds at once: some rows of one tensor, in fp32"""


def plan_memory(plan: Plan, weights_bytes: int, threads: int, bucket: str) -> tuple[PhaseMemory, ...]:
    """The phases' needs when training runs in `bucket`."""
    state = adapter_tensors(plan)
    training = [*state, *training_tensors(plan, bucket)]
    scoring = scoring_tensors(plan, f"1x{parse_bucket(bucket)[1]}")
    workspaces = plan.workspace_bytes * threads

    def phase(name: str, specs: list[TensorSpec], scratch: int) -> PhaseMemory:
        parts = {part: sum(s.n_bytes for s in specs if s.part == part) for part in ("adapter", "optimizer", "activations", "scratch")}
        return PhaseMemory(
            name, weights_bytes, parts["adapter"], parts["optimizer"], parts["activations"], parts["scratch"] + scratch, FLOOR_BYTES
        )

    return (
        phase("load", [], 0),
        phase("forward", [s for s in training if s.part != "optimizer"], workspaces),
        phase("backward", training, workspaces),
        phase("optimizer", training, workspaces),
        phase("merge", [s for s in state if s.part == "adapter"], MERGE_ROWS_BYTES),
        phase("verify", [*scoring, *decoding_tensors(plan)], workspaces),
    )


def with_memory(plan: Plan, weights_bytes: int, threads: int, budget_bytes: int, device: str) -> Plan:
    """The plan with its memory table for the largest bucket; UserError when the peak is over the budget."""
    tables = {bucket: plan_memory(plan, weights_bytes, threads, bucket) for bucket in plan.buckets}
    peaks = {bucket: max(tables[bucket], key=lambda phase: phase.total) for bucket in plan.buckets}
    largest = plan.buckets[-1]
    peak = peaks[largest]
    if peak.total <= budget_bytes:
        return dataclasses.replace(plan, memory=tables[largest])
    fitting = [bucket for bucket in plan.buckets if peaks[bucket].total <= budget_bytes]
    raise UserError(
        f"device={device}: memory_budget_mb={budget_bytes >> 20}",
        f"the plan needs {_mb(peak.total)} MB (peak: {peak.phase}, bucket {largest}; weights {_mb(peak.weights)}, "
        f"activations {_mb(peak.activations)}, scratch {_mb(peak.scratch)} MB)",
        f"at least {_mb(peak.total)} MB" if not fitting else "",
        _remedy(plan, fitting, peaks[fitting[-1]].total if fitting else peak.total),
    )


def _mb(n_bytes: int) -> int:
    return -(-n_bytes // (1 << 20))


def _remedy(plan: Plan, fitting: list[str], needs_bytes: int) -> str:
    if fitting:
        tokens = parse_bucket(fitting[-1])[1]
        return f"train.buckets=[{','.join(fitting)}] scenario.window_tokens={tokens} (needs {_mb(needs_bytes)} MB)"
    return f"device.memory_budget_mb={_mb(needs_bytes)}, or a smaller model, train.rank or train.head_chunk_tokens"
