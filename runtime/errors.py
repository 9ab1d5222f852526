"""The ways a command can end, and the sentence each of them prints.

In:  what went wrong, as fields (where, found, allowed, remedy).
Out: an exception whose text is that sentence and whose `exit_code` the command line returns.
Anything that is not an MftError is our own fault: it keeps its traceback and exits 1.
"""

from __future__ import annotations


class MftError(Exception):
    """Base of every outcome that is reported in a sentence instead of a traceback."""

    exit_code = 1


class UserError(MftError):
    """Something the user can put right; nothing was changed.

    where:   the file, key or argument that is at fault
    found:   what was there
    allowed: what may stand there (optional)
    remedy:  what to do now (optional)
    """

    exit_code = 2

    def __init__(self, where: str, found: str, allowed: str = "", remedy: str = "") -> None:
        self.where, self.found, self.allowed, self.remedy = where, found, allowed, remedy
        parts = [f"{where}: {found}"]
        if allowed:
            parts.append(f"allowed: {allowed}")
        if remedy:
            parts.append(f"try: {remedy}")
        super().__init__("; ".join(parts))


class NotPromoted(MftError):
    """The work finished, but the new version did not earn its place."""

    exit_code = 3


class Paused(MftError):
    """The work stopped at a checkpoint and can be resumed."""

    exit_code = 4
