"""Check that a kernel library loads under glibc, musl and Android's bionic alike.

In:  the bytes of a shared library (ELF, 64-bit, little-endian), which pyelftools reads.
Out: what would keep it from loading somewhere, in words; empty when it is portable.
A loader's forgiveness hides these flaws on the desktop: glibc binds a stray expf to whatever the process has, bionic refuses it.
Only what a loader sees counts (segments, dynamic tags and symbols), not the sections.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.constants import P_FLAGS
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_DT_FLAGS
from elftools.elf.segments import Segment

SEGMENT_ALIGNMENT = 16384
"""Android 15 devices and the Raspberry Pi 5 have pages of 16 KiB"""
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
HASH_TABLES = {"DT_HASH": "sysv", "DT_GNU_HASH": "gnu"}


@dataclass(frozen=True)
class SharedLibrary:
    """What a dynamic loader sees of a library."""

    arch: str
    """x86_64, aarch64, or what the machine is called in elf.h"""
    segments: tuple[Segment, ...]
    needed: tuple[str, ...]
    """libraries that must be loaded with it"""
    sonames: tuple[str, ...]
    hash_tables: tuple[str, ...]
    """sysv, gnu"""
    has_text_relocations: bool
    undefined: tuple[str, ...]
    """symbols that somebody else would have to define"""
    thread_local: tuple[str, ...]
    """symbols in thread-local storage"""
    exported: tuple[str, ...]
    """symbols it defines"""


def read_library(data: bytes) -> SharedLibrary:
    """The parts that a loader uses. ValueError when it is no 64-bit little-endian shared library."""
    try:
        elf = ELFFile(io.BytesIO(data))
        if elf.elfclass != 64 or not elf.little_endian or elf["e_type"] != "ET_DYN":
            raise ValueError("not a 64-bit little-endian shared library")
        return _read(elf)
    except (ELFError, ConstructError, AssertionError, OverflowError, struct.error) as error:
        raise ValueError(f"not a readable ELF file: {error}") from None


def _read(elf: ELFFile) -> SharedLibrary:
    segments = tuple(elf.iter_segments())
    dynamic = next((segment for segment in segments if isinstance(segment, DynamicSegment)), None)
    if dynamic is None:
        raise ValueError("not a shared library: it has no dynamic segment")
    tags = list(dynamic.iter_tags())
    kinds = {tag.entry.d_tag for tag in tags}
    flags = [tag["d_val"] for tag in tags if tag.entry.d_tag == "DT_FLAGS"]
    symbols = list(dynamic.iter_symbols())[1:]  # the first stands for none
    defined = [symbol for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"]
    return SharedLibrary(
        MACHINES.get(elf["e_machine"], str(elf["e_machine"])), segments,
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        sonames=tuple(tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"),
        hash_tables=tuple(name for kind, name in HASH_TABLES.items() if kind in kinds),
        has_text_relocations="DT_TEXTREL" in kinds or any(value & ENUM_DT_FLAGS["DF_TEXTREL"] for value in flags),
        undefined=tuple(symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF"),
        thread_local=tuple(symbol.name for symbol in symbols if symbol["st_info"]["type"] == "STT_TLS"),
        exported=tuple(symbol.name for symbol in defined),
    )  # fmt: skip


def library_flaws(data: bytes, arch: str, soname: str = "kernels.so") -> list[str]:
    """Everything that makes the library depend on one C library, one page size or one loader."""
    try:
        library = read_library(data)
    except ValueError:
        return ["it is not a 64-bit little-endian shared library"]
    return [*_linkage_flaws(library, arch, soname), *_segment_flaws(library)]


def _linkage_flaws(library: SharedLibrary, arch: str, soname: str) -> list[str]:
    flaws = [f"it is made for {library.arch} and not for {arch}"] if library.arch != arch else []
    flaws += [f"it needs the library {name}" for name in library.needed]
    flaws += [f"the symbol {name} is undefined" for name in library.undefined]
    flaws += [f"the symbol {name} is thread-local" for name in library.thread_local]
    if library.has_text_relocations:
        flaws.append("it has text relocations")
    if library.sonames != (soname,):
        flaws.append(f"its SONAME is {library.sonames[0] if library.sonames else 'missing'} and not {soname}")
    return flaws + [f"it has no {name} hash table" for name in HASH_TABLES.values() if name not in library.hash_tables]


def _segment_flaws(library: SharedLibrary) -> list[str]:
    flaws = []
    for segment in library.segments:
        where = f"the segment at {segment['p_vaddr']:#x}"
        if segment["p_type"] == "PT_TLS":
            flaws.append("it has a segment of thread-local storage")
        if segment["p_type"] != "PT_LOAD":
            continue
        alignment, shift = segment["p_align"], segment["p_vaddr"] - segment["p_offset"]
        if alignment % SEGMENT_ALIGNMENT or not alignment or shift % SEGMENT_ALIGNMENT:
            flaws.append(f"{where} is not aligned to {SEGMENT_ALIGNMENT} bytes")
        if segment["p_flags"] & P_FLAGS.PF_W and segment["p_flags"] & P_FLAGS.PF_X:
            flaws.append(f"{where} is writable and executable")
    stacks = [segment for segment in library.segments if segment["p_type"] == "PT_GNU_STACK"]
    if not stacks or stacks[0]["p_flags"] & P_FLAGS.PF_X:
        flaws.append("it asks for an executable stack")
    return flaws
