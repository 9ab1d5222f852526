"""Check that a kernel library loads under glibc, musl and Android's bionic alike.

In:  the bytes of a shared library (ELF, 64-bit, little-endian).
Out: what would keep it from loading somewhere, in words; empty when it is portable.
A loader's forgiveness hides these flaws on the desktop: glibc binds a stray expf to whatever the process has, bionic refuses it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

SEGMENT_ALIGNMENT = 16384
"""Android 15 devices and the Raspberry Pi 5 have pages of 16 KiB"""
# elf.h
PT_LOAD, PT_DYNAMIC, PT_TLS, PT_GNU_STACK = 1, 2, 7, 0x6474E551
PF_X, PF_W = 1, 2
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_SONAME, DT_TEXTREL, DT_FLAGS, DT_GNU_HASH = 1, 4, 5, 6, 14, 22, 30, 0x6FFFFEF5
DF_TEXTREL = 4
STT_TLS = 6
MACHINES = {62: "x86_64", 183: "aarch64"}
SYMBOL_BYTES = 24


@dataclass(frozen=True)
class Segment:
    """One program header."""

    kind: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    alignment: int


@dataclass(frozen=True)
class SharedLibrary:
    """What a dynamic loader sees of a library."""

    arch: str
    """x86_64, aarch64, or the machine's number"""
    segments: tuple[Segment, ...]
    dynamic: tuple[tuple[int, int], ...]
    """(tag, value) in order"""
    strings: dict[int, str]
    """value of a DT_NEEDED or DT_SONAME -> its text"""
    undefined: tuple[str, ...]
    """symbols that somebody else would have to define"""
    thread_local: tuple[str, ...]
    """symbols in thread-local storage"""
    exported: tuple[str, ...]
    """symbols it defines"""

    def values(self, tag: int) -> list[int]:
        """Values of every entry with this tag."""
        return [value for found, value in self.dynamic if found == tag]


def read_library(data: bytes) -> SharedLibrary:
    """Parse the parts that a loader uses. ValueError when it is no 64-bit little-endian shared library."""
    if data[:7] != b"\x7fELF\x02\x01\x01" or struct.unpack_from("<H", data, 16)[0] != 3:
        raise ValueError("not a 64-bit little-endian shared library")
    machine = struct.unpack_from("<H", data, 18)[0]
    table, entry_bytes, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    segments = tuple(_segment(data, table + i * entry_bytes) for i in range(count))
    dynamic = tuple(_dynamic_entries(data, segments))
    tags = dict(dynamic)
    names = _at(segments, tags[DT_STRTAB])
    symbols = [_symbol(data, _at(segments, tags[DT_SYMTAB]) + i * SYMBOL_BYTES) for i in range(_symbol_count(data, segments, tags))][1:]
    texts = {value: _text(data, names + value) for tag, value in dynamic if tag in (DT_NEEDED, DT_SONAME)}
    named = [(_text(data, names + name), kind, section) for name, kind, section in symbols]
    return SharedLibrary(
        MACHINES.get(machine, str(machine)), segments, dynamic, texts,
        undefined=tuple(name for name, _, section in named if section == 0),
        thread_local=tuple(name for name, kind, _ in named if kind == STT_TLS),
        exported=tuple(name for name, _, section in named if section),
    )  # fmt: skip


def library_flaws(data: bytes, arch: str, soname: str = "kernels.so") -> list[str]:
    """Everything that makes the library depend on one C library, one page size or one loader."""
    try:
        library = read_library(data)
    except (ValueError, KeyError, struct.error, StopIteration):
        return ["it is not a 64-bit little-endian shared library"]
    return [*_linkage_flaws(library, arch, soname), *_segment_flaws(library)]


def _linkage_flaws(library: SharedLibrary, arch: str, soname: str) -> list[str]:
    flaws = [f"it is made for {library.arch} and not for {arch}"] if library.arch != arch else []
    flaws += [f"it needs the library {library.strings[value]}" for value in library.values(DT_NEEDED)]
    flaws += [f"the symbol {name} is undefined" for name in library.undefined]
    flaws += [f"the symbol {name} is thread-local" for name in library.thread_local]
    if library.values(DT_TEXTREL) or any(value & DF_TEXTREL for value in library.values(DT_FLAGS)):
        flaws.append("it has text relocations")
    named = [library.strings[value] for value in library.values(DT_SONAME)]
    if named != [soname]:
        flaws.append(f"its SONAME is {named[0] if named else 'missing'} and not {soname}")
    for tag, name in ((DT_HASH, "sysv"), (DT_GNU_HASH, "gnu")):
        if not library.values(tag):
            flaws.append(f"it has no {name} hash table")
    return flaws


def _segment_flaws(library: SharedLibrary) -> list[str]:
    flaws = []
    for segment in library.segments:
        where = f"the segment at {segment.address:#x}"
        if segment.kind == PT_TLS:
            flaws.append("it has a segment of thread-local storage")
        if segment.kind != PT_LOAD:
            continue
        if segment.alignment % SEGMENT_ALIGNMENT or not segment.alignment or (segment.address - segment.offset) % SEGMENT_ALIGNMENT:
            flaws.append(f"{where} is not aligned to {SEGMENT_ALIGNMENT} bytes")
        if segment.flags & PF_W and segment.flags & PF_X:
            flaws.append(f"{where} is writable and executable")
    stacks = [segment for segment in library.segments if segment.kind == PT_GNU_STACK]
    if not stacks or stacks[0].flags & PF_X:
        flaws.append("it asks for an executable stack")
    return flaws


def _segment(data: bytes, at: int) -> Segment:
    kind, flags, offset, address, _, file_bytes, _, alignment = struct.unpack_from("<IIQQQQQQ", data, at)
    return Segment(kind, flags, offset, address, file_bytes, alignment)


def _dynamic_entries(data: bytes, segments: tuple[Segment, ...]):
    where = next(segment for segment in segments if segment.kind == PT_DYNAMIC)
    for at in range(where.offset, where.offset + where.file_bytes, 16):
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == 0:
            return
        yield tag, value


def _at(segments: tuple[Segment, ...], address: int) -> int:
    """File offset of a virtual address."""
    inside = next(s for s in segments if s.kind == PT_LOAD and s.address <= address < s.address + s.file_bytes)
    return address - inside.address + inside.offset


def _symbol(data: bytes, at: int) -> tuple[int, int, int]:
    """(offset of the name, type, section)."""
    name, info, _, section = struct.unpack_from("<IBBH", data, at)
    return name, info & 15, section


def _symbol_count(data: bytes, segments: tuple[Segment, ...], tags: dict[int, int]) -> int:
    """From the sysv hash table (its nchain), else from the longest chain of the gnu one."""
    if DT_HASH in tags:
        return struct.unpack_from("<I", data, _at(segments, tags[DT_HASH]) + 4)[0]
    at = _at(segments, tags[DT_GNU_HASH])
    buckets, first, bloom, _ = struct.unpack_from("<IIII", data, at)
    chains = at + 16 + 8 * bloom + 4 * buckets
    last = max(struct.unpack_from(f"<{buckets}I", data, chains - 4 * buckets), default=0)
    if last < first:  # nothing is exported: what comes before `first` is undefined
        return first
    while not struct.unpack_from("<I", data, chains + 4 * (last - first))[0] & 1:
        last += 1
    return last + 1


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")
