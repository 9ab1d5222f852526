"""How a trained adapter becomes a version: merged into weights of its own, or mounted beside those that are there.

In:  the bundle's policy, the version that was trained on, the adapter.
Out: Made: the new version, opened, and what the merge did.
fold: a grouped adapter goes into the blocks' minima, nothing is quantized again. exact: tensors with a classic LoRA become Q8_0.
mount: the weights stay as they are and the adapter is computed beside them, so nothing is lost and little is stored.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import __version__, checkpoint
from .adapter_tensors import AdapterTensors
from .bundle import Bundle
from .durable import canonical_json
from .gguf_file import GgufFile
from .gguf_types import tensor_bytes
from .merge import LIFTED_TYPE, UNQUANTIZED_TYPES, MergeReport, check_adapter_fits
from .plan import AdapterPlan
from .version_block import VersionBlock
from .versions import OpenedVersion, Version, VersionStore

Policy = Literal["fold", "exact", "mount"]
STATE_VECTORS = 3
"""of a checkpoint: the adapter and the two moments"""


@dataclass(frozen=True)
class Made:
    """A new version, not judged yet."""

    version: Version
    opened: OpenedVersion
    report: MergeReport | None
    """None when nothing was merged"""


def make_version(store: VersionStore, policy: Policy, on: OpenedVersion, adapter: AdapterTensors, block: VersionBlock, recipe: Mapping[str, Any]) -> Made:
    """Write the version; UserError when the adapter does not fit the weights it was trained on."""
    if policy == "mount":
        check_adapter_fits(on.model, adapter, to_merge=False)
        version, report = store.mount(on.id, adapter, block, recipe), None
    else:
        version, report = store.add(on.model, adapter, block, recipe)
    return Made(version, store.open(version.id), report)


def run_bytes(policy: Policy, model: GgufFile, plan: AdapterPlan) -> int:
    """What a whole run writes at its peak: the version and the checkpoints, of which one more than is kept exists at times."""
    checkpoints = (checkpoint.KEPT + 1) * STATE_VECTORS * 4 * plan.size
    if policy == "mount":
        return checkpoints + 4 * plan.size
    grown = 0
    if policy == "exact":
        for info in (model.tensors[tensor.name[:-2]] for tensor in plan.tensors if tensor.name.endswith(":A")):
            if info.type_name not in UNQUANTIZED_TYPES:
                grown += tensor_bytes(info.shape, LIFTED_TYPE) - info.n_bytes
    return checkpoints + 4 * plan.size + model.size_bytes + max(0, grown)


def new_block(bundle: Bundle, parent: str, data_fingerprint: str, steps: int) -> VersionBlock:
    """The origin of a version that is made now; the store sets its id."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return VersionBlock(
        id="", parent=parent, base_id=bundle.bundle_id, base_sha256=bundle.files["model.gguf"].sha256, data_fingerprint=data_fingerprint,
        steps=steps, recipe_sha256=hashlib.sha256(canonical_json(bundle.recipe)).hexdigest(), created_utc=now,
        tool=f"mobilefinetuner {__version__}",
    )  # fmt: skip
