"""Every mistake in a configuration, in one report.

In:  problems, each a UserError that names its key, what was found, what is allowed and what to do.
Out: RecipeError, whose text has one line per problem.
A person who mistyped three settings should not have to start the compiler three times to learn it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from ...runtime.errors import UserError


class RecipeError(UserError):
    """One or more things in the configuration that have to be put right; exit code 2."""

    def __init__(self, problems: Sequence[UserError]) -> None:
        super().__init__("recipe", f"{len(problems)} problems")
        self.problems = tuple(problems)
        self.args = ("\n".join(str(problem) for problem in self.problems),)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be, or None."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.85)
    if close:
        return close[0]
    by_last_part = {name.rsplit(".", 1)[-1]: name for name in known}
    close = difflib.get_close_matches(word.rsplit(".", 1)[-1], by_last_part, n=1, cutoff=0.6)
    return by_last_part[close[0]] if close else None


def unknown_word(where: str, word: str, kind: str, known: Iterable[str], form: str = "{}") -> UserError:
    """A key or option that does not exist: list what does, and name the nearest; `form` shows how it is typed."""
    known = sorted(known)
    guess = nearest(word, known)
    return UserError(where, f"{word!r} is not a known {kind}", ", ".join(known), form.format(guess) if guess else "")
