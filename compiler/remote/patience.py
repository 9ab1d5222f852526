"""Try again when the connection breaks.

In:  an action that may raise ConnectionLost.
Out: its result; UserError when several tries in a row brought nothing.
Progress forgives: an action that got further before it broke starts counting anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ...runtime.errors import UserError
from .target import ConnectionLost, Target

Result = TypeVar("Result")
PAUSES_SECONDS = (0.2, 1.0, 3.0, 8.0, 15.0)


class Patience:
    """Counts failures in a row on one target."""

    def __init__(self, target: Target, notice: Callable[[str], None], pause: Callable[[float], None] = time.sleep) -> None:
        self._target, self._notice, self._pause = target, notice, pause
        self._failures = 0

    def progress(self) -> None:
        """Something arrived: the next break is the first again."""
        self._failures = 0

    def keep_trying(self, action: Callable[[], Result], remedy: str) -> Result:
        """Call `action` until it returns; it has to find out by itself where to go on."""
        while True:
            try:
                result = action()
                self.progress()
                return result
            except ConnectionLost as error:
                if self._failures == len(PAUSES_SECONDS):
                    raise UserError(str(self._target.address), f"the connection keeps breaking ({error})", remedy=remedy) from error
                self._notice(f"connection lost ({error}); trying again")
                self._pause(PAUSES_SECONDS[self._failures])
                self._failures += 1
                self._target.reconnect()
