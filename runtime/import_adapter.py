"""Take in an adapter that another tool trained on the same base: merge it, measure it, make it a version.

In:  a session that holds the workspace; a PEFT folder or a llama.cpp LoRA file.
Out: ImportedAdapter: the version and the judgement.
Its base cannot be proved to be ours from the files alone: names and shapes must fit, and the measurement shows the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .adapter.gguf_lora import read_gguf_lora
from .adapter.peft_folder import CONFIG_NAME, read_peft_folder
from .adapter.tensors import AdapterTensors
from .bundle.plan import PROJECTIONS, Plan, block_weight, signature_of
from .errors import UserError
from .gguf.file import GgufFile
from .session import Session
from .verify.verification import Examiner, Judgement, judge
from .verify.versions import decide, gather_tests, heldout_of
from .versions.merge import check_adapter_fits, merged_types
from .versions.merge_policies import new_block
from .versions.record import BASE, Version
from .versions.version_block import IMPORTED


@dataclass(frozen=True)
class ImportedAdapter:
    """What came in."""

    version: Version
    judgement: Judgement
    promoted: bool


def read_adapter(path: Path, base: GgufFile) -> AdapterTensors:
    """Whatever of the two it is."""
    if path.is_dir():
        return read_peft_folder(path, base)
    if path.name == CONFIG_NAME or path.suffix == ".safetensors":
        return read_peft_folder(path.parent, base)
    if path.is_file():
        return read_gguf_lora(path, base)
    raise UserError(str(path), "does not exist", f"a PEFT folder with {CONFIG_NAME}, or a GGUF file of type adapter")


def import_adapter(session: Session, path: Path) -> ImportedAdapter:
    """UserError when the adapter does not fit the base or this bundle has no kernels for the merged weights."""
    adapter = read_adapter(path, session.base)
    check_adapter_fits(session.base, adapter)
    require_kernels(session.plan, session.base, adapter)
    session.say(f"merging a {adapter.kind} adapter of {len(adapter.pairs)} tensors")
    with session.versions.staged(new_block(session.bundle, BASE, IMPORTED, 0), adapter, session.bundle.recipe) as new:
        report = new.merge(session.base)
        version = new.publish()
    session.audit.append("imported", version=version.id, adapter=version.adapter_digest, rounding_loss=report.rounding_loss)
    heldout = heldout_of(session.workspace.cache_dir, IMPORTED)
    tests, notices = gather_tests(session.bundle, session.dialogue, session.plan.model.context_tokens, heldout)
    session.notices(notices)
    examiner = Examiner(session.engines, session.dialogue, tests, session.say)
    judgement = judge(examiner.scores(session.open_version(BASE)), examiner.scores(session.versions.open(version.id)), None)
    return ImportedAdapter(version, judgement, decide(session.versions, session.audit, version, judgement))


def require_kernels(plan: Plan, base: GgufFile, adapter: AdapterTensors) -> None:
    """The bundle can compute with what the merge makes of the weights."""
    types = merged_types(base, adapter)
    for layer in range(plan.model.layers):
        signature = signature_of({name: types[block_weight(layer, name)] for name in PROJECTIONS})
        if signature not in plan.signatures:
            raise UserError("import", f"merging makes layer {layer}'s weights {signature}, for which this bundle has no kernels",
                            ", ".join(plan.signatures), "compile a bundle with train.adapter=lora quantization=exact")  # fmt: skip
