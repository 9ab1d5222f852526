"""Storage that counts its operations, and that fails or stops at one of them."""

from __future__ import annotations

import os
from collections.abc import Callable

from mobilefinetuner.runtime.storage.durable import FileLayer

OPERATIONS = ("create", "open_to_append", "write", "fsync", "replace", "exchange", "fsync_directory", "unlink", "mkdir", "rmdir")


class Recording(FileLayer):
    """Counts the operations and calls `before(number, name, arguments)` ahead of each."""

    def __init__(self, before: Callable[[int, str, tuple], None] = lambda number, name, arguments: None) -> None:
        self.log: list[tuple[str, tuple]] = []
        self._before = before


def _recorded(name: str):
    def operation(self, *arguments):
        self.log.append((name, arguments))
        self._before(len(self.log), name, arguments)
        return getattr(FileLayer, name)(self, *arguments)

    return operation


for _name in OPERATIONS:
    setattr(Recording, _name, _recorded(_name))


def failing_layer(number: int, error: int, harmless: tuple[str, ...]) -> Recording:
    """From operation `number` on the storage refuses everything but `harmless`."""

    def before(count: int, name: str, arguments: tuple) -> None:
        if count >= number and name not in harmless:
            raise OSError(error, os.strerror(error))

    return Recording(before)


def failing_once(number: int, error: int) -> Recording:
    """Operation `number` is refused; whatever comes after it works again."""

    def before(count: int, name: str, arguments: tuple) -> None:
        if count == number:
            raise OSError(error, os.strerror(error))

    return Recording(before)
