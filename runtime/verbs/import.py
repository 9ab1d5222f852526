"""mft.pyz import ADAPTER: make a version of a LoRA that another tool trained on the same base."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import NotPromoted
from ..import_adapter import ImportedAdapter, import_adapter
from ..session import Session

SUMMARY = "merge a LoRA from Hugging Face PEFT or llama.cpp into a new version"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("adapter", type=Path, metavar="ADAPTER", help="a PEFT folder, or a GGUF file of type adapter")


def run(session: Session, options: argparse.Namespace) -> int:
    with session.locked("import"):
        imported = import_adapter(session, options.adapter)
    document = {
        "version": imported.version.id, "promoted": imported.promoted, "verdict": imported.judgement.verdict,
        "reasons": list(imported.judgement.reasons), "bytes": imported.version.model_bytes,
    }  # fmt: skip
    session.result(document, _page(imported))
    return 0 if imported.promoted else NotPromoted.exit_code


def _page(imported: ImportedAdapter) -> str:
    state = "promoted: it is current now" if imported.promoted else "not promoted: the version before stays current"
    return "\n".join([f"{imported.version.id} {state} ({imported.judgement.verdict})", *(f"  {reason}" for reason in imported.judgement.reasons)])
