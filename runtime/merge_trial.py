"""Does a merged file still know what the adapter beside the weights knows? Measured before the file becomes a version.

In:  the version that was trained on, the adapter, the held-out samples and the test conversations.
Out: MergeTrial: `keeps(file, way)`, and the scores of the mounted adapter and of the last file.
The answers are only asked for when the loss was kept, because they take longest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .adapter_tensors import AdapterTensors
from .gguf_file import GgufFile
from .merge_policies import Way
from .session import Session
from .verification import Scores, Yardstick, compare_merge, measure
from .versions import OpenedVersion


@dataclass(frozen=True)
class Attempt:
    """One merged file that was measured."""

    way: str
    n_bytes: int
    heldout_loss: float | None
    kept: bool

    def as_json(self) -> dict[str, Any]:
        return {"way": self.way, "bytes": self.n_bytes, "heldout_loss": self.heldout_loss, "kept": self.kept}


class MergeTrial:
    """Measures merged files against the mounted adapter."""

    def __init__(self, session: Session, parent: OpenedVersion, adapter: AdapterTensors, yardstick: Yardstick) -> None:
        self._session, self._yardstick = session, replace(yardstick, probes=())
        session.say("measuring the adapter before the merge")
        self.mounted: Scores = self._measure(OpenedVersion(parent.id, parent.model, (), adapter), self._yardstick)
        self.last: Scores = self.mounted
        """of the file that was measured last"""
        self.attempts: list[Attempt] = []

    def keeps(self, model: GgufFile, way: Way) -> bool:
        """Whether the file loses nothing beyond the tolerance; says what was found."""
        self._session.say(f"measuring the merged file ({way}, {model.size_bytes / 1e6:,.1f} MB)")
        candidate = OpenedVersion(str(way), model, ())
        self.last = self._measure(candidate, replace(self._yardstick, cases=()))
        comparison = compare_merge(self.mounted, self.last)
        if comparison.kept and self._yardstick.cases:
            self.last = replace(self.last, answers=self._measure(candidate, replace(self._yardstick, heldout=())).answers)
            comparison = compare_merge(self.mounted, self.last)
        self.attempts.append(Attempt(str(way), model.size_bytes, self.last.heldout_loss, comparison.kept))
        if not comparison.kept:
            self._session.say(f"{way}: {comparison}")
        return comparison.kept

    def _measure(self, model: OpenedVersion, yardstick: Yardstick) -> Scores:
        return measure(self._session, model, yardstick, self._session.say)
