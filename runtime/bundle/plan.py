"""The static plan: what the runtime calls, in which order, with which memory.

In:  plan.json of a bundle, or the compiler's result.
Out: frozen dataclasses; `Plan.from_json` refuses whatever is not as it is declared here.
A tensor of an entry either stands at an offset of the entry's scratch memory or is an operand that the runtime binds: an
input, a weight, an adapter matrix, an output. There is no control flow: an entry is a list of kernel calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from ..errors import UserError
from ..plain_data import bind, plain

PLAN_FORMAT = 1

OperandRole = Literal["input", "weight", "adapter", "output", "gradient"]
AdapterKind = Literal["grouped", "lora"]
Projection = Literal["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
"""the quantized matrices of a block, by their names in GGUF"""
Matrix = Literal["A", "B"]
MOUNTED = "_mounted"
"""ending of the name of an inference entry that computes an adapter beside the weights"""
Dtype = Literal["float32", "int32", "uint8"]
ITEM_BYTES: Mapping[Dtype, int] = {"float32": 4, "int32": 4, "uint8": 1}
Phase = Literal["load", "forward", "backward", "optimizer", "merge", "verify"]
ALIGNMENT = 64
"""bytes: every tensor that a kernel is given starts at a multiple of it"""


BUCKET_NAME = re.compile(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,5})")
_BLOCK_WEIGHT = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
DECODE_BUCKET = "1x1"
"""one token at a time"""
REMEDY = "use the mft.pyz of that bundle, or compile the bundle again"


class Hyperparameters(NamedTuple):
    """The numbers that adamw_step is given, in the order in which they stand in its operand `hyper`."""

    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    bias_correction1: float
    """1 - beta1^step"""
    bias_correction2: float
    """1 - beta2^step"""
    gradient_scale: float
    """the gradient is multiplied by it first"""
    max_update: float
    """largest absolute change of one parameter"""


def aligned(size_bytes: int) -> int:
    """Rounded up to the alignment."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def n_bytes(shape: tuple[int, ...], dtype: Dtype) -> int:
    """Bytes of a dense tensor."""
    size = ITEM_BYTES[dtype]
    for extent in shape:
        size *= extent
    return size


class Bucket(NamedTuple):
    """A static shape that entries are compiled for. In the plan and in recipes it stands as its name: "1x256"."""

    batch: int
    """micro-batch"""
    tokens: int

    @classmethod
    def parse(cls, name: str) -> Bucket:
        """ValueError for what is no bucket's name."""
        match = BUCKET_NAME.fullmatch(name)
        if not match:
            raise ValueError(f"{name!r} is no bucket such as 1x256")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.batch}x{self.tokens}"

    @property
    def rows(self) -> int:
        """Positions that go through the block at once."""
        return self.batch * self.tokens


class MatrixName(NamedTuple):
    """Which matrix of the adapter. In the plan it stands as the name of the weight and the matrix: "blk.0.attn_q.weight:A"."""

    layer: int
    projection: Projection
    matrix: Matrix

    @classmethod
    def parse(cls, name: str) -> MatrixName:
        """ValueError for a name that is none."""
        weight, _, matrix = name.rpartition(":")
        layer, projection = parse_block_weight(weight)
        if projection not in PROJECTIONS or matrix not in ("A", "B"):
            raise ValueError(f"{name!r} is no matrix of an adapter, such as {cls(0, 'attn_q', 'A')}")
        return cls(layer, projection, matrix)

    def __str__(self) -> str:
        return f"{self.weight}:{self.matrix}"

    @property
    def weight(self) -> str:
        """GGUF name of the weight that it changes."""
        return block_weight(self.layer, self.projection)

    @property
    def operand(self) -> str:
        """Its name among the operands of a block's entry: attn_q:A."""
        return f"{self.projection}:{self.matrix}"


def block_weight(layer: int, part: str) -> str:
    """GGUF name of one weight of a block: blk.0.attn_q.weight."""
    return f"blk.{layer}.{part}.weight"


def parse_block_weight(name: str) -> tuple[int, str]:
    """The layer and the part of the block; ValueError for a weight that belongs to no block."""
    match = _BLOCK_WEIGHT.fullmatch(name)
    if not match:
        raise ValueError(f"{name!r} is no weight of a block, such as {block_weight(0, 'attn_q')}")
    return int(match[1]), match[2]


@dataclass(frozen=True)
class Operand:
    """A tensor that the runtime binds before it runs an entry."""

    name: str
    role: OperandRole
    shape: tuple[int, ...]
    dtype: Dtype


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel call: a view of an operand or of scratch memory."""

    operand: int | None
    """index into Entry.operands; None: scratch memory"""
    offset_bytes: int
    """from the start of the scratch memory; 0 for an operand"""
    shape: tuple[int, ...]
    dtype: Dtype


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel of the library."""

    kernel: str
    arguments: tuple[int, ...]
    """indices into Entry.arguments, inputs first and outputs last"""


