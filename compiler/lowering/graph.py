"""The model as Relax functions in float: one transformer block, the head, the embedding; every layer shares the same block.

In:  ModelShape and an AdapterSpec.
Out: EntryGraph: a Relax function of `mft.*` operators and the role of each parameter.
Frozen weights are ordinary fp32 parameters here; lower.py reads them as GGUF blocks. Weight names are those of GGUF without
"blk.N." and ".weight".
"""

# Shapes: B micro-batch · T tokens · M = B·T · D model width · H query heads · KV key-value heads · d head width · F inner width · R rank

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tvm import relax

from ...runtime.bundle.plan import MOUNTED, PROJECTIONS, AdapterKind, Dtype, OperandRole, Projection
from ..kernels.block_types import BLOCK
from ..model.shape import ModelShape
from . import dialect

GROUP = BLOCK
"""Inputs that share one column of a grouped adapter's A: the width of a GGUF block."""

LOSS_PAIR = "loss_and_dlogits"
"""Name of the variable in head_graph and distill_graph whose first part is the loss."""


@dataclass(frozen=True)
class AdapterSpec:
    """The low-rank update of the projections."""

    kind: AdapterKind
    rank: int
    scale: float
    """the effective scale, alpha / rank"""
    targets: tuple[Projection, ...]
    """adapted projections"""

    def shapes(self, n: int, k: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shapes of A and B for a projection [N, K]."""
        return (self.rank, k // GROUP if self.kind == "grouped" else k), (n, self.rank)


@dataclass(frozen=True)
class Parameter:
    """A parameter of an entry's function."""

    var: relax.Var
    role: OperandRole


@dataclass(frozen=True)
class EntryGraph:
    """A function in dataflow form and the values in it that the entry returns."""

    name: str
    function: relax.Function
    parameters: tuple[Parameter, ...]
    results: Mapping[str, relax.Expr]
    """output name -> variable bound in the function"""

    def named(self, role: OperandRole) -> list[relax.Var]:
        """Parameters of one role, in order."""
        return [p.var for p in self.parameters if p.role == role]


def projection_shapes(shape: ModelShape) -> dict[Projection, tuple[int, int]]:
    """[N, K] of each projection of a block."""
    d, q, kv = shape.d_model, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "attn_q": (q, d),
        "attn_k": (kv, d),
        "attn_v": (kv, d),
        "attn_output": (d, q),
        "ffn_gate": (shape.ffn, d),
        "ffn_up": (shape.ffn, d),
        "ffn_down": (d, shape.ffn),
    }


class _Builder:
    """Collects parameters and emits operators into one dataflow block."""

    def __init__(self, shape: ModelShape, adapter: AdapterSpec | None) -> None:
        dialect.register_operators()
        self.shape, self.adapter = shape, adapter
        self.block = relax.BlockBuilder()
        self.parameters: dict[str, Parameter] = {}
        self.group_sums: dict[relax.Var, relax.Var] = {}

    def parameter(self, name: str, size: tuple[int, ...], role: OperandRole, dtype: Dtype = "float32") -> relax.Var:
        var = relax.Var(name, relax.TensorType(size, dtype))
        self.parameters[name] = Parameter(var, role)
        return var

    def declare_block(self) -> None:
        """The parameters of one block: norms, projections, adapter matrices."""
        for name in ("attn_norm", "ffn_norm"):
            self.parameter(name, (self.shape.d_model,), "weight")
        self.declare_projections(PROJECTIONS)

    def declare_projections(self, names: Iterable[str]) -> None:
        """Their weights, and their adapter matrices where an adapter is mounted."""
        for name in names:
            n, k = projection_shapes(self.shape)[name]
            self.parameter(name, (n, k), "weight")
            if self.adapter and name in self.adapter.targets:
                a, b = self.adapter.shapes(n, k)
                self.parameter(f"{name}:A", a, "adapter")
                self.parameter(f"{name}:B", b, "adapter")

    def var(self, name: str) -> relax.Var:
        return self.parameters[name].var

    def emit(self, expr: relax.Expr, name: str = "") -> relax.Var:
        return self.block.emit(expr, name_hint=name)

    def project(self, name: str, x: relax.Var) -> relax.Var:
        """x · wᵀ plus the adapter's share: scale · (x · Aᵀ) · Bᵀ, where a grouped A sees sums over a group of neighbouring inputs."""
        y = self.emit(dialect.linear(x, self.var(name)))
        if not self.adapter or name not in self.adapter.targets:
            return y
        if self.adapter.kind == "grouped":
            if x not in self.group_sums:
                self.group_sums[x] = self.emit(dialect.group_sum(x, GROUP))
            x = self.group_sums[x]
        h = self.emit(dialect.matmul(x, self.var(f"{name}:A"), "nt"))
        delta = self.emit(dialect.matmul(h, self.var(f"{name}:B"), "nt", self.adapter.scale))
        return self.emit(dialect.add(y, delta))

    def feed_forward(self, x: relax.Var) -> relax.Var:
        """x + down(silu(gate(n)) · up(n)) with n = norm(x)."""
        n = self.emit(dialect.rms_norm(x, self.var("ffn_norm"), self.shape.rms_eps))
        inner = self.emit(dialect.swiglu(self.project("ffn_gate", n), self.project("ffn_up", n)))
        return self.emit(dialect.add(x, self.project("ffn_down", inner)))

    def rotated(self, x: relax.Var, batch: int) -> relax.Var:
        return self.emit(dialect.rope(x, self.var("cos"), self.var("sin"), batch))

    def build(self, name: str, body: Callable[[], dict[str, relax.Var]]) -> EntryGraph:
        """The function whose results are what `body` emits, by output name."""
        variables = [p.var for p in self.parameters.values()]
        with self.block.function("main"):
            with self.block.dataflow():
                results = body()
                outputs = [self.block.emit_output(var) for var in results.values()]
            self.block.emit_func_output(relax.Tuple(outputs) if len(outputs) > 1 else outputs[0], variables)
        function = self.block.get()["main"]
        returned = function.body.body
        fields = returned.fields if isinstance(returned, relax.Tuple) else [returned]
        return EntryGraph(name, function, tuple(self.parameters.values()), dict(zip(results, fields)))


