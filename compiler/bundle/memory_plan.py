"""Check a plan against the device's memory budget.

In:  the plan without its memory table, the size of the weights, the device's budget and threads.
Out: the plan with its table; UserError naming the setting that would make the recipe fit.
"""

from __future__ import annotations

import dataclasses

from ...runtime.bundle.plan import Bucket, Plan
from ...runtime.engine.memory import phase_table
from ...runtime.errors import UserError


def with_memory(plan: Plan, weights_bytes: int, threads: int, budget_bytes: int, device: str) -> Plan:
    """The plan with its memory table for the largest bucket; UserError when the peak is over the budget."""
    tables = {bucket: phase_table(plan, weights_bytes, threads, bucket) for bucket in plan.buckets}
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
        tokens = Bucket.parse(fitting[-1]).tokens
        return f"train.buckets=[{','.join(fitting)}] scenario.window_tokens={tokens} (needs {_mb(needs_bytes)} MB)"
    return f"device.memory_budget_mb={_mb(needs_bytes)}, or a smaller model, train.rank or train.head_chunk_tokens"
