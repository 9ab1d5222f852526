"""Every kernel template at several sizes, compiled into one library per instruction set and called as the phone calls it.

In:  an instruction set that this machine has.
Out: Trial: `run(name, arrays...)` calls a kernel through runtime.engine.kernel_library and returns all of its arrays.
The sizes are small and awkward: rows that fill no register tile, reductions in several panels, widths of 16, 48 and 64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from mobilefinetuner.compiler.kernels import attention, expressions, gemm, gemv, head, optimizer, rows
from mobilefinetuner.compiler.kernels.block_types import BLOCK_TYPES
from mobilefinetuner.compiler.kernels.isa import AVX2, AVX512, NEON, SSE4, Isa
from mobilefinetuner.compiler.kernels.kernel_set import Argument as TemplateArgument
from mobilefinetuner.compiler.kernels.kernel_set import KernelSet, Template, kernel_name
from mobilefinetuner.compiler.library.build import build_library, target_for, workspace_bytes
from mobilefinetuner.compiler.recipe.cpu_targets import features_of_x86_cpu
from mobilefinetuner.runtime.bundle.cpu_features import read_machine_cpu
from mobilefinetuner.runtime.bundle.plan import Argument, Entry, KernelCall, Operand
from mobilefinetuner.runtime.engine.kernel_library import KernelLibrary, aligned_bytes
from tvm.script import tirx as T

from tests.support.short_stack import on_a_short_stack

SQUARES = 640
X86_ISAS = {"x86-64-v2": SSE4, "x86-64-v3": AVX2, "x86-64-v4": AVX512}

FROZEN = [(kind, size) for kind in BLOCK_TYPES for size in ((7, 64, 96), (16, 32, 64))] + [("Q4_1", (6, 32, 1568)), ("Q8_0", (1, 64, 96))]
FROZEN_T = [(kind, size) for kind in BLOCK_TYPES for size in ((7, 96, 64), (16, 64, 32))] + [("Q4_1", (6, 1568, 32)), ("Q8_0", (1, 96, 64))]
MATVEC = [(kind, (96, 64)) for kind in BLOCK_TYPES] + [("Q4_1", (53, 96))]
GATHER = [(kind, (5, 40, 64)) for kind in BLOCK_TYPES]
MATMUL = [
    (form, size, alpha) for form, size, alpha in (
        ("nt", (7, 4, 64), 1.0), ("nt", (16, 96, 4), 0.25), ("nt", (24, 18, 5), 2.0), ("nn", (7, 4, 96), 0.5), ("nn", (16, 96, 8), 1.0),
        ("nn", (5, 3, 2), -1.0), ("tn", (4, 96, 7), 0.5), ("tn", (96, 4, 16), 1.0), ("tn", (3, 18, 40), 2.0),
    )
]  # fmt: skip
NORMS = [(5, 64, 1e-5), (3, 96, 1e-5), (33, 48, 1e-5), (1, 16, 1e-5), (5, 64, 0.25)]
ROPE = [(2, 5, 3, 16), (1, 4, 2, 48)]
FLAT = [480, 7, 4096]
GROUPS = [(5, 3, 32), (1, 2, 32)]
HEADS = [(5, 2, 3, 16), (2, 1, 4, 48)]
ATTENTION = [(2, 64, 4, 2, 16), (1, 96, 3, 3, 64), (1, 32, 2, 1, 48)]
DECODE = [(64, 4, 2, 16), (32, 3, 1, 48)]
LOSS = [(4, 96), (3, 512), (1, 1000)]
ADAM = [64, 832]
SIZES = {
    rows.rms_norm: NORMS, rows.rms_norm_grad: NORMS,
    rows.add: [(n,) for n in FLAT], rows.swiglu: [(n,) for n in FLAT], rows.swiglu_grad: [(n,) for n in FLAT],
    rows.group_sum: GROUPS, rows.group_spread: GROUPS, rows.sum_heads: HEADS,
    attention.attention: ATTENTION, attention.attention_grad: ATTENTION, attention.decode_attention: DECODE,
    head.softmax_loss: LOSS, head.distill_loss: LOSS,
    optimizer.adamw_step: [(n,) for n in ADAM], optimizer.sum_squares: [(SQUARES,)],
}  # fmt: skip
"""the templates that are made from numbers alone"""
PROBE = 1 << 16


def _probes(isa: Isa) -> dict[str, Template]:
    """Kernels around the scalar formulas, which stand in no kernel by themselves."""
    lanes = isa.lanes

    def unary(formula) -> tvm.tirx.PrimFunc:
        @T.prim_func
        def func(x: T.Buffer((PROBE,), "float32"), y: T.Buffer((PROBE,), "float32")):
            for part in range(PROBE // lanes):
                for lane in T.vectorized(lanes):
                    y[part * lanes + lane] = formula(x[part * lanes + lane])

        return func

    def half() -> tvm.tirx.PrimFunc:
        @T.prim_func
        def func(x: T.Buffer((PROBE, 2), "uint8"), y: T.Buffer((PROBE,), "float32")):
            for i in range(PROBE):
                y[i] = expressions.half_at(lambda at: x[i, at], 0)  # noqa: B023

        return func

    formulas = {name: Template(f"probe_{name}", functools.partial(unary, getattr(expressions, name))) for name in ("exp", "log", "sigmoid")}
    return formulas | {"half": Template("probe_half", half)}


def label(template: Template, *arguments: TemplateArgument, **keywords: TemplateArgument) -> str:
    """A kernel's name in the trial library."""
    return kernel_name(template, template.bound(*arguments, **keywords))


