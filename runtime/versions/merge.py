"""Put a trained adapter into the weights and write the new version's GGUF.

In:  the base (or the version that was trained from), the adapter's matrices, the version block.
Out: a new GGUF and a MergeReport.
grouped: ΔW is constant inside a block of 32, so it is added to the block's fp16 minimum and no quantized value changes;
the file keeps its size. lora: the tensor is dequantized, ΔW added in fp32, and the sum quantized to a type of REQUANTIZED_TYPES,
whose rounding may erase what was learned: whoever calls measures. A few rows are in memory at a time.
"""

# Shapes: N rows · K row elements · G = K/32 blocks a row · R adapter rank · n rows of one chunk
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from ..adapter.tensors import AdapterTensors
from ..errors import UserError
from ..gguf import blocks
from ..gguf.file import GgufFile, TensorSource, encode_header, gguf_size_bytes, tensor_pieces
from ..gguf.types import FILE_TYPE_CODES, FILE_TYPE_KEY, TENSOR_TYPES, Field
from ..storage.durable import DurableFile
from .version_block import VersionBlock, fields_with_block

RequantizedType = Literal["Q4_1", "Q5_1", "Q8_0"]
REQUANTIZED_TYPES: tuple[RequantizedType, ...] = get_args(RequantizedType)
"""what a classic LoRA's tensors can become, smallest first"""
REQUANTIZE_CHUNK_BYTES = 1 << 18
"""of stored rows; dequantized, with the update and the sum, they take some forty times as much"""
UNQUANTIZED_TYPES = ("F32", "F16")
"""adapted tensors of these types stay what they are"""


@dataclass(frozen=True)
class MergeReport:
    """What the merge did and what rounding took away of it."""

    size_bytes: int
    base_bytes: int
    tensors_by_type: Mapping[str, int]
    """of the new file"""
    adapted_tensors: int
    values: int
    """fp16 minima (grouped) or weights (lora) that the adapter addresses"""
    values_moved: int
    """of them, those whose stored value differs from before"""
    rounding_loss: float
    """‖what rounding added‖ ÷ ‖ΔW‖: 0 is a perfect merge, 1 means the update is as small as the noise"""
    adapter_digest: str
    payload_sha256: str
    sha256: str
    """of the whole file"""


@dataclass
class _Tally:
    """Sums over all adapted tensors while they stream by."""

    values: int = 0
    moved: int = 0
    update_squares: float = 0.0
    error_squares: float = 0.0

    def add(self, moved: np.ndarray, update: np.ndarray, error: np.ndarray) -> None:
        self.values += moved.size
        self.moved += int(moved.sum())
        self.update_squares += float(np.square(update, dtype=np.float64).sum())
        self.error_squares += float(np.square(error, dtype=np.float64).sum())


def merge_version(
    base: GgufFile,
    adapter: AdapterTensors,
    block: VersionBlock,
    out: Path | str | os.PathLike[str],
    requantize_to: RequantizedType = REQUANTIZED_TYPES[-1],
) -> MergeReport:
    """Write `out`; UserError when the adapter does not fit the base, changes nothing, or the storage refuses.

    requantize_to: the type of REQUANTIZED_TYPES that a lora adapter's tensors become where they are smaller.
    """
    check_adapter_fits(base, adapter)
    tally = _Tally()
    tensors = [_merged_source(base, name, adapter, type_name, tally) for name, type_name in merged_types(base, adapter, requantize_to).items()]
    requantized = any(tensor.type_name != base.tensors[tensor.name].type_name for tensor in tensors)
    block = replace(
        block,
        adapter_kind=adapter.kind,
        adapter_scale=adapter.scale,
        adapter_digest=adapter.digest(),
        policy="fold" if adapter.kind == "grouped" else "exact",
    )
    changed = {FILE_TYPE_KEY: Field("u32", FILE_TYPE_CODES[requantize_to])} if requantized and FILE_TYPE_KEY in base.fields else {}
    fields = fields_with_block(base, changed, block, tensors)
    head_bytes = len(encode_header(fields, tensors, base.alignment))
    with DurableFile(out, gguf_size_bytes(fields, tensors, base.alignment), head_bytes) as file:
        for piece in tensor_pieces(tensors, base.alignment):
            file.write(piece)
        if not tally.moved:
            raise UserError("adapter", "changes no stored value of the model", remedy="train for more steps or with a larger learning rate")
        block = replace(block, payload_sha256=file.tail_sha256())
        file.write_head(encode_header({**fields, **block.as_fields()}, tensors, base.alignment))
    return MergeReport(
        size_bytes=file.size_bytes,
        base_bytes=base.size_bytes,
        tensors_by_type=dict(Counter(tensor.type_name for tensor in tensors)),
        adapted_tensors=len(adapter.pairs),
        values=tally.values,
        values_moved=tally.moved,
        rounding_loss=(tally.error_squares / tally.update_squares) ** 0.5,
        adapter_digest=block.adapter_digest,
        payload_sha256=block.payload_sha256,
        sha256=file.sha256,
    )


