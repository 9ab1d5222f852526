"""Which kernel computes which operator.

In:  an operator call with static shapes and the GGUF type of its weight.
Out: the kernel's name; the kernel is built on first use and shared by all entries that need the same one.
A kernel's name is its template and its sizes, so that plan.json can be read without the library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import tvm

from ..kernels import attention, gemm, gemv, head, rows
from ..kernels.block_types import BLOCK_TYPES, BlockType
from ..kernels.isa import Isa

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Site:
    """One operator call."""

    shapes: tuple[Shape, ...]
    """of the arguments"""
    attrs: tvm.ir.Attrs
    weight_type: str
    """GGUF type of the second argument, "" when it is no weight matrix"""

    def number(self, name: str) -> int:
        return int(self.attrs[name])

    @property
    def block(self) -> BlockType:
        """The block type of the weight: the base was brought to types with kernels (bundle/base_model.py)."""
        return BLOCK_TYPES[self.weight_type]


@dataclass
class KernelSet:
    """The kernels of one library, by name."""

    isa: Isa
    functions: dict[str, tvm.tirx.PrimFunc] = field(default_factory=dict)

    def named(self, stem: str, sizes: tuple[int, ...], build: Callable[[str], tvm.tirx.PrimFunc]) -> str:
        """The kernel's name, after building it if it is new."""
        name = f"{stem}_{'x'.join(map(str, sizes))}"
        if name not in self.functions:
            self.functions[name] = build(name)
        return name

    def argument_shapes(self, name: str) -> list[tuple[Shape, str]]:
        """(shape, dtype) of each parameter of a kernel."""
        return [(tuple(int(extent) for extent in p.shape), str(p.dtype)) for p in self.functions[name].params]


def _size(shape: Shape) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


def _linear(s: Site, k: KernelSet) -> str:
    (m, depth), (n, _) = s.shapes
    block = s.block
    if m == 1:
        return k.named(f"matvec_{block.name.lower()}", (n, depth), lambda name: gemv.frozen_matvec(name, n, depth, block))
    return k.named(f"matmul_{block.name.lower()}", (m, n, depth), lambda name: gemm.frozen_matmul(name, m, n, depth, block, k.isa))


def _linear_t(s: Site, k: KernelSet) -> str:
    (m, n), (_, depth) = s.shapes
    block = s.block
    return k.named(f"matmul_t_{block.name.lower()}", (m, n, depth), lambda name: gemm.frozen_matmul_t(name, m, n, depth, block, k.isa))


def _matmul(s: Site, k: KernelSet) -> str:
    form, alpha = str(s.attrs["form"]), float(s.attrs["alpha"])
    a, b = s.shapes
    m, r = (a[1], a[0]) if form == "tn" else a
    n = b[0] if form == "nt" else b[1]
    stem = f"matmul_{form}" if alpha == 1.0 else f"matmul_{form}_{str(alpha).replace('.', '_').replace('-', 'm')}"
    return k.named(stem, (m, n, r), lambda name: gemm.matmul(name, form, m, n, r, alpha, k.isa))


def _rms_norm(s: Site, k: KernelSet) -> str:
    m, d = s.shapes[0]
    epsilon = float(s.attrs["epsilon"])
    return k.named("rms_norm", (m, d), lambda name: rows.rms_norm(name, m, d, epsilon, k.isa))


def _rms_norm_grad(s: Site, k: KernelSet) -> str:
    m, d = s.shapes[0]
    epsilon = float(s.attrs["epsilon"])
    return k.named("rms_norm_grad", (m, d), lambda name: rows.rms_norm_grad(name, m, d, epsilon, k.isa))


def _rope(s: Site, k: KernelSet) -> str:
    (m, total), (tokens, half) = s.shapes[:2]
    batch, heads, inverse = m // tokens, total // (2 * half), bool(s.number("inverse"))
    stem = "rope_inverse" if inverse else "rope"
    return k.named(stem, (batch, tokens, heads, 2 * half), lambda name: rows.rope(name, batch, tokens, heads, 2 * half, inverse))


