"""Call something on a stack that holds nothing else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def on_a_short_stack(function: Callable[..., Result], *arguments: object) -> Result:
    """function(*arguments) in a thread of its own: TVM's parser looks at every frame of the stack for every kernel, and pytest's is deep."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function, *arguments).result()
