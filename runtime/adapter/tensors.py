"""A trained adapter as plain matrices: what a merge folds in and what a version keeps.

In:  the A and B of each adapted tensor.
Out: AdapterTensors, its digest, and its two files (adapter.bin: the fp32 matrices; adapter.json: kind, scale, places).
kind "grouped": A [R, K/32], ΔW[n, 32g+j] = scale·(B·A)[n, g]; kind "lora": A [R, K], ΔW = scale·B·A; B is [N, R].
`scale` is the effective one: alpha/rank has been divided out already.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ..bundle.plan import AdapterKind
from ..errors import UserError
from ..gguf.types import BLOCK_ELEMENTS
from ..storage.durable import DurableFile, canonical_json, read_sealed_json, write_sealed_json

MATRIX_NAME, DESCRIPTION_NAME = "adapter.bin", "adapter.json"


@dataclass(frozen=True)
class AdapterTensors:
    """Low-rank updates by the GGUF name of the tensor they belong to."""

    kind: AdapterKind
    scale: float
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """tensor name → (A, B), both f32"""

    def __post_init__(self) -> None:
        if self.kind not in get_args(AdapterKind):
            raise UserError("adapter", f"kind {self.kind!r}", " or ".join(get_args(AdapterKind)))
        if not math.isfinite(self.scale) or self.scale == 0:
            raise UserError("adapter", f"its effective scale is {self.scale}, so it would change nothing", "any finite number but 0")
        if not self.pairs:
            raise UserError("adapter", "has no tensors", remedy="name at least one projection in the recipe's adapter settings")
        for name, (a, b) in self.pairs.items():
            if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1] or not a.shape[0]:
                raise UserError("adapter", f"{name}: A is {a.shape} and B is {b.shape}", "A [rank, columns] and B [rows, rank]")
            if not (np.isfinite(a).all() and np.isfinite(b).all()):
                raise UserError(
                    "adapter", f"{name} holds values that are not finite", remedy="resume from an earlier checkpoint with a smaller learning rate"
                )

    def weight_shape(self, name: str) -> tuple[int, int]:
        """Shape [N, K] of the weight that this pair changes."""
        a, b = self.pairs[name]
        return b.shape[0], a.shape[1] * (BLOCK_ELEMENTS if self.kind == "grouped" else 1)

    @property
    def n_bytes(self) -> int:
        """Of all matrices in fp32."""
        return sum(4 * (a.size + b.size) for a, b in self.pairs.values())

    def _description(self) -> dict[str, Any]:
        tensors, offset = [], 0
        for name in sorted(self.pairs):
            a, b = self.pairs[name]
            tensors.append({"name": name, "a_shape": list(a.shape), "b_shape": list(b.shape), "offset_bytes": offset})
            offset += 4 * (a.size + b.size)
        return {"kind": self.kind, "scale": self.scale, "tensors": tensors, "n_bytes": offset}

    def _matrices(self) -> list[np.ndarray]:
        return [np.ascontiguousarray(matrix, dtype="<f4") for name in sorted(self.pairs) for matrix in self.pairs[name]]

    def digest(self) -> str:
        """sha256 over kind, scale, names, shapes and values."""
        digest = hashlib.sha256(canonical_json(self._description()))
        for matrix in self._matrices():
            digest.update(matrix.data)
        return digest.hexdigest()

    def save(self, directory: Path) -> str:
        """Write adapter.bin and adapter.json; returns the digest."""
        description, digest = self._description(), self.digest()
        with DurableFile(directory / MATRIX_NAME, expected_bytes=description["n_bytes"]) as file:
            for matrix in self._matrices():
                file.write(matrix)
        write_sealed_json(directory / DESCRIPTION_NAME, {**description, "digest": digest})
        return digest

    @classmethod
    def load(cls, directory: Path) -> AdapterTensors:
        """Read the two files back; UserError when they are missing, damaged or do not belong together."""
        path = directory / MATRIX_NAME
        try:
            description = read_sealed_json(directory / DESCRIPTION_NAME)
            values = np.fromfile(path, "<f4")
        except OSError as error:
            raise UserError(str(path), f"the adapter cannot be read ({error.strerror})") from None
        pairs = {}
        for tensor in description["tensors"]:
            (a_rows, a_columns), (b_rows, b_columns) = tensor["a_shape"], tensor["b_shape"]
            start, middle = tensor["offset_bytes"] // 4, tensor["offset_bytes"] // 4 + a_rows * a_columns
            if middle + b_rows * b_columns > values.size:
                raise UserError(str(path), f"is cut short: {values.nbytes} of {description['n_bytes']} bytes")
            pairs[tensor["name"]] = (
                values[start:middle].reshape(a_rows, a_columns),
                values[middle : middle + b_rows * b_columns].reshape(b_rows, b_columns),
            )
        adapter = cls(description["kind"], description["scale"], pairs)
        if adapter.digest() != description["digest"]:
            raise UserError(str(path), "is damaged: its checksum does not match")
        return adapter
