"""Try again when the connection breaks.

In:  an action that may raise ConnectionLost.
Out: its result; UserError when several tries in a row brought nothing.
Progress forgives: an action that got further before it broke starts counting anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...runtime.errors import UserError
from .target import ConnectionLost, Target

Result = TypeVar("Result")
PAUSES_SECONDS = (0.2, 1.0, 3.0, 8.0, 15.0)
FOLLOWING_PAUSES_SECONDS = (*PAUSES_SECONDS, *[30.0] * 20)
"""whoever follows a run of hours waits ten minutes for a phone that went out of reach"""


class Retry:
    """Counts failures in a row on one target."""

    def __init__(
        self, target: Target, notice: Callable[[str], None], pause: Callable[[float], None] = time.sleep, pauses: Sequence[float] = PAUSES_SECONDS
    ) -> None:
        self._target, self._notice, self._pause, self._pauses = target, notice, pause, pauses
        self._failures = 0

    def progress(self) -> None:
        """Something arrived: the next break is the first again."""
        self._failures = 0

    def until_done(self, action: Callable[[], Result], remedy: str) -> Result:
        """Call `action` until it returns; it has to find out by itself where to go on."""
        while True:
            try:
                result = action()
                self.progress()
                return result
            except ConnectionLost as error:
                if self._failures == len(self._pauses):
                    found = f"the connection keeps breaking ({self._reason(error)})"
                    raise UserError(str(self._target.address), found, remedy=remedy) from error
                self._notice(f"connection lost ({self._reason(error)}); trying again")
                self._pause(self._pauses[self._failures])
                self._failures += 1
                self._target.reconnect()

    def _reason(self, error: ConnectionLost) -> str:
        """The error's words without the address, which the reader knows."""
        return str(error).removeprefix(f"{self._target.address}: ")
