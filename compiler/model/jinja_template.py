"""A model's Jinja chat template, rendered the way transformers renders it.

In:  the template's source and the texts of the control tokens it may name.
Out: text, or TemplateRefusal with the template's own words (wrong order of roles, say).
Templates come with model files from strangers, so they run in Jinja's sandbox; today's date is a fixed one, because a
bundle must not depend on the day it was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import jinja2
import jinja2.nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...runtime.errors import UserError

PINNED_DATE = date(2024, 7, 26)
"""The date that Llama 3.2's template falls back to."""


class TemplateRefusal(Exception):
    """The template raised: it does not render this conversation."""


class _Generation(Extension):
    """`{% generation %}` marks what an assistant wrote and changes no text."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class JinjaTemplate:
    """One template, compiled."""

    def __init__(self, source: str, token_texts: Mapping[str, str], where: str, today: date = PINNED_DATE) -> None:
        """token_texts: bos_token, eos_token, … as far as the model has them. UserError if the source is no template."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = today.strftime
        self._token_texts = dict(token_texts)
        try:
            self._template = environment.from_string(source)
            constants = environment.parse(source).find_all(jinja2.nodes.Const)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(where, f"the chat template is no valid Jinja: line {error.lineno}, {error.message}") from error

        self.literals: tuple[str, ...] = tuple(sorted({node.value for node in constants if isinstance(node.value, str)}))
        """The strings that the template's code names: what it may look for in a turn's text."""

    def render(self, turns: Sequence[tuple[str, str]], add_generation_prompt: bool) -> str:
        """Text of the (role, text) turns. Answers are asked for without a chain of thought, where a template can do both."""
        try:
            return self._template.render(
                messages=[{"role": role, "content": text} for role, text in turns],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=False,
                **self._token_texts,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise TemplateRefusal(f"{type(error).__name__}: {error}") from error
