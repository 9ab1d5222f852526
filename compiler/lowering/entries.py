"""Every entry of a bundle: what is compiled for which bucket and which weight types.

In:  ModelShape, the adapter, the recipe's buckets and sizes.
Out: the plan's entries, and the kernels they call.
Entries that read projections exist once per combination of GGUF types: the base's, and what a merge makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from ...runtime.bundle.plan import (
    ALIGNMENT,
    DECODE_BUCKET,
    ITEM_BYTES,
    PROJECTIONS,
    AdapterPlan,
    AdapterTensor,
    Argument,
    Bucket,
    Entry,
    KernelCall,
    Matrix,
    MatrixName,
    Operand,
    block_weight,
    scoring_buckets,
    signature_of,
    types_of,
)
from ...runtime.versions.merge import REQUANTIZED_TYPES, requantized_type
from ..kernels import optimizer
from ..kernels.kernel_set import KernelSet
from ..model.shape import ModelShape
from .autodiff import differentiate
from .graph import (
    LOSS_PAIR,
    AdapterSpec,
    EntryGraph,
    block_graph,
    decode_graphs,
    distill_graph,
    embed_graph,
    head_graph,
    logits_graph,
    projection_shapes,
)  # fmt: skip
from .lower import lower

ADAPTER_ALIGNMENT = ALIGNMENT // ITEM_BYTES["float32"]
"""in elements, for the matrices of the flat vector"""


@dataclass(frozen=True)
class Sizes:
    """The static sizes of a bundle, and which entries it needs."""

    buckets: tuple[str, ...]
    context_tokens: int
    head_chunk_tokens: int
    distills: bool
    """training compares with the base, so the base's own forward pass is compiled in the training buckets"""


