"""A model ready to compute: kernel library, plan and mapped weights, and how entries are bound to them.

In:  plan, kernels.so, a GGUF file (the base or a version), and an adapter when one is to be mounted beside the weights.
Out: Engine, from which TrainStep, Scorer and Decoder get their programs.
Weights are bound where they lie in the mapped file: nothing is copied, and the pages stay clean.
"""

# Shapes: T tokens · d head width

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..adapter.flat_vector import load_into
from ..adapter.tensors import AdapterTensors
from ..bundle.plan import ALIGNMENT, MOUNTED, PROJECTIONS, Entry, Plan, block_weight, signature_of
from ..errors import UserError
from ..gguf.file import GgufFile
from .kernel_library import KernelLibrary, Program
from .tensors import TensorMemory, mounted_tensors

BLOCK_NORMS = ("attn_norm", "ffn_norm")


class Engine:
    """One loaded model. Only one may be open in a process, because the library's thread pool is one."""

    def __init__(self, plan: Plan, library: Path, weights: GgufFile, threads: int, adapter: AdapterTensors | None = None) -> None:
        self.plan, self.weights = plan, weights
        self.mounted: TensorMemory | None = None
        if adapter is not None:
            self.mounted = TensorMemory(mounted_tensors(plan))
            load_into(plan.adapter, self.mounted["parameters"], adapter)
        self.signatures = [self._signature(layer) for layer in range(plan.model.layers)]
        self.cos, self.sin = rope_tables(plan.model.context_tokens, plan.model.head_dim, plan.model.rope_base)
        self._blocks = [self._block_addresses(layer) for layer in range(plan.model.layers)]
        self._shared = {
            "token_embd": self._address("token_embd.weight"),
            "output": self._address(plan.model.output_tensor),
            "output_norm": self._address("output_norm.weight"),
            "cos": self.cos.ctypes.data,
            "sin": self.sin.ctypes.data,
        }
        # Last, so that weights that are refused leave no library open behind them.
        self.library = KernelLibrary(library, plan.workspace_bytes, threads)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the threads and let go of the weights' pages; programs of this engine must not run any more."""
        self.library.close()
        self.weights.release_pages()

    def _signature(self, layer: int) -> str:
        signature = signature_of({name: self.weights.tensor(block_weight(layer, name)).type_name for name in PROJECTIONS})
        if signature not in self.plan.signatures:
            raise UserError(
                str(self.weights.path), f"layer {layer} has weights of types {signature}, for which this bundle has no kernels",
                ", ".join(self.plan.signatures), "compile a bundle for this model",
            )  # fmt: skip
        return signature

    def _address(self, tensor: str) -> int:
        address = self.weights.data(tensor).ctypes.data
        if address % ALIGNMENT:
            raise UserError(
                str(self.weights.path), f"tensor {tensor} is not aligned to {ALIGNMENT} bytes", f"general.alignment = {ALIGNMENT}",
                "use the model.gguf of the bundle or a version made from it",
            )  # fmt: skip
        return address

    def _block_addresses(self, layer: int) -> dict[str, int]:
        return {name: self._address(block_weight(layer, name)) for name in (*PROJECTIONS, *BLOCK_NORMS)}

    def program(self, entry: Entry, operands: Mapping[str, int], scratch: int) -> Program:
        """An entry that is the same for all layers."""
        return self.library.program(entry, {**self._shared, **operands}, scratch)

    def block_programs(self, name: str, bucket: str, operands: Sequence[Mapping[str, int]], scratch: int) -> list[Program]:
        """Entry `name` once per layer; operands[layer] are the addresses of all that is not a weight."""
        return [
            self.library.program(self._block_entry(name, bucket, layer), {**self._shared, **self._blocks[layer], **operands[layer]}, scratch)
            for layer in range(self.plan.model.layers)
        ]

    def _block_entry(self, name: str, bucket: str, layer: int) -> Entry:
        signature = self.signatures[layer]
        try:
            return self.plan.entry(name, bucket, signature)
        except KeyError:
            raise UserError(
                str(self.weights.path), f"layer {layer} has weights of types {signature}, which this bundle can run but not train",
                remedy="train from base or from a version that was folded",
            ) from None  # fmt: skip

    def inference_programs(self, name: str, bucket: str, operands: Sequence[Mapping[str, int]], scratch: int) -> list[Program]:
        """block_programs of an inference entry; with the mounted adapter where there is one."""
        if self.mounted is None:
            return self.block_programs(name, bucket, operands, scratch)
        bound = [{**own, **self.adapter_addresses(layer, self.mounted, "parameters")} for layer, own in enumerate(operands)]
        return self.block_programs(name + MOUNTED, bucket, bound, scratch)

    def adapter_addresses(self, layer: int, memory: TensorMemory, vector: str, prefix: str = "") -> dict[str, int]:
        """Addresses of a layer's adapter matrices inside the flat vector `vector` of the memory, by operand name."""
        base = memory.address(vector)
        return {f"{prefix}{t.name.operand}": base + 4 * t.offset for t in self.plan.adapter.tensors if t.name.layer == layer}


@dataclass(frozen=True)
class EngineSource:
    """What every engine of one bundle on one machine has in common."""

    plan: Plan
    library: Path
    """kernels that this machine can run"""
    threads: int
    """compute threads"""

    def open(self, weights: GgufFile, adapter: AdapterTensors | None = None) -> Engine:
        """These weights, ready to compute; with the adapter mounted beside them when there is one."""
        return Engine(self.plan, self.library, weights, self.threads, adapter)


def rope_tables(tokens: int, head_dim: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of position / base^(2i/d) for every position; angles in fp32, as transformers computes them

    →  cos, sin [T,d/2] f32
    """
    inverse = (1.0 / np.float32(base) ** (np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim))).astype(np.float32)
    angles = (np.arange(tokens, dtype=np.float32)[:, None] * inverse[None, :]).astype(np.float32)
    return _aligned(np.cos(angles)), _aligned(np.sin(angles))


def _aligned(values: np.ndarray) -> np.ndarray:
    from .kernel_library import aligned_bytes

    out = aligned_bytes(values.nbytes).view(np.float32).reshape(values.shape)
    out[:] = values
    return out
