"""Plain data becomes frozen dataclasses, and whatever is wrong with it has its sentence and its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.plain_data import Binder, bind, plain


class Size(NamedTuple):
    """Stands as one text, such as 2x3."""

    rows: int
    columns: int

    @classmethod
    def parse(cls, text: str) -> Size:
        rows, times, columns = text.partition("x")
        if not times:
            raise ValueError(f"{text!r} is no size such as 2x3")
        return cls(int(rows), int(columns))

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


@dataclass(frozen=True)
class Lid:
    colour: Literal["red", "blue"]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.weight <= 0:
            raise ValueError(f"weight {self.weight} is not above 0")


@dataclass(frozen=True)
class Box:
    name: str
    count: int
    is_open: bool
    lid: Lid
    sizes: tuple[Size, ...]
    spare: Lid | None = None
    corner: tuple[int, str] = (0, "a")
    lids: tuple[Lid, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    level: Literal[1, 2] = 1


GOOD = {
    "name": "b", "count": 3, "is_open": True, "lid": {"colour": "red", "weight": 2}, "sizes": ["2x3", "4x5"], "spare": None, "corner": [1, "b"],
    "lids": [{"colour": "blue"}], "prices": {"eur": 1, "cny": 7.5}, "notes": {"any": [1, {"thing": None}]}, "level": 2,
}  # fmt: skip


def test_every_kind_of_field_is_read_and_nothing_is_left_plain() -> None:
    assert bind(Box, GOOD, "box") == Box(
        "b", 3, True, Lid("red", 2.0), (Size(2, 3), Size(4, 5)), None, (1, "b"), (Lid("blue", 1.0),), {"eur": 1.0, "cny": 7.5},
        {"any": [1, {"thing": None}]}, 2,
    )  # fmt: skip
    assert type(bind(Box, GOOD, "box").lid.weight) is float


def test_what_plain_writes_is_read_back_as_it_was() -> None:
    box = bind(Box, GOOD, "box")
    assert bind(Box, json.loads(json.dumps(plain(box))), "box") == box
    assert plain(box)["sizes"] == ["2x3", "4x5"] and plain(Path("a/b")) == "a/b"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": 3}, "box.name: is the number 3, a text is needed"),
        ({"name": None}, "box.name: is null, a text is needed"),
        ({"count": "3"}, "box.count: is a text, a whole number is needed"),
        ({"count": 1.5}, "box.count: is the number 1.5, a whole number is needed"),
        ({"count": True}, "box.count: is true/false, a whole number is needed"),
        ({"is_open": 1}, "box.is_open: is the number 1, true, false is needed"),
        ({"lid": []}, "box.lid: is a list, an object is needed"),
        ({"lid": {"colour": "green"}}, "box.lid.colour: 'green' is not one of the choices; allowed: red, blue"),
        ({"lid": {"colour": ["red"]}}, "box.lid.colour: ['red'] is not one of the choices; allowed: red, blue"),
        ({"lid": {"colour": "red", "weight": 0}}, "box.lid: weight 0.0 is not above 0"),
        ({"lid": {"colour": "red", "weight": "1"}}, "box.lid.weight: is a text, a number is needed"),
        ({"lid": {"colour": "red", "weight": 10**400}}, "box.lid.weight: is too large for a number with decimals"),
        ({"lid": {"colour": "red", "wieght": 1}}, "box.lid: has the unknown key 'wieght', did you mean 'weight'?"),
        ({"lid": {"colour": "red", "xyz": 1}}, "box.lid: has the unknown key 'xyz'; allowed: colour, weight"),
        ({"lid": {}}, "box.lid: lacks the key 'colour'"),
        ({"spare": {"colour": 1}}, "box.spare.colour: 1 is not one of the choices; allowed: red, blue"),
        ({"spare": "none"}, "box.spare: is a text, an object is needed"),
        ({"sizes": "2x3"}, "box.sizes: is a text, a list is needed"),
        ({"sizes": ["2x3", "small"]}, "box.sizes[1]: 'small' is no size such as 2x3"),
        ({"sizes": [23]}, "box.sizes[0]: is the number 23, a text is needed"),
        ({"corner": [1]}, "box.corner: has 1 items; allowed: 2"),
        ({"corner": ["b", 1]}, "box.corner[0]: is a text, a whole number is needed"),
        ({"lids": [{"colour": "red"}, {"colour": "red", "weight": -1}]}, "box.lids[1]: weight -1.0 is not above 0"),
        ({"prices": [1]}, "box.prices: is a list, an object is needed"),
        ({"prices": {"eur": "1"}}, "box.prices.eur: is a text, a number is needed"),
        ({"notes": 1}, "box.notes: is the number 1, an object is needed"),
        ({"level": True}, "box.level: True is not one of the choices; allowed: 1, 2"),
        ({"level": 2.0}, "box.level: 2.0 is not one of the choices; allowed: 1, 2"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_a_wrong_value_is_refused_with_its_place_and_reason(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        bind(Box, {**GOOD, **change}, "box", remedy="mend it")
    assert sentence in str(caught.value) and str(caught.value).endswith("; try: mend it")


@pytest.mark.parametrize("value", [None, 1, "box", [GOOD]], ids=str)
def test_what_is_no_object_at_all_is_called_what_it_is(value: Any) -> None:
    with pytest.raises(UserError, match=r"box: is .*, an object is needed"):
        bind(Box, value, "box")


def test_all_mistakes_come_in_one_sentence() -> None:
    with pytest.raises(UserError) as caught:
        bind(Box, {**GOOD, "count": "x", "lids": [{"colour": 1}, 2], "nmae": "b"}, "box")
    text = str(caught.value)
    assert "\n" not in text
    for part in ("box.count: is a text", "box.lids[0].colour: 1", "box.lids[1]: is the number 2", "unknown key 'nmae'"):
        assert part in text


def test_a_binder_collects_problems_and_goes_on_with_the_next_value() -> None:
    binder = Binder()
    assert binder.bind(int, "x", "a") is None and binder.bind(Lid, {"colour": "red"}, "b") == Lid("red") and binder.bind(Lid, {}, "c") is None
    assert [problem.where for problem in binder.problems] == ["a", "c"]


def test_a_type_that_plain_data_has_no_form_for_is_our_own_mistake() -> None:
    with pytest.raises(TypeError, match="bytes"):
        Binder().bind(bytes, b"", "a")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, "colour", "x"]), inner),
    )
)
def test_whatever_stands_there_is_read_or_refused(value: Any) -> None:
    for document in (value, *({**GOOD, name: value} for name in GOOD)):
        binder = Binder()
        assert (binder.bind(Box, document, "box") is None) == bool(binder.problems)
