"""The base weights as a bundle carries them: the user's GGUF with rows that kernels can load.

In:  the source GGUF.
Out: a GGUF with the same tensors and metadata, data aligned to 64 bytes, and room in the header for a version block.
The blocks are copied bit for bit.
"""

from __future__ import annotations

from pathlib import Path

from ..runtime.gguf_file import GgufFile, write_gguf
from ..runtime.version_block import RESERVED_KEY, reserved_field
from .arena import ALIGNMENT


def write_base_model(source: GgufFile, path: Path) -> None:
    """Write the bundle's model.gguf."""
    fields = {**source.fields, RESERVED_KEY: reserved_field()}
    write_gguf(path, fields, [source.source(name) for name in source.tensors], alignment=ALIGNMENT)