def block_graph(shape: ModelShape, adapter: AdapterSpec | None, batch: int, tokens: int, *, root: bool = False, cache: bool = False) -> EntryGraph:
    """One transformer block over B·T tokens.

    x [M,D] · start [B,T] i32 · cos, sin [T,d/2] · weights · adapter  →  y [M,D]; with `cache` also keys and values [M,KV·d].
    The name says whether there is an adapter: block_forward has one, block_base has none.
    With `root` it returns the scalar Σ y · dy for a further parameter dy [M,D], ready to be differentiated.
    """
    b = _Builder(shape, adapter)
    m, half = batch * tokens, shape.head_dim // 2
    x = b.parameter("x", (m, shape.d_model), "input")
    if root:
        b.parameter("dy", (m, shape.d_model), "input")
    b.parameter("start", (batch, tokens), "input", "int32")
    for name in ("cos", "sin"):
        b.parameter(name, (tokens, half), "input")
    b.declare_block()

    def body() -> dict[str, relax.Var]:
        n = b.emit(dialect.rms_norm(x, b.var("attn_norm"), shape.rms_eps))
        q, k = b.rotated(b.project("attn_q", n), batch), b.rotated(b.project("attn_k", n), batch)
        v = b.project("attn_v", n)
        o = b.emit(dialect.attention(q, k, v, b.var("start"), shape.head_dim))
        y = b.feed_forward(b.emit(dialect.add(x, b.project("attn_output", o))))
        if root:
            return {"root": b.emit(dialect.seed(y, b.var("dy")))}
        return {"y": y, "keys": k, "values": v} if cache else {"y": y}

    forward = _inference_name("block_prefill", adapter) if cache else "block_forward" if adapter else "block_base"
    return b.build("block_vjp" if root else forward, body)


def _inference_name(name: str, adapter: AdapterSpec | None) -> str:
    return name + MOUNTED if adapter else name


def decode_graphs(shape: ModelShape, context: int, adapter: AdapterSpec | None = None) -> tuple[EntryGraph, EntryGraph]:
    """One transformer block for one token, in two halves between which the runtime stores the token's key and value in the cache.

    block_decode_qkv: x [1,D] · cos, sin [1,d/2]  →  q [1,H·d], key and value [1,KV·d]
    block_decode: x [1,D] · q [1,H·d] · keys, values [C,KV·d] · position [1] i32  →  y [1,D]
    """
    return _decode_qkv_graph(shape, adapter), _decode_rest_graph(shape, context, adapter)


