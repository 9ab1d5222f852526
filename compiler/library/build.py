"""Compile kernels into one freestanding shared library for the device.

In:  KernelSet, the device's target.
Out: kernels.so: no needed library, no undefined symbol, no text relocation, no thread-local storage; 16 KiB segments.
The linker is zig's, which brings every target with it; the C side is shim.c and uses no libc.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tvm

from ...runtime.bundle.plan import aligned
from ...runtime.errors import MftError
from ..kernels.kernel_set import KernelSet
from ..recipe.cpu_targets import llvm_attributes
from .elf import library_flaws

SHIM = Path(__file__).with_name("shim.c")
LINK_FLAGS = (
    "-shared", "-Wl,--no-undefined", "-Wl,-z,now", "-Wl,-z,max-page-size=16384", "-Wl,-z,noexecstack", "-Wl,-Bsymbolic",
    "-Wl,--hash-style=both", "-Wl,--build-id=none", "-Wl,-soname,kernels.so", "-s",
)  # fmt: skip
COMPILE_FLAGS = ("-nostdlib", "-ffreestanding", "-fPIC", "-O2", "-fno-sanitize=all", "-fno-stack-protector")
RESERVED = {"aarch64": ("+reserve-x18", "-ffixed-x18")}
"""Register x18 belongs to the platform on Android, where a shadow call stack may live in it: (for LLVM, for the C compiler)"""
NATURAL_VECTORS = {"x86-64-v4": ("-prefer-256-bit",)}
"""LLVM splits 512-bit vectors for this cpu by default; the register tiles are made of them."""


def target_for(arch: str, mtriple: str, cpu: str, features: tuple[str, ...]) -> tvm.target.Target:
    """TVM's target of a device profile."""
    attributes = [*llvm_attributes(arch, features), *NATURAL_VECTORS.get(cpu, ()), *RESERVED.get(arch, ())[:1]]
    return tvm.target.Target({"kind": "llvm", "mtriple": mtriple, "mcpu": cpu, **({"mattr": attributes} if attributes else {})})


def build_library(kernels: KernelSet, target: tvm.target.Target, arch: str) -> bytes:
    """The library as bytes; the same kernels and target give the same bytes."""
    module = tvm.IRModule({name: kernels.functions[name] for name in sorted(kernels.functions)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.so"

        def link(output: str, objects: list[str], options: list[str] | None = None, **_: object) -> None:
            _link(arch, Path(output), [Path(o) for o in objects])

        link.output_format = "so"  # type: ignore[attr-defined]
        tvm.compile(module, target=target).export_library(str(path), fcompile=link)
        library = path.read_bytes()
    flaws = library_flaws(library, arch)
    if flaws:
        raise MftError(f"the kernel library would not load everywhere: {'; '.join(flaws)}")
    return library


def _link(arch: str, output: Path, objects: list[Path]) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-musl", *COMPILE_FLAGS, *LINK_FLAGS, "-o", str(output)]
    command += RESERVED.get(arch, ())[1:]
    result = subprocess.run([*command, *map(str, objects), str(SHIM)], capture_output=True, text=True)
    if result.returncode:
        raise MftError(f"linking the kernel library failed: {result.stderr.strip()[-2000:]}")


def workspace_bytes(kernels: KernelSet) -> int:
    """Upper bound on the memory that one thread's local buffers take in any kernel."""
    return max(sum(_local_buffers(function.body)) for function in kernels.functions.values())


def _local_buffers(node: tvm.ir.Node) -> Iterator[int]:
    """Bytes of every buffer that a statement allocates, nested ones included."""
    if isinstance(node, tvm.tirx.AllocBuffer):
        size = tvm.DataType(str(node.buffer.dtype)).bits // 8
        for extent in node.buffer.shape:
            size *= int(extent)
        yield aligned(size)
    for name in ("seq", "body", "then_case", "else_case"):
        child = getattr(node, name, None)
        for part in child if name == "seq" and child is not None else (child,):
            if part is not None:
                yield from _local_buffers(part)