def _attention(s: Site, k: KernelSet) -> str:
    q, kv, _, (batch, tokens) = s.shapes
    width = s.number("width")
    sizes = (batch, tokens, q[1] // width, kv[1] // width, width)
    return k.named("attention", sizes, lambda name: attention.attention(name, *sizes, k.isa))


def _attention_grad(s: Site, k: KernelSet) -> str:
    _, q, kv, _, (batch, tokens) = s.shapes
    width = s.number("width")
    sizes = (batch, tokens, q[1] // width, kv[1] // width, width)
    return k.named("attention_grad", sizes, lambda name: attention.attention_grad(name, *sizes, k.isa))


def _decode_attention(s: Site, k: KernelSet) -> str:
    q, (context, kv_width), _, _ = s.shapes
    width = s.number("width")
    sizes = (context, q[1] // width, kv_width // width, width)
    return k.named("decode_attention", sizes, lambda name: attention.decode_attention(name, *sizes))


def _sum_heads(s: Site, k: KernelSet) -> str:
    m, total = s.shapes[0]
    width, kv_width = s.number("width"), s.number("kv_width")
    sizes = (m, kv_width // width, total // kv_width, width)
    return k.named("sum_heads", sizes, lambda name: rows.sum_heads(name, *sizes))


def _elementwise(stem: str, build: Callable[..., tvm.tirx.PrimFunc]) -> Callable[[Site, KernelSet], str]:
    def lower_elementwise(s: Site, k: KernelSet) -> str:
        size = _size(s.shapes[0])
        return k.named(stem, (size,), lambda name: build(name, size, k.isa))

    return lower_elementwise


def _group_sum(s: Site, k: KernelSet) -> str:
    m, width = s.shapes[0]
    size = s.number("size")
    return k.named("group_sum", (m, width // size, size), lambda name: rows.group_sum(name, m, width // size, size))


def _group_spread(s: Site, k: KernelSet) -> str:
    m, groups = s.shapes[0]
    size = s.number("size")
    return k.named("group_spread", (m, groups, size), lambda name: rows.group_spread(name, m, groups, size))


def _gather(s: Site, k: KernelSet) -> str:
    (m,), (vocabulary, d) = s.shapes
    block = s.block
    return k.named(f"gather_{block.name.lower()}", (m, vocabulary, d), lambda name: gemv.gather_rows(name, m, vocabulary, d, block))


def _softmax_loss(s: Site, k: KernelSet) -> str:
    c, v = s.shapes[0]
    return k.named("softmax_loss", (c, v), lambda name: head.softmax_loss(name, c, v, k.isa))


KERNELS: dict[str, Callable[[Site, KernelSet], str]] = {
    "mft.linear": _linear,
    "mft.linear_t": _linear_t,
    "mft.matmul": _matmul,
    "mft.rms_norm": _rms_norm,
    "mft.rms_norm_grad": _rms_norm_grad,
    "mft.rope": _rope,
    "mft.attention": _attention,
    "mft.attention_grad": _attention_grad,
    "mft.decode_attention": _decode_attention,
    "mft.sum_heads": _sum_heads,
    "mft.swiglu": _elementwise("swiglu", rows.swiglu),
    "mft.swiglu_grad": _elementwise("swiglu_grad", rows.swiglu_grad),
    "relax.add": _elementwise("add", rows.add),
    "mft.group_sum": _group_sum,
    "mft.group_spread": _group_spread,
    "mft.gather": _gather,
    "mft.softmax_loss": _softmax_loss,
}

IN_PLACE: dict[str, tuple[int, int]] = {"mft.softmax_loss": (1, 0)}
"""operator -> (output, argument whose memory it takes over); such an output is no argument of the kernel of its own"""