def _decode_qkv_graph(shape: ModelShape, adapter: AdapterSpec | None) -> EntryGraph:
    b = _Builder(shape, adapter)
    x = b.parameter("x", (1, shape.d_model), "input")
    for name in ("cos", "sin"):
        b.parameter(name, (1, shape.head_dim // 2), "input")
    b.parameter("attn_norm", (shape.d_model,), "weight")
    b.declare_projections(("attn_q", "attn_k", "attn_v"))

    def body() -> dict[str, relax.Var]:
        n = b.emit(dialect.rms_norm(x, b.var("attn_norm"), shape.rms_eps))
        q, k = b.rotated(b.project("attn_q", n), 1), b.rotated(b.project("attn_k", n), 1)
        return {"q": q, "key": k, "value": b.project("attn_v", n)}

    return b.build(_inference_name("block_decode_qkv", adapter), body)


def _decode_rest_graph(shape: ModelShape, context: int, adapter: AdapterSpec | None) -> EntryGraph:
    b = _Builder(shape, adapter)
    x = b.parameter("x", (1, shape.d_model), "input")
    q = b.parameter("q", (1, shape.heads * shape.head_dim), "input")
    keys, values = (b.parameter(name, (context, shape.kv_heads * shape.head_dim), "input") for name in ("keys", "values"))
    position = b.parameter("position", (1,), "input", "int32")
    b.parameter("ffn_norm", (shape.d_model,), "weight")
    b.declare_projections(("attn_output", "ffn_gate", "ffn_up", "ffn_down"))

    def body() -> dict[str, relax.Var]:
        o = b.emit(dialect.decode_attention(q, keys, values, position, shape.head_dim))
        return {"y": b.feed_forward(b.emit(dialect.add(x, b.project("attn_output", o))))}

    return b.build(_inference_name("block_decode", adapter), body)


def embed_graph(shape: ModelShape, rows: int) -> EntryGraph:
    """ids [M] i32 · token_embd [V,D]  →  y [M,D]"""
    b = _Builder(shape, None)
    ids = b.parameter("ids", (rows,), "input", "int32")
    w = b.parameter("token_embd", (shape.vocab, shape.d_model), "weight")
    return b.build("embed", lambda: {"y": b.emit(dialect.gather(ids, w))})


def logits_graph(shape: ModelShape) -> EntryGraph:
    """x [1,D] · output_norm [D] · output [V,D]  →  logits [1,V]"""
    b, x = _head(shape, 1)
    return b.build("logits", lambda: {"logits": _emit_logits(b, x)})


def head_graph(shape: ModelShape, chunk: int, *, root: bool) -> EntryGraph:
    """The loss of `chunk` rows that have a label; with `root` ready to be differentiated.

    x [C,D] · targets [C] i32 (negative: no label) · scale [C] · output_norm [D] · output [V,D]  →  loss [C]
    """
    b, x = _head(shape, chunk)
    targets = b.parameter("targets", (chunk,), "input", "int32")
    scale = b.parameter("scale", (chunk,), "input")

    def body() -> dict[str, relax.Var]:
        logits = _emit_logits(b, x)
        pair = b.emit(dialect.softmax_loss(logits, targets, scale), LOSS_PAIR)
        if not root:
            return {"loss": b.emit(relax.TupleGetItem(pair, 0))}
        return {"root": b.emit(dialect.seed(logits, b.emit(relax.TupleGetItem(pair, 1))))}

    return b.build("head_loss" if root else "head_score", body)


def distill_graph(shape: ModelShape, chunk: int) -> EntryGraph:
    """How far `chunk` rows are from what the base says there, ready to be differentiated with respect to x.

    x [C,D] · teacher_x [C,D], the base's hidden states · scale [C] · output_norm [D] · output [V,D]  →  root, and the loss [C] inside
    """
    b, x = _head(shape, chunk)
    teacher_x = b.parameter("teacher_x", (chunk, shape.d_model), "input")
    scale = b.parameter("scale", (chunk,), "input")

    def body() -> dict[str, relax.Var]:
        logits, teacher = _emit_logits(b, x), _emit_logits(b, teacher_x)
        pair = b.emit(dialect.distill_loss(logits, teacher, scale), LOSS_PAIR)
        return {"root": b.emit(dialect.seed(logits, b.emit(relax.TupleGetItem(pair, 1))))}

    return b.build("head_distill", body)


def _head(shape: ModelShape, rows: int) -> tuple[_Builder, relax.Var]:
    b = _Builder(shape, None)
    x = b.parameter("x", (rows, shape.d_model), "input")
    b.parameter("output_norm", (shape.d_model,), "weight")
    b.parameter("output", (shape.vocab, shape.d_model), "weight")
    return b, x


def _emit_logits(b: _Builder, x: relax.Var) -> relax.Var:
    n = b.emit(dialect.rms_norm(x, b.var("output_norm"), b.shape.rms_eps))
    return b.emit(dialect.linear(n, b.var("output")))
