"""mft.pyz export OUT: give a version to llama.cpp, Ollama, PocketPal or Hugging Face PEFT."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from ..export import Format, export_version
from ..session import Session

SUMMARY = "write a version for other tools: gguf, peft or gguf-lora"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="a new file, or for peft a new folder")
    parser.add_argument("--format", choices=get_args(Format), default="gguf",
                        help="gguf: the whole model (default); peft: adapter folder for Hugging Face; gguf-lora: for llama.cpp's --lora")  # fmt: skip
    parser.add_argument("--version", metavar="V", help='which version (default: the current one; "base" for the model as it came)')


def run(session: Session, options: argparse.Namespace) -> int:
    with session.locked("export"):
        result = export_version(session, options.version, options.format, options.out)
        session.audit.append("exported", version=result.version, format=result.format, bytes=result.bytes)
    session.result(asdict(result), f"{result.version} as {result.format}: {result.path} ({result.bytes / 1e6:,.1f} MB)")
    return 0
