"""How a trained adapter becomes a version: merged into weights of its own, or mounted beside those that are there.

In:  the bundle's policy, the version that was trained on, the adapter, who says whether a merged file is to be taken.
Out: a staged version, filled.
fold: a grouped adapter goes into the blocks' minima, nothing is quantized again. exact: tensors with a classic LoRA go up to the
smallest type that keeps the loss. mount: the weights stay as they are and the adapter is computed beside them. auto: the smallest
file of these that keeps what was learned, and mounted when none does.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from .. import __version__
from ..adapter.tensors import AdapterTensors
from ..bundle.folder import Bundle
from ..bundle.plan import AdapterPlan
from ..engine.tensors import STATE_VECTORS
from ..gguf.file import GgufFile
from ..gguf.types import tensor_bytes
from ..storage import checkpoint
from ..storage.durable import canonical_json
from .merge import REQUANTIZED_TYPES, MergeReport, RequantizedType, merged_types, requantized_type
from .record import OpenedVersion
from .staged import StagedVersion
from .version_block import VersionBlock

Policy = Literal["auto", "fold", "exact", "mount"]


@dataclass(frozen=True)
class MergeTarget:
    """What a merge makes of the adapted tensors."""

    policy: Literal["fold", "exact"]
    requantize_to: RequantizedType
    """exact: the smallest type of an adapted tensor"""

    def __str__(self) -> str:
        return self.policy if self.policy == "fold" else f"exact, {self.requantize_to}"


Accepts = Callable[[GgufFile, "MergeTarget"], bool]
"""Whether this merged file is to be taken: it keeps what the adapter has learned, or the policy leaves no choice."""


def merge_targets(policy: Policy, base: GgufFile, adapter: AdapterTensors, can_measure: bool) -> tuple[MergeTarget, ...]:
    """What is tried, the smallest file first. can_measure: False when nothing is held back to measure with, so only what is safest is left."""
    if policy == "mount":
        return ()
    if adapter.kind == "grouped":
        return (MergeTarget("fold", REQUANTIZED_TYPES[-1]),)
    by_types: dict[tuple[str, ...], RequantizedType] = {
        tuple(merged_types(base, adapter, requantize_to).values()): requantize_to
        for requantize_to in (REQUANTIZED_TYPES if can_measure else REQUANTIZED_TYPES[-1:])
    }
    return tuple(MergeTarget("exact", requantize_to) for requantize_to in by_types.values())


def forced_target(policy: Policy, targets: Sequence[MergeTarget]) -> MergeTarget | None:
    """What is taken even if it keeps too little, under a policy that asks for a merged file: the verdict then says so."""
    return targets[-1] if policy in ("fold", "exact") else None


def merge_or_mount(new: StagedVersion, on: OpenedVersion, targets: Sequence[MergeTarget], accepts: Accepts) -> MergeReport | None:
    """Fill the version with the first merged file that is accepted, else mount; None when it was mounted.

    UserError when the adapter does not fit the weights it was trained on.
    """
    for target in targets:
        report = new.merge(on.model, target.requantize_to)
        if accepts(new.model, target):
            return report
    new.mount(on)
    return None


def run_bytes(policy: Policy, model: GgufFile, plan: AdapterPlan) -> int:
    """What a whole run writes at its peak: the version and the checkpoints, of which one more than is kept exists at times."""
    checkpoints = (checkpoint.KEPT + 1) * len(STATE_VECTORS) * 4 * plan.size
    if policy == "mount":
        return checkpoints + 4 * plan.size
    grown = 0
    if plan.kind == "lora":
        for info in (model.tensors[tensor.name.weight] for tensor in plan.tensors if tensor.name.matrix == "A"):
            grown += tensor_bytes(info.shape, requantized_type(info.type_name, REQUANTIZED_TYPES[-1])) - info.n_bytes
    return checkpoints + 4 * plan.size + model.size_bytes + grown


def new_block(bundle: Bundle, parent: str, data_fingerprint: str, steps: int) -> VersionBlock:
    """The origin of a version that is made now; the store sets its id."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return VersionBlock(
        id="", parent=parent, base_id=bundle.bundle_id, base_sha256=bundle.files["model.gguf"].sha256, data_fingerprint=data_fingerprint,
        steps=steps, recipe_sha256=hashlib.sha256(canonical_json(bundle.recipe)).hexdigest(), created_utc=now,
        tool=f"mobilefinetuner {__version__}",
    )  # fmt: skip
