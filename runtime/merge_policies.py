"""How a trained adapter becomes a version: merged into weights of its own, or mounted beside those that are there.

In:  the bundle's policy, the version that was trained on, the adapter, who says whether a merged file keeps what was learned.
Out: Made: the new version, opened, and what the merge did.
fold: a grouped adapter goes into the blocks' minima, nothing is quantized again. exact: tensors with a classic LoRA go up to the
smallest type that keeps the loss. mount: the weights stay as they are and the adapter is computed beside them. auto: the smallest
file of these that keeps what was learned, and mounted when none does.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from . import __version__, checkpoint
from .adapter_tensors import AdapterTensors
from .bundle import Bundle
from .durable import canonical_json, remove
from .gguf_file import GgufFile
from .gguf_types import tensor_bytes
from .merge import LIFT_TYPES, MergeReport, check_adapter_fits, lifted, merge_version, merged_types
from .plan import AdapterPlan
from .version_block import VersionBlock
from .versions import OpenedVersion, Version, VersionStore

Policy = Literal["auto", "fold", "exact", "mount"]
STATE_VECTORS = 3
"""of a checkpoint: the adapter and the two moments"""


@dataclass(frozen=True)
class Way:
    """One way of merging."""

    policy: Literal["fold", "exact"]
    lift_to: str
    """exact: the smallest type of an adapted tensor"""

    def __str__(self) -> str:
        return self.policy if self.policy == "fold" else f"exact, {self.lift_to}"


Keeps = Callable[[GgufFile, Way], bool]
"""Whether this merged file keeps what the adapter has learned."""


@dataclass(frozen=True)
class Made:
    """A new version, not judged yet."""

    version: Version
    opened: OpenedVersion
    way: str
    """as the user reads it"""
    report: MergeReport | None
    """None when nothing was merged"""


class _NothingKept(Exception):
    """No merged file keeps what was learned."""


def merge_ways(policy: Policy, base: GgufFile, adapter: AdapterTensors, can_measure: bool) -> tuple[Way, ...]:
    """What is tried, the smallest file first. can_measure: False when nothing is held back to measure with, so only what is safest is left."""
    if policy == "mount":
        return ()
    if adapter.kind == "grouped":
        return (Way("fold", LIFT_TYPES[-1]),)
    by_types = {tuple(merged_types(base, adapter, lift_to).values()): lift_to for lift_to in (LIFT_TYPES if can_measure else LIFT_TYPES[-1:])}
    return tuple(Way("exact", lift_to) for lift_to in by_types.values())


def make_version(
    store: VersionStore, policy: Policy, ways: tuple[Way, ...], keeps: Keeps,
    on: OpenedVersion, adapter: AdapterTensors, block: VersionBlock, recipe: Mapping[str, Any],
) -> Made:  # fmt: skip
    """Write the version; UserError when the adapter does not fit the weights it was trained on.

    Under a policy that asks for a merge, the last way is taken even if it keeps too little: the verdict then says so.
    """
    taken: list[Way] = []

    def merge(base: GgufFile, adapter: AdapterTensors, block: VersionBlock, out: Path) -> MergeReport:
        for way in ways:
            taken[:] = [way]
            report = merge_version(base, adapter, block, out, way.lift_to)
            if keeps(GgufFile.open(out), way) or (policy != "auto" and way is ways[-1]):
                return report
            remove(out)
        raise _NothingKept

    try:
        if ways:
            version, report = store.add(on.model, adapter, block, recipe, merge)
            return Made(version, store.open(version.id), str(taken[0]), report)
    except _NothingKept:
        pass  # mounted, below; `keeps` has said why
    check_adapter_fits(on.model, adapter, to_merge=False)
    version = store.mount(on.id, adapter, block, recipe)
    return Made(version, store.open(version.id), "mount", None)


def run_bytes(policy: Policy, model: GgufFile, plan: AdapterPlan) -> int:
    """What a whole run writes at its peak: the version and the checkpoints, of which one more than is kept exists at times."""
    checkpoints = (checkpoint.KEPT + 1) * STATE_VECTORS * 4 * plan.size
    if policy == "mount":
        return checkpoints + 4 * plan.size
    grown = 0
    if plan.kind == "lora":
        for info in (model.tensors[tensor.name[:-2]] for tensor in plan.tensors if tensor.name.endswith(":A")):
            grown += tensor_bytes(info.shape, lifted(info.type_name, LIFT_TYPES[-1])) - info.n_bytes
    return checkpoints + 4 * plan.size + model.size_bytes + grown


def new_block(bundle: Bundle, parent: str, data_fingerprint: str, steps: int) -> VersionBlock:
    """The origin of a version that is made now; the store sets its id."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return VersionBlock(
        id="", parent=parent, base_id=bundle.bundle_id, base_sha256=bundle.files["model.gguf"].sha256, data_fingerprint=data_fingerprint,
        steps=steps, recipe_sha256=hashlib.sha256(canonical_json(bundle.recipe)).hexdigest(), created_utc=now,
        tool=f"mobilefinetuner {__version__}",
    )  # fmt: skip
