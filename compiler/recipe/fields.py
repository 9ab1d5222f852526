"""What may stand in a field: the range of a number, the pattern of a text, and how both are told to a person.

In:  a dataclass whose fields were declared with `setting(...)`.
Out: problems (UserError) for values outside of what is allowed.
Ranges are declared beside the default, in the field itself, so that neither exists twice.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from ...runtime.errors import UserError
from ...runtime.plain_data import inside
from .errors import RecipeError


@dataclass(frozen=True)
class Range:
    """An interval of numbers; the bounds that are None do not exist."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        """Whether the value lies in it; NaN and the infinities never do. Whole numbers may be larger than any float."""
        return (
            (isinstance(value, int) or math.isfinite(value))
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        low = [f"at least {self.at_least:g}"] if self.at_least is not None else []
        low += [f"above {self.above:g}"] if self.above is not None else []
        high = [f"at most {self.at_most:.10g}"] if self.at_most is not None else []
        high += [f"below {self.below:g}"] if self.below is not None else []
        return "a number " + " and ".join(low + high)


@dataclass(frozen=True)
class Pattern:
    """A regular expression that the whole text (or each item of a list) matches, and its meaning in words."""

    regex: str
    words: str

    def holds(self, value: str) -> bool:
        return re.fullmatch(self.regex, value) is not None

    def __str__(self) -> str:
        return self.words


def setting(default: Any = dataclasses.MISSING, check: Range | Pattern | None = None, default_factory: Any = None, **metadata: Any) -> Any:
    """A dataclass field with what is allowed in it; without a default the YAML has to give it."""
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata={"check": check, **metadata})
    return dataclasses.field(default=default, metadata={"check": check, **metadata})


def field_problem(field: dataclasses.Field, value: Any, where: str) -> UserError | None:
    """What is wrong with `value` in this field by itself, or None."""
    check = field.metadata.get("check")
    if check is None or value is None:
        return None
    bad = [item for item in (value if isinstance(value, tuple) else (value,)) if not check.holds(item)]
    return UserError(where, f"{bad[0]!r} is not allowed", f"{check}") if bad else None


class Checked:
    """Base of the recipe's dataclasses: no instance exists whose fields are out of range or contradict each other."""

    SECTION: ClassVar[str] = ""

    def __post_init__(self) -> None:
        found = [field_problem(field, getattr(self, field.name), inside(self.SECTION, field.name)) for field in dataclasses.fields(type(self))]  # pyright: ignore[reportArgumentType] - every subclass is a dataclass
        problems = [problem for problem in found if problem] or self.contradictions()
        if problems:
            raise RecipeError(problems)

    def contradictions(self) -> list[UserError]:
        """Problems between fields that are each fine alone."""
        return []
