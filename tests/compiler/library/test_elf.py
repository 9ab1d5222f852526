"""Every kernel library loads anywhere: the flaws that one loader forgives and another refuses are all found, and ours has none."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys

import pytest
from elftools.elf.constants import P_FLAGS
from elftools.elf.enums import ENUM_P_TYPE_BASE
from mobilefinetuner.compiler.kernels import gemm, rows
from mobilefinetuner.compiler.kernels.block_types import BLOCK_TYPES
from mobilefinetuner.compiler.kernels.isa import isa_for
from mobilefinetuner.compiler.kernels.kernel_set import KernelSet
from mobilefinetuner.compiler.library.build import build_library, target_for
from mobilefinetuner.compiler.library.elf import library_flaws, read_library

TARGETS = {
    "x86_64": ("x86_64-linux-gnu", "x86-64-v3", ("avx2", "fma")),
    "aarch64": ("aarch64-linux-android", "cortex-a76", ("fp", "asimd", "fphp", "asimdhp", "asimddp")),
    "aarch64-oldest": ("aarch64-linux-android", "generic", ("fp", "asimd")),
}


@pytest.fixture(scope="module", params=TARGETS)
def library(request) -> tuple[str, bytes]:
    """A library with a kernel that is parallel, one that calls exp, one that needs workspace."""
    mtriple, cpu, features = TARGETS[request.param]
    arch = mtriple.split("-")[0]
    kernels = KernelSet(isa_for(arch, features))
    kernels.named(gemm.frozen_matmul, 8, 32, 64, BLOCK_TYPES["Q4_1"])
    kernels.named(rows.swiglu, 128)
    return arch, build_library(kernels, target_for(arch, mtriple, cpu, features), arch)


def test_a_kernel_library_has_nothing_that_a_loader_could_refuse(library):
    arch, data = library
    assert library_flaws(data, arch) == []


def test_a_kernel_library_exports_its_kernels_and_the_pool(library):
    exported = read_library(library[1]).exported
    assert {"__tvm_ffi_matmul_q4_1_8x32x64", "__tvm_ffi_swiglu_128", "mft_worker_loop", "mft_last_error"} <= set(exported)


def test_the_reader_agrees_with_binutils(library, tmp_path):
    readelf = shutil.which("readelf")
    if not readelf:
        pytest.skip("readelf (binutils) is not installed")
    (tmp_path / "kernels.so").write_bytes(library[1])
    listing = subprocess.run([readelf, "--dyn-syms", "-W", "kernels.so"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    rows_ = [line.split() for line in listing.splitlines() if line.strip()[:1].isdigit()]
    assert sorted(row[7] for row in rows_ if len(row) > 7 and row[6] != "UND") == sorted(read_library(library[1]).exported)


def test_a_library_for_another_machine_is_noticed(library):
    arch, data = library
    other = "x86_64" if arch == "aarch64" else "aarch64"
    assert library_flaws(data, other) == [f"it is made for {arch} and not for {other}"]


BAD = """
extern float expf(float);
__thread int counter;
int answer(float x) { return (int)expf(x) + counter++; }
"""


@pytest.fixture(scope="module")
def careless_library(tmp_path_factory):
    """What a linker makes of ordinary C when nobody tells it otherwise."""

    def build(source: str, *flags: str) -> bytes:
        folder = tmp_path_factory.mktemp("careless")
        (folder / "a.c").write_text(source)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu", "-shared", "-fPIC", "-O1", *flags, "-o", "a.so", "a.c"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return (folder / "a.so").read_bytes()

    return build


@pytest.mark.parametrize(
    ("flags", "flaw"),
    [
        ((), "the symbol expf is undefined"),
        ((), "the symbol counter is thread-local"),
        ((), "it has a segment of thread-local storage"),
        ((), "it needs the library libm.so.6"),
        ((), "its SONAME is missing and not kernels.so"),
        (("-Wl,-soname,other.so",), "its SONAME is other.so and not kernels.so"),
        (("-Wl,--hash-style=gnu",), "it has no sysv hash table"),
        (("-Wl,--hash-style=sysv",), "it has no gnu hash table"),
        (("-Wl,-z,max-page-size=4096",), "is not aligned to 16384 bytes"),
    ],
)
def test_each_flaw_of_a_careless_library_is_named(flags, flaw, careless_library):
    found = library_flaws(careless_library(BAD, "-lm", *flags), "aarch64")
    assert any(flaw in line for line in found), found


def test_what_no_linker_of_ours_produces_is_named_as_well(library):
    arch, data = library
    changed = bytearray(data)
    table = int.from_bytes(data[32:40], "little")
    for at in range(table, table + 56 * int.from_bytes(data[56:58], "little"), 56):
        kind = int.from_bytes(data[at : at + 4], "little")
        if kind == ENUM_P_TYPE_BASE["PT_LOAD"] and data[at + 4] & P_FLAGS.PF_X:
            changed[at + 4] |= P_FLAGS.PF_W
        if kind == ENUM_P_TYPE_BASE["PT_GNU_STACK"]:
            changed[at + 4] |= P_FLAGS.PF_X
    start = data.index((30).to_bytes(8, "little"), table + 56 * 9)  # DT_FLAGS: SYMBOLIC | BIND_NOW
    changed[start + 8] |= 4
    found = library_flaws(bytes(changed), arch)
    assert "it has text relocations" in found and "it asks for an executable stack" in found
    assert any("writable and executable" in line for line in found)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n" * 99, b"\x7fELF\x02\x01\x01" + bytes(600)], ids=["empty", "stub", "text", "zeros"])
def test_what_is_no_library_is_named_and_not_a_crash(data):
    assert library_flaws(data, "aarch64") == ["it is not a 64-bit little-endian shared library"]


def test_a_damaged_library_is_judged_and_not_a_crash(careless_library):
    """Cut short at every length, and with every byte of its headers and tables turned over."""
    data = careless_library("int answer(int x) { return x + 1; }", "-nostdlib", "-s", "-Wl,--hash-style=both", "-Wl,-soname,kernels.so")
    damaged = [data[:n] for n in range(0, len(data), 7)]
    damaged += [data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :] for at in range(min(len(data), 1500))]
    for found in map(library_flaws, damaged, itertools.repeat("aarch64")):
        assert all(isinstance(flaw, str) for flaw in found)


def test_arm_code_leaves_the_platforms_register_alone(library, tmp_path):
    arch, data = library
    objdump = shutil.which("llvm-objdump") or shutil.which("aarch64-linux-gnu-objdump")
    if arch != "aarch64" or not objdump:
        pytest.skip("only for arm64, and where a disassembler for it is installed")
    (tmp_path / "kernels.so").write_bytes(data)
    text = subprocess.run([objdump, "-d", "kernels.so"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "fmla" in text and not re.search(r"\b[xw]18\b", text)
