"""An adapter as llama.cpp loads it beside a model: a GGUF of type adapter (`llama-cli -m BASE --lora FILE`).

In:  AdapterTensors, or such a file; and the base model.
Out: the file, or AdapterTensors.
Tensors are named NAME.lora_a [R,K] and NAME.lora_b [N,R]; llama.cpp adds alpha/R · B·A. Rows are those of the base GGUF, so
nothing changes places.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import UserError
from ..gguf import blocks
from ..gguf.file import DEFAULT_ALIGNMENT, GgufFile, TensorSource, write_gguf
from ..gguf.types import Field
from .forms import as_grouped, as_lora
from .tensors import AdapterTensors

ALPHA_KEY = "adapter.lora.alpha"
SUFFIXES = (".lora_a", ".lora_b")


def write_gguf_lora(path: Path, adapter: AdapterTensors, base: GgufFile, name: str) -> int:
    """Write the adapter for this base; returns the file's bytes."""
    plain = as_lora(adapter)
    rank = next(iter(plain.pairs.values()))[0].shape[0]
    fields = {
        "general.architecture": base.fields["general.architecture"], "general.type": Field("str", "adapter"),
        "adapter.type": Field("str", "lora"), "general.name": Field("str", name), ALPHA_KEY: Field("f32", rank * plain.scale),
    }  # fmt: skip
    sources = [
        TensorSource(tensor + suffix, matrix.shape, "F32", lambda matrix=matrix: np.ascontiguousarray(matrix, "<f4"))
        for tensor, pair in plain.pairs.items() for suffix, matrix in zip(SUFFIXES, pair)
    ]  # fmt: skip
    return write_gguf(path, fields, sources, alignment=DEFAULT_ALIGNMENT)


def read_gguf_lora(path: Path, base: GgufFile) -> AdapterTensors:
    """The file's LoRA, as a grouped adapter where it is one; UserError for what is not a LoRA of this architecture."""
    file = GgufFile.open(path)
    wanted = {"general.type": "adapter", "adapter.type": "lora", "general.architecture": base.metadata.get("general.architecture")}
    for key, value in wanted.items():
        if file.metadata.get(key) != value:
            raise UserError(str(path), f"{key} is {file.metadata.get(key)!r}", repr(value), "name a LoRA made for this base model")
    alpha = file.metadata.get(ALPHA_KEY)
    if not isinstance(alpha, float):
        raise UserError(str(path), f"{ALPHA_KEY} is {alpha!r}", "a number")
    pairs = {}
    for name in (name.removesuffix(SUFFIXES[0]) for name in file.tensors if name.endswith(SUFFIXES[0])):
        pairs[name] = tuple(_matrix(file, name + suffix) for suffix in SUFFIXES)
    if len(pairs) * 2 != len(file.tensors):
        odd = next(name for name in file.tensors if name.removesuffix(".lora_a").removesuffix(".lora_b") not in pairs)
        raise UserError(str(path), f"the tensor {odd!r} is not understood", "pairs of .lora_a and .lora_b")
    if not pairs:
        raise UserError(str(path), "has no tensors", "pairs of .lora_a and .lora_b")
    rank = max(a.shape[0] for a, _ in pairs.values())
    # llama.cpp divides alpha by each pair's own rank, and takes an alpha of 0 as a scale of 1.
    scaled = {name: (a, b if a.shape[0] == rank or not alpha else np.float32(rank / a.shape[0]) * b) for name, (a, b) in pairs.items()}
    adapter = AdapterTensors("lora", alpha / rank if alpha else 1.0, scaled)
    return as_grouped(adapter) or adapter


def _matrix(file: GgufFile, name: str) -> np.ndarray:
    info = file.tensor(name)
    if info.type_name not in blocks.DEQUANTIZABLE_TYPES or len(info.shape) != 2:
        raise UserError(str(file.path), f"{name} is {info.type_name} of shape {info.shape}", f"a matrix of {', '.join(blocks.DEQUANTIZABLE_TYPES)}")
    return blocks.dequantize(file.data(name).reshape(info.shape[0], -1), info.type_name)
