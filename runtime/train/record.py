"""What is known of a run besides its vectors: where it stands, what it lost and learned on the way.

In:  losses of steps and of measurements.
Out: RunRecord, which goes into every checkpoint and tells a report how the run went.
Everything in it but the seconds is a function of the losses alone, so it is the same for a resumed and an uninterrupted run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

CURVE_POINTS = 500
"""a longer curve loses every second point"""
WORSE_IN_A_ROW = 2
"""so many measurements after the best one end a run"""


class CurvePoint(NamedTuple):
    """One step of the curve."""

    step: int
    loss: float
    """mean over the step's label tokens, in nats"""
    replay_loss: float | None
    """mean over the step's replay positions; None without replay"""


class Measurement(NamedTuple):
    """The held-out loss after a step."""

    step: int
    loss: float
    """mean over the held-out label tokens, in nats"""


@dataclass(frozen=True)
class RunRecord:
    """A run after `step` steps."""

    step: int = 0
    loss_first: float = 0.0
    loss_last: float = 0.0
    tokens: int = 0
    """trained on so far, padding not counted, replay included"""
    seconds: float = 0.0
    curve: tuple[CurvePoint, ...] = ()
    """the first step and every so many after it: at most CURVE_POINTS points, evenly apart"""
    heldout: tuple[Measurement, ...] = ()
    """one for every epoch; empty when nothing is measured"""

    @property
    def best(self) -> Measurement | None:
        """The lowest held-out loss, the earliest of equal ones."""
        return min(self.heldout, key=lambda m: m.loss, default=None)

    @property
    def taken_step(self) -> int:
        """The step whose parameters are the run's result, if it ends here."""
        return self.step if self.best is None else self.best.step

    @property
    def is_past_its_best(self) -> bool:
        """Whether the last WORSE_IN_A_ROW measurements were all no better than one before them."""
        return self.best is not None and self.best not in self.heldout[-WORSE_IN_A_ROW:]

    def after_step(self, loss: float, replay_loss: float | None, tokens: int, seconds: float) -> RunRecord:
        """seconds: of the whole run."""
        step = self.step + 1
        return replace(
            self, step=step, loss_first=loss if step == 1 else self.loss_first, loss_last=loss, tokens=self.tokens + tokens, seconds=seconds,
            curve=_extended(self.curve, CurvePoint(step, loss, replay_loss)),
        )  # fmt: skip

    def after_measurement(self, heldout_loss: float) -> RunRecord:
        return replace(self, heldout=(*self.heldout, Measurement(self.step, heldout_loss)))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "curve": [list(p) for p in self.curve], "heldout": [list(m) for m in self.heldout]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunRecord:
        curve, heldout = (CurvePoint(*p) for p in document["curve"]), (Measurement(*m) for m in document["heldout"])
        return cls(**{**document, "curve": tuple(curve), "heldout": tuple(heldout)})


def _extended(curve: tuple[CurvePoint, ...], point: CurvePoint) -> tuple[CurvePoint, ...]:
    """The curve with the point, when it is as far from the last one as that is from the one before; thinned when it is too long."""
    apart = curve[1].step - curve[0].step if len(curve) > 1 else 1
    if (point.step - 1) % apart:
        return curve
    longer = (*curve, point)
    return longer[::2] if len(longer) > CURVE_POINTS else longer
