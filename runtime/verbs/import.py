"""mft.pyz import ADAPTER: make a version of a LoRA that another tool trained on the same base."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..adoption import Adopted, adopt
from ..errors import NotPromoted
from ..session import Session

SUMMARY = "merge a LoRA from Hugging Face PEFT or llama.cpp into a new version"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("adapter", type=Path, metavar="ADAPTER", help="a PEFT folder, or a GGUF file of type adapter")


def run(session: Session, options: argparse.Namespace) -> int:
    with session.locked("import"):
        adopted = adopt(session, options.adapter)
    document = {
        "version": adopted.version.id, "promoted": adopted.promoted, "verdict": adopted.judgement.verdict,
        "reasons": list(adopted.judgement.reasons), "bytes": adopted.version.model_bytes,
    }  # fmt: skip
    session.result(document, _page(adopted))
    return 0 if adopted.promoted else NotPromoted.exit_code


def _page(adopted: Adopted) -> str:
    state = "promoted: it is current now" if adopted.promoted else "not promoted: the version before stays current"
    return "\n".join([f"{adopted.version.id} {state} ({adopted.judgement.verdict})", *(f"  {reason}" for reason in adopted.judgement.reasons)])