def check_adapter_fits(base: GgufFile, adapter: AdapterTensors, to_merge: bool = True) -> None:
    """Every tensor of the adapter is in the base and has its shape; to be merged, also a type that can take the update."""
    allowed = blocks.FOLDABLE_TYPES if adapter.kind == "grouped" else blocks.DEQUANTIZABLE_TYPES
    for name in adapter.pairs:
        if name not in base.tensors:
            raise UserError("adapter", f"it changes {name!r}, which {base.path.name} does not have", remedy="use the base it was trained on")
        info = base.tensors[name]
        if info.shape != adapter.weight_shape(name):
            raise UserError(
                "adapter",
                f"{name} is {adapter.weight_shape(name)} there and {info.shape} in {base.path.name}",
                remedy="use the base it was trained on",
            )
        if to_merge and info.type_name not in allowed:
            raise UserError(
                str(base.path),
                f"{name} is {info.type_name}, into which a {adapter.kind} adapter cannot be merged",
                ", ".join(allowed),
                "compile the bundle again: the compiler brings a base to a foldable type",
            )


def merged_types(base: GgufFile, adapter: AdapterTensors, requantize_to: RequantizedType = REQUANTIZED_TYPES[-1]) -> dict[str, str]:
    """GGUF type of every tensor of the file that merge_version would write."""
    types = {name: info.type_name for name, info in base.tensors.items()}
    if adapter.kind == "lora":
        types |= {name: requantized_type(types[name], requantize_to) for name in adapter.pairs}
    return types


def requantized_type(type_name: str, requantize_to: RequantizedType) -> str:
    """What a merge makes of an adapted tensor: the larger of the two types; unquantized tensors stay what they are."""
    if type_name in UNQUANTIZED_TYPES or TENSOR_TYPES[type_name].block_bytes > TENSOR_TYPES[requantize_to].block_bytes:
        return type_name
    return requantize_to


def _merged_source(base: GgufFile, name: str, adapter: AdapterTensors, type_name: str, tally: _Tally) -> TensorSource:
    source = base.source(name)
    if name not in adapter.pairs:
        return source
    if adapter.kind == "grouped":
        return replace(source, read=lambda: _folded_rows(base, name, adapter, tally))
    return replace(source, type_name=type_name, read=lambda: _lifted_rows(base, name, adapter, type_name, tally))


def _folded_rows(base: GgufFile, name: str, adapter: AdapterTensors, tally: _Tally) -> Iterator[np.ndarray]:
    """m' = fp16(m + scale·(B·A)[n, g]) in each block; [n, row bytes] u8 at a time.

    The sum is formed in fp64, so that every machine rounds to the same fp16.
    """
    a, b = (matrix.astype(np.float64) for matrix in adapter.pairs[name])  # A [R,G] · B [N,R]
    start = 0
    for rows in base.row_chunks(name):
        update = adapter.scale * (b[start : start + len(rows)] @ a)  # [n,G]
        minima = blocks.minima(rows, base.tensors[name].type_name)
        before = minima.copy()
        minima[...] = _to_half(before + update, name)
        tally.add(minima != before, update, minima.astype(np.float64) - before - update)
        start += len(rows)
        yield rows


def _to_half(values: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    if not np.isfinite(halves).all():
        raise UserError("adapter", f"its update of {name} is too large for a 16-bit number", remedy="train with a smaller learning rate")
    return halves


def _lifted_rows(base: GgufFile, name: str, adapter: AdapterTensors, type_name: str, tally: _Tally) -> Iterator[np.ndarray]:
    """quantize(dequantize(W) + scale·B·A) in fp32; [n, row bytes] u8 at a time."""
    a, b = adapter.pairs[name]  # A [R,K] · B [N,R]
    start = 0
    for rows in base.row_chunks(name, REQUANTIZE_CHUNK_BYTES):
        update = np.float32(adapter.scale) * (b[start : start + len(rows)] @ a)  # [n,K]
        before = blocks.dequantize(rows, base.tensors[name].type_name)
        wanted = before + update
        if not np.isfinite(wanted).all():
            raise UserError("adapter", f"its update of {name} is not finite", remedy="train with a smaller learning rate")
        merged = blocks.quantize(wanted, type_name)
        stored = blocks.dequantize(merged, type_name)
        if not np.isfinite(stored).all():
            raise UserError("adapter", f"its update of {name} is too large for {type_name}", remedy="train with a smaller learning rate")
        tally.add((update != 0) & (stored != before), update, stored - wanted)
        start += len(rows)
        yield merged
