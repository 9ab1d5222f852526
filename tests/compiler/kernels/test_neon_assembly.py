"""The code that LLVM makes for arm64: the register tile stays in registers.

A phone cannot be timed here, so its inner loops are read: instructions per fused multiply-add, and no traffic with the stack.
"""

from __future__ import annotations

import re

import pytest
import tvm
from mobilefinetuner.compiler.kernels import gemm
from mobilefinetuner.compiler.kernels.block_types import BLOCK_TYPES
from mobilefinetuner.compiler.kernels.isa import isa_for
from mobilefinetuner.compiler.kernels.kernel_set import KernelSet
from mobilefinetuner.compiler.library.build import target_for
from mobilefinetuner.compiler.recipe.load import load_recipe

from tests.support.short_stack import on_a_short_stack

MOST_PER_FMA = 1.7
"""A core that starts four instructions and finishes two FMAs a cycle has room for two; the rest is slack for loads that wait."""
LABEL = re.compile(r"^(\.LBB\w+):", re.MULTILINE)


@pytest.mark.parametrize("device", ["generic_armv8", "pixel_6", "pixel_8"])
@pytest.mark.parametrize("form", [gemm.frozen_matmul, gemm.frozen_matmul_t], ids=["forward", "backward"])
def test_the_register_tile_of_a_frozen_product_stays_in_registers(device, form):
    loops = [loop for loop in inner_loops(assembly(device, form)) if len(re.findall(r"\bfmla\b", "\n".join(loop))) >= 16]
    tiles = [loop for loop in loops if not any(word in line for line in loop for word in ("ucvtf", "fcvtl", "ushll"))]
    assert tiles
    for loop in tiles:
        fmas = sum(line.startswith("fmla") for line in loop)
        assert len(loop) <= MOST_PER_FMA * fmas, "\n".join(loop)
        assert not any(line.startswith("st") for line in loop), "\n".join(loop)


def assembly(device: str, form) -> str:
    """One product of SmolLM2's size, 32 rows."""
    recipe = load_recipe([f"device={device}"]).device

    def build() -> str:
        kernels = KernelSet(isa_for(recipe.arch, recipe.features))
        kernels.named(form, 32, 576, 576, BLOCK_TYPES["Q4_1"])
        module = tvm.tirx.build(tvm.IRModule(kernels.functions), target=target_for(recipe.arch, recipe.mtriple, recipe.cpu, recipe.features))
        return module.inspect_source("s")

    return on_a_short_stack(build)


def inner_loops(text: str) -> list[list[str]]:
    """Instructions of each stretch that ends with a branch to its own start."""
    pieces = LABEL.split(text)
    loops = []
    for label, body in zip(pieces[1::2], pieces[2::2]):
        lines = [line.strip() for line in body.splitlines() if line.startswith("\t") and not line.strip().startswith((".", "//"))]
        ends = [i for i, line in enumerate(lines) if re.match(rf"(b\.\w+|cbn?z|tbn?z)\b.*{re.escape(label)}$", line)]
        if ends:
            loops.append(lines[: ends[0] + 1])
    return loops
