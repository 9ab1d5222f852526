"""Show a running job: one line that renews itself on a terminal, a line now and then in a log.

In:  StepReports.
Out: text on stderr: step, losses, time left, tokens per second, memory; on a narrow terminal as much of it as fits.
"""

from __future__ import annotations

import shutil
import sys
import time

from ..engine.memory import peak_rss_bytes
from .replay import ReplayLoss
from .trainer import StepReport

LOG_EVERY_SECONDS = 5.0


class StepLine:
    """Shows the newest step."""

    def __init__(self, replay_loss: ReplayLoss) -> None:
        """replay_loss: what a report's replay_loss is."""
        self._replay_name = "kl" if replay_loss == "kl" else "replay"
        self._is_terminal = sys.stderr.isatty()
        self._shown = float("-inf")
        self._is_open = False

    def show(self, report: StepReport) -> None:
        """Called after every step."""
        last = report.step == report.steps
        now = time.monotonic()
        if not self._is_terminal and now - self._shown < LOG_EVERY_SECONDS and not last:
            return
        self._shown = now
        parts = step_parts(report, self._replay_name)
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{fitting(parts, width):<{width}}", end="", file=sys.stderr, flush=True)
            self._is_open = True
        else:
            print("  ".join(parts), file=sys.stderr, flush=True)

    def end(self) -> None:
        """What is printed next begins a line of its own."""
        if self._is_open:
            print(file=sys.stderr, flush=True)
        self._is_open = False


def step_parts(report: StepReport, replay_name: str) -> list[str]:
    """What a line says, the most important first."""
    return [
        f"step {report.step}/{report.steps}",
        f"loss {report.loss:.3f}",
        *([] if report.heldout_loss is None else [f"held-out {report.heldout_loss:.3f}"]),
        *([] if report.replay_loss is None else [f"{replay_name} {report.replay_loss:.2f}"]),
        f"{duration(report.seconds_left)} left",
        f"{report.tokens_per_second:,.0f} tokens/s",
        f"{peak_rss_bytes() / 2**20:,.0f} MB",
    ]


def fitting(parts: list[str], width: int) -> str:
    """The first parts, as many as stand in one line of that width."""
    while len(parts) > 1 and len("  ".join(parts)) > width:
        parts = parts[:-1]
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Whole minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