def adapter_plan(shape: ModelShape, adapter: AdapterSpec) -> AdapterPlan:
    """Where each matrix stands in the flat vector: layer after layer, all layers laid out alike."""
    tensors: list[AdapterTensor] = []
    offset = 0
    for layer in range(shape.layers):
        for name, (n, k) in projection_shapes(shape).items():
            if name not in adapter.targets:
                continue
            for matrix, size in zip(get_args(Matrix), adapter.shapes(n, k)):
                tensors.append(AdapterTensor(MatrixName(layer, name, matrix), offset, size))
                offset += -(-size[0] * size[1] // ADAPTER_ALIGNMENT) * ADAPTER_ALIGNMENT
    return AdapterPlan(adapter.kind, adapter.rank, adapter.scale, -(-offset // optimizer.PARTIALS) * optimizer.PARTIALS, tuple(tensors))


def base_signatures(shape: ModelShape) -> tuple[str, ...]:
    """Weight types of the base's layers."""
    layers = ({name: shape.tensor_types[block_weight(layer, name)] for name in PROJECTIONS} for layer in range(shape.layers))
    return tuple(dict.fromkeys(map(signature_of, layers)))


def signatures_of(shape: ModelShape, adapter: AdapterSpec) -> tuple[str, ...]:
    """Weight types of the base's layers, and of what merging a classic LoRA makes of them: in every type that a merge tries, or in
    the largest alone where only an imported adapter can be one."""
    base = base_signatures(shape)
    tried = REQUANTIZED_TYPES if adapter.kind == "lora" else REQUANTIZED_TYPES[-1:]
    merged = [
        signature_of({name: requantized_type(kind, requantize_to) if name in adapter.targets else kind for name, kind in types_of(s).items()})
        for requantize_to in tried for s in base
    ]  # fmt: skip
    return tuple(dict.fromkeys([*base, *merged]))


def build_entries(shape: ModelShape, adapter: AdapterSpec, sizes: Sizes, kernels: KernelSet) -> tuple[Entry, ...]:
    """All entries, each lowered to kernel calls."""
    embedding = {"token_embd": shape.tensor_types["token_embd.weight"], "output": shape.tensor_types[shape.head_tensor]}
    entries = [lower(graph, kernels, embedding, bucket) for bucket, graph in _shared_graphs(shape, sizes)]
    for signature in signatures_of(shape, adapter):
        types = types_of(signature)
        # A grouped adapter cannot be folded into requantized weights, so nothing trains on them.
        is_trained = adapter.kind == "lora" or signature in base_signatures(shape)
        for bucket, graph in _block_graphs(shape, adapter, sizes, is_trained):
            entries.append(lower(graph, kernels, types, bucket, signature))
    entries += _optimizer_entries(adapter_plan(shape, adapter).size, kernels)
    return tuple(entries)


def inference_entries(shape: ModelShape, bucket: str, context_tokens: int, kernels: KernelSet) -> tuple[Entry, ...]:
    """What answering needs and nothing else: reading a prompt in this bucket, then token by token, without an adapter."""
    embedding = {"token_embd": shape.tensor_types["token_embd.weight"], "output": shape.tensor_types[shape.head_tensor]}
    tokens = Bucket.parse(bucket).tokens
    shared = [
        (bucket, embed_graph(shape, tokens)),
        (DECODE_BUCKET, embed_graph(shape, 1)),
        ("", logits_graph(shape)),
        ("", head_graph(shape, 1, root=False)),
    ]
    entries = [lower(graph, kernels, embedding, at) for at, graph in shared]
    for signature in base_signatures(shape):
        blocks = [(bucket, block_graph(shape, None, 1, tokens, cache=True)), *(("", graph) for graph in decode_graphs(shape, context_tokens))]
        entries += [lower(graph, kernels, types_of(signature), at, signature) for at, graph in blocks]
    return tuple(entries)


def _shared_graphs(shape: ModelShape, sizes: Sizes) -> Iterator[tuple[str, EntryGraph]]:
    """Entries that read only the embedding and the head."""
    for bucket in dict.fromkeys((*sizes.buckets, *scoring_buckets(sizes.buckets), DECODE_BUCKET)):
        yield bucket, embed_graph(shape, Bucket.parse(bucket).rows)
    yield "", head_graph(shape, sizes.head_chunk_tokens, root=False)
    yield "", differentiate(head_graph(shape, sizes.head_chunk_tokens, root=True), keep={"loss": (LOSS_PAIR, 0)})
    if sizes.distills:
        yield "", differentiate(distill_graph(shape, sizes.head_chunk_tokens), keep={"loss": (LOSS_PAIR, 0)})
    yield "", logits_graph(shape)


def _block_graphs(shape: ModelShape, adapter: AdapterSpec, sizes: Sizes, is_trained: bool) -> Iterator[tuple[str, EntryGraph]]:
    """Training, and inference with and without the adapter beside the weights; untrained weights have the last alone."""
    for bucket in sizes.buckets if is_trained else ():
        batch, tokens = Bucket.parse(bucket)
        yield bucket, block_graph(shape, adapter, batch, tokens)
        yield bucket, differentiate(block_graph(shape, adapter, batch, tokens, root=True))
        if sizes.distills:
            yield bucket, block_graph(shape, None, batch, tokens)
    for mounted in (None, adapter) if is_trained else (None,):
        for bucket in scoring_buckets(sizes.buckets):
            yield bucket, block_graph(shape, mounted, 1, Bucket.parse(bucket).tokens, cache=True)
        for graph in decode_graphs(shape, sizes.context_tokens, mounted):
            yield "", graph


def _optimizer_entries(size: int, kernels: KernelSet) -> list[Entry]:
    """adamw_step and sum_squares over the flat vector: one kernel each, all arguments bound."""
    adamw, squares = kernels.named(optimizer.adamw_step, size), kernels.named(optimizer.sum_squares, size)
    vectors = [Operand(name, "input", (size,), "float32") for name in ("w", "m", "v", "g")]
    hyper = Operand("hyper", "input", (optimizer.HYPER_COUNT,), "float32")
    total = Operand("total", "output", (1,), "float32")
    return [_single_call("adamw_step", adamw, [*vectors, hyper]), _single_call("sum_squares", squares, [vectors[3], total])]


def _single_call(name: str, kernel: str, operands: list[Operand]) -> Entry:
    arguments = tuple(Argument(i, 0, o.shape, o.dtype) for i, o in enumerate(operands))
    return Entry(name, "", "", tuple(operands), arguments, (KernelCall(kernel, tuple(range(len(operands)))),), 0)
