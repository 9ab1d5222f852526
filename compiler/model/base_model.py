"""The base weights as a bundle carries them: the user's GGUF with rows that kernels can load and an adapter can be merged into.

In:  the source GGUF, the recipe.
Out: a GGUF of the same model, data aligned to 64 bytes, room in the header for a version block; and what was converted, with its error.
A tensor whose type serves as it is is copied bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...runtime.bundle.plan import ALIGNMENT, PROJECTIONS
from ...runtime.errors import UserError
from ...runtime.gguf.blocks import FOLDABLE_TYPES
from ...runtime.gguf.file import GgufFile, TensorInfo, TensorSource, write_gguf
from ...runtime.gguf.types import FILE_TYPE_CODES, FILE_TYPE_KEY, Field
from ...runtime.versions.version_block import RESERVED_KEY, reserved_field
from ..kernels.block_types import BLOCK_TYPES
from ..recipe.schema import QuantizationRecipe, TrainRecipe
from .block_conversion import convert, dequantized

NEAREST_FOLDABLE = {"Q4_0": "Q4_1", "Q4_K": "Q4_1"}
"""for a grouped adapter; every other type becomes Q5_1"""
NEAREST_READABLE = {"Q4_K": "Q4_1", "Q5_K": "Q5_1"}
"""of types without kernels; every other one becomes Q8_0"""
CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Conversion:
    """All tensors that went from one type to another."""

    from_type: str
    to_type: str
    tensors: int
    mean_error: float
    """of ‖W' − W‖ ÷ ‖W‖ over the tensors, W as the gguf package dequantizes it"""
    worst_error: float
    worst_tensor: str

    def __str__(self) -> str:
        error = f"relative error {self.mean_error:.1e} on average, {self.worst_error:.1e} at worst ({self.worst_tensor})"
        return f"{self.tensors} tensors from {self.from_type} to {self.to_type}: {error if self.worst_error else 'no value changes'}"


class _Errors:
    """Sums of one tensor while its rows stream by."""

    def __init__(self) -> None:
        self.error_squares = self.squares = 0.0

    def add(self, before: np.ndarray, after: np.ndarray) -> None:
        self.error_squares += float(np.square(after - before, dtype=np.float64).sum())
        self.squares += float(np.square(before, dtype=np.float64).sum())

    @property
    def relative(self) -> float:
        return (self.error_squares / self.squares) ** 0.5 if self.squares else 0.0


def write_base_model(source: GgufFile, path: Path, quantization: QuantizationRecipe, train: TrainRecipe) -> tuple[Conversion, ...]:
    """Write the bundle's model.gguf; UserError names a tensor that cannot be brought to the type it needs."""
    types = {name: wanted_type(info, quantization, train) for name, info in source.tensors.items()}
    errors = {name: _Errors() for name, info in source.tensors.items() if types[name] != info.type_name}
    tensors = [source.source(name) if name not in errors else _converted(source, name, types[name], errors[name]) for name in source.tensors]
    fields = {**source.fields, RESERVED_KEY: reserved_field()}
    if errors and FILE_TYPE_KEY in fields:
        fields[FILE_TYPE_KEY] = Field("u32", FILE_TYPE_CODES[_most_common(source, types)])
    write_gguf(path, fields, tensors, alignment=ALIGNMENT)
    return _summary(source, types, errors)


def wanted_type(info: TensorInfo, quantization: QuantizationRecipe, train: TrainRecipe) -> str:
    """The type of this tensor in the bundle."""
    if len(info.shape) == 1:
        return "F32"
    projection = next((name for name in PROJECTIONS if info.name.endswith(f".{name}.weight")), None)
    if projection and quantization.base != "auto":
        return quantization.base
    folds = train.adapter == "grouped" and quantization.merge != "mount" and projection in train.targets
    if folds and info.type_name not in FOLDABLE_TYPES:
        return NEAREST_FOLDABLE.get(info.type_name, "Q5_1")
    return info.type_name if info.type_name in BLOCK_TYPES else NEAREST_READABLE.get(info.type_name, "Q8_0")


def _converted(source: GgufFile, name: str, to_type: str, errors: _Errors) -> TensorSource:
    """The tensor in its new type, some rows at a time."""
    info = source.tensors[name]
    rows_at_once = max(1, CHUNK_ELEMENTS // info.shape[-1])
    raw = source.data(name).reshape(-1, info.row_bytes)

    def read() -> Iterator[np.ndarray]:
        for start in range(0, len(raw), rows_at_once):
            rows = raw[start : start + rows_at_once]
            try:
                made = np.ascontiguousarray(convert(rows, info.type_name, to_type)).view(np.uint8).reshape(len(rows), -1)
            except (ValueError, NotImplementedError) as error:
                raise UserError(f"{source.path}: {name}", f"is {info.type_name} and cannot become {to_type} ({error})",
                                remedy="use a GGUF of this model in another quantization") from None  # fmt: skip
            errors.add(dequantized(rows, info.type_name), dequantized(made, to_type))
            yield made

    return replace(source.source(name), type_name=to_type, read=read)


def _most_common(source: GgufFile, types: dict[str, str]) -> str:
    """The type of most weights."""
    sizes: dict[str, int] = {}
    for name, type_name in types.items():
        sizes[type_name] = sizes.get(type_name, 0) + int(np.prod(source.tensors[name].shape))
    return max(sizes, key=lambda type_name: sizes[type_name])


def _summary(source: GgufFile, types: dict[str, str], errors: dict[str, _Errors]) -> tuple[Conversion, ...]:
    pairs: dict[tuple[str, str], list[str]] = {}
    for name in errors:
        pairs.setdefault((source.tensors[name].type_name, types[name]), []).append(name)
    return tuple(_conversion(*pair, names, errors) for pair, names in sorted(pairs.items()))


def _conversion(from_type: str, to_type: str, names: Sequence[str], errors: dict[str, _Errors]) -> Conversion:
    found = [errors[name].relative for name in names]
    worst = max(range(len(names)), key=found.__getitem__)
    return Conversion(from_type, to_type, len(names), sum(found) / len(found), found[worst], names[worst])
