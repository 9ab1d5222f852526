"""Every kernel template at several sizes, compiled into one library per instruction set and called as the phone calls it.

In:  an instruction set that this machine has.
Out: Trial: `run(name, arrays...)` calls a kernel through runtime.engine.kernel_library and returns all of its arrays.
The sizes are small and awkward: rows that fill no register tile, reductions in several panels, widths of 16, 48 and 64.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from mobilefinetuner.compiler.kernels import attention, expressions, gemm, gemv, head, optimizer, rows
from mobilefinetuner.compiler.kernels.block_types import BLOCK_TYPES
from mobilefinetuner.compiler.kernels.isa import AVX2, AVX512, NEON, SSE4, Isa
from mobilefinetuner.compiler.kernels.tile import named
from mobilefinetuner.compiler.library.build import build_library, target_for, workspace_bytes
from mobilefinetuner.compiler.lowering.kernel_table import KernelSet
from mobilefinetuner.compiler.recipe.cpu_targets import features_of_x86_cpu
from mobilefinetuner.runtime.bundle.cpu_features import read_machine_cpu
from mobilefinetuner.runtime.bundle.plan import Argument, Entry, KernelCall, Operand
from mobilefinetuner.runtime.engine.kernel_library import KernelLibrary, aligned_bytes
from tvm.script import tirx as T

from tests.support.tiny_bundle import on_a_short_stack

EPSILON = 1e-5
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
ROWS = [(5, 64), (3, 96), (33, 48), (1, 16)]
ROPE = [(2, 5, 3, 16), (1, 4, 2, 48)]
FLAT = [480, 7, 4096]
GROUPS = [(5, 3, 32), (1, 2, 32)]
HEADS = [(5, 2, 3, 16), (2, 1, 4, 48)]
ATTENTION = [(2, 64, 4, 2, 16), (1, 96, 3, 3, 64), (1, 32, 2, 1, 48)]
DECODE = [(64, 4, 2, 16), (32, 3, 1, 48)]
LOSS = [(4, 96), (3, 512), (1, 1000)]
ADAM = [64, 832]
PROBE = 1 << 16


def _probes(isa: Isa) -> dict[str, tvm.tirx.PrimFunc]:
    """Kernels around the scalar formulas, which stand in no kernel by themselves."""
    lanes = isa.lanes

    def unary(formula, name):
        @T.prim_func
        def func(x: T.Buffer((PROBE,), "float32"), y: T.Buffer((PROBE,), "float32")):
            for i in range(PROBE // lanes):
                for e in T.vectorized(lanes):
                    y[i * lanes + e] = formula(x[i * lanes + e])

        return named(func, name)

    @T.prim_func
    def half(x: T.Buffer((PROBE, 2), "uint8"), y: T.Buffer((PROBE,), "float32")):
        for i in range(PROBE):
            y[i] = expressions.half_at(lambda at: x[i, at], 0)

    names = ("exp", "log", "sigmoid")
    return {f"probe_{name}": unary(getattr(expressions, name), f"probe_{name}") for name in names} | {"probe_half": named(half, "probe_half")}


def label(stem: str, *sizes) -> str:
    """A kernel's name in the trial library."""
    return "_".join([stem, *("x".join(map(str, s)) if isinstance(s, tuple) else str(s).replace(".", "_").replace("-", "m") for s in sizes)])


def all_kernels(isa: Isa) -> dict[str, tvm.tirx.PrimFunc]:
    """Every template at the sizes above, by name."""
    out: dict[str, tvm.tirx.PrimFunc] = {}

    def add(template, name, *sizes):
        out[name] = template(name, *sizes)

    for kind, size in FROZEN:
        add(gemm.frozen_matmul, label("frozen_matmul", kind, size), *size, BLOCK_TYPES[kind], isa)
    for kind, size in FROZEN_T:
        add(gemm.frozen_matmul_t, label("frozen_matmul_t", kind, size), *size, BLOCK_TYPES[kind], isa)
    for kind, size in MATVEC:
        add(gemv.frozen_matvec, label("frozen_matvec", kind, size), *size, BLOCK_TYPES[kind])
    for kind, size in GATHER:
        add(gemv.gather_rows, label("gather_rows", kind, size), *size, BLOCK_TYPES[kind])
    for form, size, alpha in MATMUL:
        add(gemm.matmul, label("matmul", form, size, alpha), form, *size, alpha, isa)
    for size in ROWS:
        add(rows.rms_norm, label("rms_norm", size), *size, EPSILON, isa)
        add(rows.rms_norm_grad, label("rms_norm_grad", size), *size, EPSILON, isa)
    for size in ROPE:
        for inverse in (False, True):
            add(rows.rope, label("rope", size, int(inverse)), *size, inverse)
    for template in (rows.add, rows.swiglu, rows.swiglu_grad):
        for n in FLAT:
            add(template, label(template.__name__, n), n, isa)
    for template, sizes in ((rows.group_sum, GROUPS), (rows.group_spread, GROUPS), (rows.sum_heads, HEADS)):
        for size in sizes:
            add(template, label(template.__name__, size), *size)
    for template in (attention.attention, attention.attention_grad):
        for size in ATTENTION:
            add(template, label(template.__name__, size), *size, isa)
    for size in DECODE:
        add(attention.decode_attention, label("decode_attention", size), *size)
    for size in LOSS:
        add(head.softmax_loss, label("softmax_loss", size), *size, isa)
    for n in ADAM:
        add(optimizer.adamw_step, label("adamw_step", n), n, isa)
    add(optimizer.sum_squares, label("sum_squares", SQUARES), SQUARES, isa)
    return out | _probes(isa)


def isas_of_this_machine() -> dict[str, Isa]:
    """What this machine can run: LLVM cpu -> Isa."""
    machine = read_machine_cpu()
    if machine.arch == "aarch64":
        return {"generic": NEON}
    return {cpu: isa for cpu, isa in X86_ISAS.items() if machine.features.issuperset(features_of_x86_cpu(cpu))}


@dataclass(frozen=True)
class Trial:
    """The loaded library."""

    isa: Isa
    library: KernelLibrary
    parameters: dict[str, list[tuple[tuple[int, ...], str]]]
    """(shape, dtype) of each kernel's parameters"""

    @classmethod
    def build(cls, cpu: str, folder: Path) -> Trial:
        isa = isas_of_this_machine()[cpu]
        kernels = KernelSet(isa, on_a_short_stack(all_kernels, isa))
        arch = read_machine_cpu().arch
        features = features_of_x86_cpu(cpu) if arch == "x86_64" else ("fp", "asimd")
        path = folder / "kernels.so"
        path.write_bytes(build_library(kernels, target_for(arch, f"{arch}-linux-gnu", cpu, features), arch))
        return cls(isa, KernelLibrary(path, workspace_bytes(kernels), threads=2), {name: kernels.argument_shapes(name) for name in kernels.functions})

    def run(self, name: str, *inputs: np.ndarray, threads: int = 2, shapes: list | None = None) -> list[np.ndarray]:
        """Call a kernel on copies of `inputs`, and NaN for the arrays that it writes; returns all arrays as they are afterwards.

        shapes: what the kernel is told instead of its own (shape, dtype) pairs.
        """
        parameters = shapes or self.parameters[name]
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
