"""Load kernels.so and call it: argument packing, worker threads, error texts.

In:  the library's path, the workspace size from the plan.
Out: KernelLibrary, whose `program` binds an entry of the plan once, so that running it only makes the calls.
Worker threads are Python's, so that the library needs no thread library; each is parked inside the library, where it holds no
interpreter lock. The call ABI is TVM-FFI's: int __tvm_ffi_NAME(void*, TVMFFIAny*, int32, TVMFFIAny*) with DLTensor* arguments.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..bundle.plan import ALIGNMENT, Dtype, Entry
from ..errors import MftError
from .executable_place import executable_path

CPU_DEVICE = 1
DLTENSOR_POINTER = 7
DTYPES: Mapping[Dtype, tuple[int, int]] = {"float32": (2, 32), "int32": (0, 32), "uint8": (1, 8)}
"""DLPack type code and bits"""
DLTENSOR = np.dtype(
    [("data", "u8"), ("device_type", "i4"), ("device_id", "i4"), ("ndim", "i4"), ("code", "u1"), ("bits", "u1"), ("lanes", "u2"),
     ("shape", "u8"), ("strides", "u8"), ("byte_offset", "u8")]
)  # fmt: skip
"""DLPack's tensor; null strides mean row-major and compact"""
FFI_ANY = np.dtype([("type_index", "i4"), ("padding", "u4"), ("value", "u8")])
"""TVM-FFI's tagged value"""


def aligned_bytes(size: int) -> np.ndarray:
    """Zeroed u8 memory whose first byte is 64-byte aligned, as generated kernels demand."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


class Program:
    """The calls of one entry with every argument packed: running it costs one ctypes call per kernel."""

    __slots__ = ("_calls", "_library", "_memory", "_result")

    def __init__(self, library: KernelLibrary, calls: list[tuple[Callable[..., int], int, int, str]], memory: tuple[object, ...]) -> None:
        self._library, self._calls, self._memory = library, calls, memory
        self._result = np.zeros(1, FFI_ANY)

    def run(self) -> None:
        """Call the kernels in order. MftError carries the text of the first that fails."""
        result = self._result.ctypes.data
        for function, arguments, count, name in self._calls:
            if function(None, arguments, count, result):
                raise MftError(f"kernel {name} failed: {self._library.last_error()}")


class KernelLibrary:
    """The loaded library with its pool of threads. Kernels must be called on the thread that opened it."""

    def __init__(self, path: Path, workspace_bytes: int, threads: int) -> None:
        """threads: how many may compute at most, the calling thread included. MftError when the pool is in use already."""
        self._library = ctypes.CDLL(str(executable_path(path)))
        self._library.mft_last_error.restype = ctypes.c_char_p
        if not self._library.mft_pool_claim():
            raise MftError(f"{path}: this process has the kernel library open already")
        self.threads = threads
        self._functions: dict[str, Callable[..., int]] = {}
        self._shapes: dict[tuple[int, ...], np.ndarray] = {}
        self._workspaces = [aligned_bytes(workspace_bytes) for _ in range(threads)]
        for index, memory in enumerate(self._workspaces):
            if self._library.mft_workspace(index, ctypes.c_void_p(memory.ctypes.data), ctypes.c_ulong(memory.nbytes)):
                self._library.mft_pool_release()
                raise MftError(f"the kernel library has no place for {threads} threads")
        self._library.mft_workspace_owner(0)
        epoch = self._library.mft_pool_epoch()
        self._workers = [threading.Thread(target=self._work, args=(i, epoch), daemon=True) for i in range(1, threads)]
        for worker in self._workers:
            worker.start()
        self.set_width(threads)

    def _work(self, index: int, epoch: int) -> None:
        self._library.mft_worker_loop(index, epoch)

    def set_width(self, width: int) -> None:
        """Let `width` threads compute from the next call on; results do not depend on it."""
        self.width = max(1, min(width, self.threads))
        self._library.mft_pool_width(self.width)

    def last_error(self) -> str:
        """The text that the last failing kernel left."""
        return self._library.mft_last_error().decode("utf-8", "replace")

    def program(self, entry: Entry, operands: Mapping[str, int], scratch: int) -> Program:
        """`entry` with its operands at these addresses and its scratch memory at `scratch`; all of them 64-byte aligned.

        KeyError names an operand without an address.
        """
        tensors = np.zeros(len(entry.arguments), DLTENSOR)
        for record, argument in zip(tensors, entry.arguments):
            code, bits = DTYPES[argument.dtype]
            base = scratch + argument.offset_bytes if argument.operand is None else operands[entry.operands[argument.operand].name]
            record["data"], record["device_type"], record["ndim"] = base, CPU_DEVICE, len(argument.shape)
            record["code"], record["bits"], record["lanes"] = code, bits, 1
            record["shape"] = self._shape(argument.shape)
        packed = np.zeros(sum(len(call.arguments) for call in entry.calls), FFI_ANY)
        packed["type_index"] = DLTENSOR_POINTER
        calls, position = [], 0
        for call in entry.calls:
            count = len(call.arguments)
            packed["value"][position : position + count] = tensors.ctypes.data + DLTENSOR.itemsize * np.array(call.arguments, np.uint64)
            calls.append((self._function(call.kernel), packed.ctypes.data + position * FFI_ANY.itemsize, count, call.kernel))
            position += count
        return Program(self, calls, (tensors, packed))

    def _shape(self, shape: tuple[int, ...]) -> int:
        """Address of an int64 array with this shape; equal shapes share one."""
        if shape not in self._shapes:
            self._shapes[shape] = np.array(shape, np.int64)
        return self._shapes[shape].ctypes.data

    def _function(self, kernel: str) -> Callable[..., int]:
        """The library's function for a kernel; MftError when there is none."""
        if kernel not in self._functions:
            try:
                function = getattr(self._library, f"__tvm_ffi_{kernel}")
            except AttributeError:
                raise MftError(f"the kernel library has no kernel {kernel!r}: plan.json belongs to another library") from None
            function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
            self._functions[kernel] = function
        return self._functions[kernel]

    def close(self) -> None:
        """Stop the workers; kernels must not be called any more."""
        self._library.mft_pool_stop()
        for worker in self._workers:
            worker.join()
        self._library.mft_pool_release()


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
