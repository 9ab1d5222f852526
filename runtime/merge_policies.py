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

from . import __version__
from .adapter_tensors import AdapterTensors
from .bundle import Bundle
from .durable import canonical_json
from .merge import MergeReport, check_adapter_fits
from .version_block import VersionBlock
from .versions import OpenedVersion, Version, VersionStore

Policy = Literal["fold", "exact", "mount"]


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


def new_block(bundle: Bundle, parent: str, data_fingerprint: str, steps: int) -> VersionBlock:
    """The origin of a version that is made now; the store sets its id."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return VersionBlock(
        id="", parent=parent, base_id=bundle.bundle_id, base_sha256=bundle.files["model.gguf"].sha256, data_fingerprint=data_fingerprint,
        steps=steps, recipe_sha256=hashlib.sha256(canonical_json(bundle.recipe)).hexdigest(), created_utc=now,
        tool=f"mobilefinetuner {__version__}",
    )  # fmt: skip
