"""The static plan: what the runtime calls, in which order, with which memory.

In:  plan.json of a bundle, or the compiler's result.
Out: frozen dataclasses; `Plan.from_json` refuses unknown keys.
A tensor of an entry either stands at an offset of the entry's scratch memory or is an operand that the runtime binds: an
input, a weight, an adapter matrix, an output. There is no control flow: an entry is a list of kernel calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

PLAN_FORMAT = 1

Role = Literal["input", "weight", "adapter", "output", "gradient"]
AdapterKind = Literal["grouped", "lora"]
Projection = Literal["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
"""the quantized matrices of a block, by their names in GGUF"""
MOUNTED = "_mounted"
"""ending of the name of an inference entry that computes an adapter beside the weights"""
Dtype = Literal["float32", "int32", "uint8"]
ITEM_BYTES: Mapping[Dtype, int] = {"float32": 4, "int32": 4, "uint8": 1}
ALIGNMENT = 64
"""bytes: every tensor that a kernel is given starts at a multiple of it"""


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


def _strict(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    known = {f.name for f in fields(cls)}
    if set(data) != known:
        raise ValueError(f"plan: {cls.__name__} has the keys {sorted(data)}, expected {sorted(known)}")
    return dict(data)


@dataclass(frozen=True)
class Operand:
    """A tensor that the runtime binds before it runs an entry."""

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: Dtype

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Operand:
        values = _strict(cls, data)
        return cls(**{**values, "shape": tuple(values["shape"])})


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel call: a view of an operand or of scratch memory."""

    operand: int | None
    """index into Entry.operands; None: scratch memory"""
    offset_bytes: int
    """from the start of the scratch memory; 0 for an operand"""
    shape: tuple[int, ...]
    dtype: Dtype

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Argument:
        values = _strict(cls, data)
        return cls(**{**values, "shape": tuple(values["shape"])})


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel of the library."""

    kernel: str
    arguments: tuple[int, ...]
    """indices into Entry.arguments, inputs first and outputs last"""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KernelCall:
        values = _strict(cls, data)
        return cls(values["kernel"], tuple(values["arguments"]))


@dataclass(frozen=True)
class Entry:
    """One function of the kernel library as a straight line of calls."""

    name: str
    """such as block_vjp"""
    bucket: str
    """static shape: "1x256" is micro-batch x tokens; "" when the entry has only one"""
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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        values = _strict(cls, data)
        values["operands"] = tuple(Operand.from_json(o) for o in values["operands"])
        values["arguments"] = tuple(Argument.from_json(a) for a in values["arguments"])
        values["calls"] = tuple(KernelCall.from_json(c) for c in values["calls"])
        return cls(**values)


@dataclass(frozen=True)
class AdapterTensor:
    """Where one matrix of the adapter stands in the flat vector."""

    name: str
    """GGUF name of the projection and the matrix, such as blk.0.attn_q.weight:A"""
    offset: int
    """in elements"""
    shape: tuple[int, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AdapterTensor:
        values = _strict(cls, data)
        return cls(**{**values, "shape": tuple(values["shape"])})


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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AdapterPlan:
        values = _strict(cls, data)
        return cls(**{**values, "tensors": tuple(AdapterTensor.from_json(t) for t in values["tensors"])})


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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelPlan:
        return cls(**_strict(cls, data))


@dataclass(frozen=True)
class PhaseMemory:
    """What one phase needs at its peak, in bytes; the parts of the seed formula."""

    phase: str
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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PhaseMemory:
        return cls(**_strict(cls, data))


@dataclass(frozen=True)
class Plan:
    """Everything in plan.json."""

    format: int
    model: ModelPlan
    adapter: AdapterPlan
    buckets: tuple[str, ...]
    """training buckets, smallest first"""
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        values = _strict(cls, data)
        if values["format"] != PLAN_FORMAT:
            raise ValueError(f"plan: format {values['format']}, this runtime reads {PLAN_FORMAT}")
        values["model"] = ModelPlan.from_json(values["model"])
        values["adapter"] = AdapterPlan.from_json(values["adapter"])
        values["entries"] = tuple(Entry.from_json(e) for e in values["entries"])
        values["memory"] = tuple(PhaseMemory.from_json(m) for m in values["memory"])
        values["buckets"], values["signatures"] = tuple(values["buckets"]), tuple(values["signatures"])
        return cls(**values)


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


def parse_bucket(bucket: str) -> tuple[int, int]:
    """(micro-batch, tokens) of a bucket such as "1x256"."""
    batch, tokens = bucket.split("x")
    return int(batch), int(tokens)