def all_kernels(isa: Isa) -> KernelSet:
    """Every template at the sizes above."""
    kernels = KernelSet(isa)
    for template, cases in ((gemm.frozen_matmul, FROZEN), (gemm.frozen_matmul_t, FROZEN_T), (gemv.frozen_matvec, MATVEC), (gemv.gather_rows, GATHER)):
        for kind, size in cases:
            kernels.named(template, *size, BLOCK_TYPES[kind])
    for form, size, alpha in MATMUL:
        kernels.named(gemm.matmul, form, *size, alpha)
    for size in ROPE:
        for inverse in (False, True):
            kernels.named(rows.rope, *size, inverse)
    for template, sizes in SIZES.items():
        for size in sizes:
            kernels.named(template, *size)
    for template in _probes(isa).values():
        kernels.named(template)
    return kernels


def isas_of_this_machine() -> dict[str, Isa]:
    """What this machine can run: LLVM cpu -> Isa."""
    machine = read_machine_cpu()
    if machine.arch == "aarch64":
        return {"generic": NEON}
    return {cpu: isa for cpu, isa in X86_ISAS.items() if machine.features.issuperset(features_of_x86_cpu(cpu))}


@dataclass(frozen=True)
class Trial:
    """The loaded library."""

    kernels: KernelSet
    library: KernelLibrary

    @classmethod
    def build(cls, cpu: str, folder: Path, made: Callable[[Isa], KernelSet] = all_kernels) -> Trial:
        """made: the kernels for an instruction set."""
        kernels = on_a_short_stack(made, isas_of_this_machine()[cpu])
        arch = read_machine_cpu().arch
        features = features_of_x86_cpu(cpu) if arch == "x86_64" else ("fp", "asimd")
        path = folder / "kernels.so"
        path.write_bytes(build_library(kernels, target_for(arch, f"{arch}-linux-gnu", cpu, features), arch))
        return cls(kernels, KernelLibrary(path, workspace_bytes(kernels), threads=2))

    def run(self, name: str, *inputs: np.ndarray, threads: int = 2, shapes: list | None = None) -> list[np.ndarray]:
        """Call a kernel on copies of `inputs`, and NaN for the arrays that it writes; returns all arrays as they are afterwards.

        shapes: what the kernel is told instead of its own (shape, dtype) pairs.
        """
        parameters = shapes or self.kernels.argument_shapes(name)
        arrays = []
        for index, (shape, dtype) in enumerate(parameters):
            memory = aligned_bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
            memory[...] = inputs[index].reshape(shape) if index < len(inputs) else np.nan if dtype == "float32" else 0
            arrays.append(memory)
        operands = tuple(Operand(str(i), "input", shape, dtype) for i, (shape, dtype) in enumerate(parameters))
        arguments = tuple(Argument(i, 0, o.shape, o.dtype) for i, o in enumerate(operands))
        entry = Entry(name, "", "", operands, arguments, (KernelCall(name, tuple(range(len(operands)))),), 0)
        self.library.set_width(threads)
        self.library.program(entry, {str(i): a.ctypes.data for i, a in enumerate(arrays)}, 0).run()
        return arrays
