"""The base model, ready to answer on the machine that compiles, whatever device the bundle is for.

In:  a GGUF whose weights have kernels.
Out: an opened runtime Engine over a small kernel library of its own: reading a prompt and decoding, nothing that trains.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...runtime.bundle.plan import PLAN_FORMAT, AdapterPlan, ModelPlan, Plan
from ...runtime.engine.engine import Engine
from ...runtime.engine.kernel_library import usable_cores
from ...runtime.gguf.file import GgufFile
from ..kernels.isa import isa_for
from ..kernels.kernel_set import KernelSet
from ..library.build import build_library, target_for, workspace_bytes
from ..lowering.entries import base_signatures, inference_entries
from ..model.shape import ModelShape, read_shape
from ..recipe.host_machine import machine_fact

NO_ADAPTER = AdapterPlan("grouped", 1, 1.0, 64, ())


@contextlib.contextmanager
def host_engine(model: GgufFile, bucket: str, context_tokens: int) -> Iterator[Engine]:
    """bucket: what prompts are read in; a longer prompt is read on token by token."""
    arch, mtriple, cpu, features = (machine_fact(name) for name in ("arch", "mtriple", "cpu", "features"))
    kernels = KernelSet(isa_for(arch, tuple(features)))
    plan = _plan(read_shape(model), bucket, context_tokens, kernels)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        library.write_bytes(build_library(kernels, target_for(arch, mtriple, cpu, tuple(features)), arch))
        with Engine(plan, library, model, usable_cores()) as engine:
            yield engine


def _plan(shape: ModelShape, bucket: str, context_tokens: int, kernels: KernelSet) -> Plan:
    entries = inference_entries(shape, bucket, context_tokens, kernels)
    sizes = ModelPlan(
        shape.layers, shape.d_model, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn, shape.vocab, shape.rope_base, context_tokens,
        1, shape.tensor_types["token_embd.weight"], shape.head_tensor,
    )  # fmt: skip
    return Plan(PLAN_FORMAT, sizes, NO_ADAPTER, (bucket,), base_signatures(shape), workspace_bytes(kernels), entries, ())
