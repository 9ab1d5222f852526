"""From graph to kernel calls with a place for every argument."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import pytest
from mobilefinetuner.compiler.kernels.isa import SSE4
from mobilefinetuner.compiler.kernels.kernel_set import KernelSet
from mobilefinetuner.compiler.lowering.autodiff import differentiate
from mobilefinetuner.compiler.lowering.graph import LOSS_PAIR, block_graph, head_graph
from mobilefinetuner.compiler.lowering.lower import lower
from mobilefinetuner.runtime.bundle.plan import PROJECTIONS, Entry, n_bytes

from tests.support.short_stack import on_a_short_stack
from tests.support.small_graph import SHAPE, adapter

TYPES = dict.fromkeys(PROJECTIONS, "Q4_1")


@pytest.fixture(scope="module")
def kernels() -> KernelSet:
    return KernelSet(SSE4)


@pytest.fixture(scope="module")
def backward(kernels) -> Entry:
    graph = differentiate(block_graph(SHAPE, adapter(), 1, 32, root=True))
    return on_a_short_stack(lower, graph, kernels, TYPES, "1x32", "Q4_1")


def stems(entry: Entry) -> Counter:
    """Kernel names without their sizes."""
    return Counter(call.kernel.rsplit("_", 1)[0] for call in entry.calls)


def test_what_no_result_depends_on_is_not_computed(backward):
    """Going back needs what six projections gave, but nothing that ffn_down gave, and neither sum of the residual stream but one."""
    found = stems(backward)
    assert found["matmul_q4_1"] == 6 and found["matmul_t_q4_1"] == 7
    assert found["attention"] == found["attention_grad"] == found["swiglu"] == found["swiglu_grad"] == 1


def test_frozen_weights_are_read_as_blocks_of_their_type(backward):
    assert {(o.shape, o.dtype) for o in backward.operands if o.name == "ffn_gate"} == {((128, 2, 20), "uint8")}
    assert {o.dtype for o in backward.operands if o.name.endswith("_norm")} == {"float32"}


def test_every_result_is_an_operand_that_a_call_receives(backward):
    results = [o for o in backward.operands if o.role in ("output", "gradient")]
    assert [o.name for o in results if o.role == "output"] == ["dx"]
    assert sorted(o.name for o in results if o.role == "gradient") == sorted(f"d{name}:{m}" for name in PROJECTIONS for m in "AB")
    passed = {backward.arguments[a].operand for call in backward.calls for a in call.arguments}
    assert {backward.operands.index(o) for o in results} <= passed


def test_arguments_have_the_bytes_and_types_of_their_kernels_parameters(backward, kernels):
    for call in backward.calls:
        arguments = [backward.arguments[a] for a in call.arguments]
        assert [(a.shape, a.dtype) for a in arguments] == kernels.argument_shapes(call.kernel)
        for a in (a for a in arguments if a.operand is not None):
            operand = backward.operands[a.operand]
            assert n_bytes(a.shape, a.dtype) == n_bytes(operand.shape, operand.dtype)


def test_scratch_arguments_stay_inside_the_scratch_memory(backward):
    ends = [a.offset_bytes + n_bytes(a.shape, a.dtype) for a in backward.arguments if a.operand is None]
    assert ends and max(ends) <= backward.scratch_bytes


def test_no_call_writes_where_it_reads_except_the_loss_into_its_logits(backward):
    for call in backward.calls:
        places = [backward.arguments[a] for a in call.arguments if backward.arguments[a].operand is None]
        spans = sorted((a.offset_bytes, a.offset_bytes + n_bytes(a.shape, a.dtype)) for a in {id(p): p for p in places}.values())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans)), call.kernel


def test_the_losss_gradient_takes_the_place_of_the_logits(kernels):
    graph = differentiate(head_graph(SHAPE, 16, root=True), keep={"loss": (LOSS_PAIR, 0)})
    entry = on_a_short_stack(lower, graph, kernels, {"output": "Q8_0"})
    calls = {call.kernel.rsplit("_", 1)[0]: call.arguments for call in entry.calls}
    logits = calls["softmax_loss"][0]
    assert calls["matmul_q8_0"][-1] == logits == calls["matmul_t_q8_0"][0]
    assert entry.scratch_bytes < 2 * n_bytes((16, SHAPE.vocab), "float32")


def test_a_result_that_no_kernel_writes_is_an_error(kernels):
    graph = block_graph(SHAPE, None, 1, 32)
    for same in ({"y": graph.parameters[0].var}, {"y": graph.results["y"], "again": graph.results["y"]}):
        with pytest.raises(RuntimeError, match="no kernel writes"):
            on_a_short_stack(lower, dataclasses.replace(graph, results=same), kernels, TYPES)


def test_equal_sizes_share_one_kernel(kernels, backward):
    again = on_a_short_stack(lower, block_graph(SHAPE, adapter(), 1, 32), kernels, TYPES, "1x32", "Q4_1")
    shared = {call.kernel for call in again.calls} & {call.kernel for call in backward.calls}
    assert "matmul_q4_1_32x64x64" in shared and len(kernels.functions) < len(backward.calls) + len(again.calls)
