"""Show a running job: one line that renews itself on a terminal, a line now and then in a log.

In:  StepReports.
Out: text on stderr: step, loss, tokens per second, memory, time left.
"""

from __future__ import annotations

import sys
import time

from ..engine.memory import peak_rss_bytes
from .trainer import StepReport

LOG_EVERY_SECONDS = 5.0


class StepLine:
    """Shows the newest step."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = float("-inf")

    def show(self, report: StepReport) -> None:
        """Called after every step."""
        last = report.step == report.steps
        now = time.monotonic()
        if not self._is_terminal and now - self._shown < LOG_EVERY_SECONDS and not last:
            return
        self._shown = now
        moved = "" if report.replay_loss is None else f"  replay {report.replay_loss:.3f}"
        line = (
            f"step {report.step}/{report.steps}  loss {report.loss:.3f}{moved}  {report.tokens_per_second:,.0f} tokens/s  "
            f"{peak_rss_bytes() / 2**20:,.0f} MB  {duration(report.seconds_left)} left"
        )
        if self._is_terminal:
            print(f"\r{line:<78}", end="\n" if last else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Whole minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