@dataclass(frozen=True)
class Entry:
    """One function of the kernel library as a straight line of calls."""

    name: str
    """such as block_vjp"""
    bucket: str
    """a Bucket's name; "" when the entry has only one"""
    signature: str
    """GGUF types of the block's projections, see `signature_of`; "" when the entry reads no projections"""
    operands: tuple[Operand, ...]
    arguments: tuple[Argument, ...]
    calls: tuple[KernelCall, ...]
    scratch_bytes: int

    @property
    def key(self) -> tuple[str, str, str]:
        return self.name, self.bucket, self.signature

    def operand(self, name: str) -> Operand:
        """The operand of that name; KeyError when there is none."""
        for operand in self.operands:
            if operand.name == name:
                return operand
        raise KeyError(f"entry {self.name} has no operand {name!r}")


@dataclass(frozen=True)
class AdapterTensor:
    """Where one matrix of the adapter stands in the flat vector."""

    name: MatrixName
    offset: int
    """in elements"""
    shape: tuple[int, int]


@dataclass(frozen=True)
class AdapterPlan:
    """The adapter: one flat fp32 vector with named views, all views of a layer side by side."""

    kind: AdapterKind
    rank: int
    scale: float
    """the effective scale, alpha / rank"""
    size: int
    """elements, padded to a multiple of 64"""
    tensors: tuple[AdapterTensor, ...]


@dataclass(frozen=True)
class ModelPlan:
    """The sizes that the runtime needs to bind the entries."""

    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_base: float
    context_tokens: int
    """rows of the key-value cache"""
    head_chunk_tokens: int
    """label positions that go through the head at once"""
    embedding_type: str
    """GGUF type of token_embd.weight"""
    output_tensor: str
    """GGUF name of the head's weight: token_embd.weight when tied"""


@dataclass(frozen=True)
class PhaseMemory:
    """What one phase needs at its peak, in bytes; the parts of the seed formula."""

    phase: Phase
    weights: int
    """mapped GGUF pages; clean, the OS may drop them"""
    adapter: int
    optimizer: int
    activations: int
    scratch: int
    floor: int
    """interpreter, numpy, tokenizers and the mapped kernel library, measured"""

    @property
    def total(self) -> int:
        return self.weights + self.adapter + self.optimizer + self.activations + self.scratch + self.floor


@dataclass(frozen=True)
class Plan:
    """Everything in plan.json."""

    format: int
    model: ModelPlan
    adapter: AdapterPlan
    buckets: tuple[str, ...]
    """names of the training buckets, smallest first"""
    signatures: tuple[str, ...]
    """weight type combinations for which block entries exist"""
    workspace_bytes: int
    """scratch memory that every thread needs for the kernels' local buffers"""
    entries: tuple[Entry, ...]
    memory: tuple[PhaseMemory, ...]
    """for the largest training bucket, with the device's default number of threads"""

    def entry(self, name: str, bucket: str = "", signature: str = "") -> Entry:
        """The entry of that name, bucket and signature; KeyError when the bundle has none."""
        for entry in self.entries:
            if entry.key == (name, bucket, signature):
                return entry
        raise KeyError(f"the plan has no entry {name!r} for bucket {bucket!r} and weight types {signature!r}")

    @property
    def peak_bytes(self) -> int:
        return max(phase.total for phase in self.memory)

    def __post_init__(self) -> None:
        for name in self.buckets:
            Bucket.parse(name)

    def to_json(self) -> dict[str, Any]:
        return plain(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """UserError for a plan of another format or with anything in it that is not as declared here."""
        found = data.get("format") if isinstance(data, Mapping) else None
        if found != PLAN_FORMAT:
            raise UserError("plan.json", f"format {found}", f"{PLAN_FORMAT} is what this runtime reads", REMEDY)
        return bind(cls, data, "plan.json", REMEDY)


def signature_of(types: Mapping[str, str]) -> str:
    """The GGUF types of a block's projections as one word: one type when all agree, else all seven joined by '+'.

    types: projection name -> GGUF type name.
    """
    ordered = [types[name] for name in PROJECTIONS]
    return ordered[0] if len(set(ordered)) == 1 else "+".join(ordered)


def types_of(signature: str) -> dict[str, str]:
    """The inverse of signature_of."""
    names = signature.split("+")
    return dict(zip(PROJECTIONS, names * len(PROJECTIONS) if len(names) == 1 else names))


def scoring_buckets(buckets: Sequence[str]) -> list[str]:
    """Single rows of every length: what a prompt is read with, and text is scored with."""
    return [str(Bucket(1, tokens)) for tokens in sorted({Bucket.parse(name).tokens for name in buckets})]
