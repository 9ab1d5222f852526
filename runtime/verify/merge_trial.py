"""Does a merged file still know what the adapter beside the weights knows? Measured before the file becomes a version.

In:  the version that was trained on, the adapter, an Examiner.
Out: MergeTrial: `accepts(file, target)`, and the scores of what was taken.
Each file is opened once. The answers are only asked for when the loss was kept, and base ability only of what is taken, because these take longest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..adapter.tensors import AdapterTensors
from ..gguf.file import GgufFile
from ..versions.merge_policies import MergeTarget
from ..versions.record import OpenedVersion
from .verification import Examiner, Scores, compare_merge


@dataclass(frozen=True)
class Attempt:
    """One merged file that was measured."""

    target: str
    n_bytes: int
    heldout_loss: float | None
    kept: bool

    def as_json(self) -> dict[str, Any]:
        return {"way": self.target, "bytes": self.n_bytes, "heldout_loss": self.heldout_loss, "kept": self.kept}


class MergeTrial:
    """Measures merged files against the mounted adapter."""

    def __init__(self, examiner: Examiner, on: OpenedVersion, adapter: AdapterTensors, forced: MergeTarget | None) -> None:
        """forced: the target that is taken even if it keeps too little."""
        self._examiner, self._forced = examiner, forced
        self._mounted = replace(on, adapter=adapter)
        examiner.say("measuring the adapter before the merge")
        with examiner.opened(self._mounted) as measurement:
            self.mounted = Scores(measurement.heldout_loss(), measurement.answers(), ())
        self.attempts: list[Attempt] = []
        self._merged: Scores | None = None

    def accepts(self, model: GgufFile, target: MergeTarget) -> bool:
        """Whether the file is to be taken: it loses nothing beyond the tolerance, or nothing else is left; says what was found."""
        self._examiner.say(f"measuring the merged file ({target}, {model.size_bytes / 1e6:,.1f} MB)")
        with self._examiner.opened(OpenedVersion(str(target), model, ())) as candidate:
            scores = Scores(candidate.heldout_loss(), (), ())
            comparison = compare_merge(self.mounted, scores)
            if comparison.kept or target == self._forced:
                scores = replace(scores, answers=candidate.answers())
                comparison = compare_merge(self.mounted, scores)
            accepted = comparison.kept or target == self._forced
            if accepted:
                self._merged = replace(scores, ability=candidate.ability())
        self.attempts.append(Attempt(str(target), model.size_bytes, scores.heldout_loss, comparison.kept))
        if not comparison.kept:
            self._examiner.say(f"{target}: {comparison}")
        return accepted

    def scores(self) -> Scores:
        """Of what was taken: the accepted file, or the mounted adapter when none was accepted."""
        if self._merged is not None:
            return self._merged
        self._examiner.say("measuring the base ability of the mounted adapter")
        with self._examiner.opened(self._mounted) as measurement:
            return replace(self.mounted, ability=measurement.ability())
