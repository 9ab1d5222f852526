"""The block as a graph of operators, and its gradient."""

from __future__ import annotations

from collections import Counter

import pytest
from mobilefinetuner.compiler.lowering.autodiff import differentiate
from mobilefinetuner.compiler.lowering.graph import LOSS_PAIR, EntryGraph, block_graph, decode_graphs, distill_graph, head_graph, projection_shapes
from mobilefinetuner.runtime.bundle.plan import PROJECTIONS
from tvm import relax

from tests.support.small_graph import SHAPE, adapter

KINDS = {"grouped": 2, "lora": 64}
"""kind -> columns of the A of a projection with 64 inputs"""


def operators(graph: EntryGraph) -> Counter:
    bindings = [b for block in graph.function.body.blocks for b in block.bindings]
    return Counter(b.value.op.name for b in bindings if isinstance(b.value, relax.Call))


def sizes(graph: EntryGraph) -> dict[str, tuple[int, ...]]:
    return {p.var.name: tuple(int(e) for e in p.var.ty.shape) for p in graph.parameters}


@pytest.mark.parametrize("kind", KINDS)
def test_every_adapted_projection_has_an_a_and_a_b_of_its_kinds_shape(kind):
    found = sizes(block_graph(SHAPE, adapter(kind), 2, 32))
    for name, (n, k) in projection_shapes(SHAPE).items():
        assert found[name] == (n, k)
        assert found[f"{name}:A"] == (4, k * KINDS[kind] // 64)
        assert found[f"{name}:B"] == (n, 4)


def test_only_the_targets_are_adapted():
    graph = block_graph(SHAPE, adapter(targets=("attn_q", "ffn_down")), 1, 32)
    assert [v.name for v in graph.named("adapter")] == ["attn_q:A", "attn_q:B", "ffn_down:A", "ffn_down:B"]
    assert operators(graph)["mft.matmul"] == 4


def test_projections_of_the_same_input_share_their_sums_over_groups():
    """Seven projections read four different inputs: the two norms' outputs, attention's and swiglu's."""
    assert operators(block_graph(SHAPE, adapter("grouped"), 1, 32))["mft.group_sum"] == 4
    assert operators(block_graph(SHAPE, adapter("lora"), 1, 32))["mft.group_sum"] == 0


def test_a_block_is_nothing_but_whole_operators():
    assert operators(block_graph(SHAPE, None, 1, 32)) == {
        "mft.rms_norm": 2, "mft.linear": 7, "mft.rope": 2, "mft.attention": 1, "mft.swiglu": 1, "relax.add": 2,
    }  # fmt: skip


def test_the_gradient_has_one_result_for_the_input_and_each_matrix():
    graph = differentiate(block_graph(SHAPE, adapter(), 2, 32, root=True))
    matrices = [f"d{name}:{matrix}" for name in PROJECTIONS for matrix in "AB"]
    assert sorted(graph.results) == sorted(["dx", *matrices])
    before = sizes(block_graph(SHAPE, adapter(), 2, 32, root=True))
    assert sizes(graph) == before


def test_the_gradient_passes_every_frozen_weight_exactly_once():
    graph = differentiate(block_graph(SHAPE, adapter(), 1, 32, root=True))
    assert operators(graph)["mft.linear_t"] == 7
    assert operators(graph)["mft.rope"] == 4  # two forward, two that turn back


def test_the_heads_gradient_keeps_the_loss():
    graph = differentiate(head_graph(SHAPE, 16, root=True), keep={"loss": (LOSS_PAIR, 0)})
    assert list(graph.results) == ["loss", "dx"]
    assert operators(graph)["mft.softmax_loss"] == 1


def test_the_cache_form_returns_keys_and_values_beside_the_output():
    assert list(block_graph(SHAPE, None, 1, 32, cache=True).results) == ["y", "keys", "values"]


def test_decoding_reads_every_weight_of_the_block_once():
    halves = decode_graphs(SHAPE, 128)
    weights = [v.name for half in halves for v in half.named("weight")]
    assert sorted(weights) == sorted([*PROJECTIONS, "attn_norm", "ffn_norm"])
    assert [list(half.results) for half in halves] == [["q", "key", "value"], ["y"]]


def test_the_base_stands_in_the_training_buckets_without_an_adapter():
    graph = block_graph(SHAPE, None, 2, 32)
    assert graph.name == "block_base" and not graph.named("adapter")
    assert block_graph(SHAPE, adapter(), 2, 32).name == "block_forward"


def test_distilling_differentiates_the_tuned_rows_and_not_the_bases():
    graph = differentiate(distill_graph(SHAPE, 16), keep={"loss": (LOSS_PAIR, 0)})
    assert list(graph.results) == ["loss", "dx"]
    assert operators(graph)["mft.distill_loss"] == 1 and operators(graph)["mft.linear_t"] == 1
