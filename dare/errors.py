"""Errors for people: what happened, why, and the command that helps.

Each class carries the exit status of the command that raises it:

    0 done   1 ran, verdict negative   2 usage or config   3 something missing
    4 not comparable or inconclusive   70 internal         130 interrupted
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class DareError(Exception):
    """What happened, why, and what to do next.  ``exit_status`` 70: a fault of ours."""

    exit_status = 70

    def __init__(self, what: str, why: str = "", help: str = "") -> None:
        super().__init__(what)
        self.what, self.why, self.help = what, why, help

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why:  {self.why}")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class UsageProblem(DareError):
    """A wrong flag, name, value or file: nothing was started."""

    exit_status = 2


class Missing(DareError):
    """Weights, data, a device or an environment is not here."""

    exit_status = 3


class NotComparable(DareError):
    """The numbers exist but must not be set against each other."""

    exit_status = 4


class Interrupted(DareError):
    """The user stopped the work at a safe point; it can be resumed."""

    exit_status = 130


def unknown_name(kind: str, name: str, known: Iterable[str], listing: str = "") -> UsageProblem:
    """The error for a name that does not exist, with the nearest one that does.

    ``kind`` is the noun shown ("paper"), ``listing`` the command that lists them.
    """
    known = sorted(known)
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    suggestion = f"did you mean '{near[0]}'? " if near else ""
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    help_text = f"{suggestion}{listing or ''}".strip()
    return UsageProblem(f"no {kind} is called '{name}'", f"known: {shown or 'none'}", help_text)
