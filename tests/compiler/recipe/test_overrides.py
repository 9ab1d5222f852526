"""Any text a person may want in a setting has a way to be typed, and the advice shows it."""

import shlex

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mobilefinetuner.compiler.recipe.overrides import parse_overrides, quoted_override

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=40)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_a_quoted_override_arrives_exactly_as_the_text(text):
    assume("${" not in text)  # an interpolation is meant to be one
    (word,) = shlex.split(quoted_override("scenario.system_prompt", text))
    overrides, problems = parse_overrides([word])
    assert not problems and overrides.values == (("scenario.system_prompt", text),)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_whatever_is_typed_is_either_read_or_refused_in_one_line(text):
    overrides, problems = parse_overrides([f"scenario.system_prompt={text}", text])
    assert len(overrides.groups) + len(overrides.values) + len(problems) == 2 or not text
