"""What to do about a board that cannot be trusted: restore its files, or take rows back."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from dare.errors import DareError, UsageProblem
from dare.leaderboard.check import Problem, untrusted
from dare.leaderboard.files import ENTRIES, LOCK, README, git_files, read_board

SHOWN = 6


class Untrusted(DareError):
    """Rows of a board are forged, changed or missing: no table may be built from it."""

    exit_status = 1


def refuse_untrusted(folder: Path) -> None:
    """Raise ``Untrusted``, naming the problems, when the board must not be built."""
    problems = untrusted(read_board(folder), folder)
    if not problems:
        return
    why = [f"{problem.where}: {problem.what}" for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        why.append(f"and {len(problems) - SHOWN} more")
    raise Untrusted(
        f"the board {folder.parent.name}/{folder.name} cannot be trusted; its table was not built",
        "\n".join(why),
        "\n".join(remedies(folder, problems)),
    )


def remedies(folder: Path, problems: Iterable[Problem], ref: str = "HEAD") -> list[str]:
    """The commands that restore what ``problems`` are about, at most one per file.

    A file that differs from the commit ``ref`` comes back from there; a locked row that no
    commit can give back is withdrawn.
    """
    changed, locked = _changed(folder, ref), _locked(folder)
    commands = []
    for where in dict.fromkeys(problem.where for problem in problems if not problem.by_build):
        file = "/".join(where.split("/")[2:])
        row = file.removeprefix(ENTRIES).removesuffix(".json")
        named = [file] if file else [name for name in changed if name not in (README, LOCK)]
        restored = [str(folder / name) for name in named if name in changed]
        if restored:
            commands.append(shlex.join(["git", "checkout", ref, "--", *restored]))
        elif row in locked or not file:
            commands.append(
                f"dare leaderboard withdraw {folder.parent.name} {row or 'ROW'} --reason REASON"
            )
        else:
            commands.append(shlex.join(["git", "log", "--oneline", "--", str(folder / file)]))
    return list(dict.fromkeys(commands))


def _changed(folder: Path, ref: str) -> Sequence[str]:
    """The files of the board that are no longer as the commit ``ref`` has them."""
    stored = git_files(folder, ref) or {}
    return [name for name, content in stored.items() if _now(folder / name) != content]


def _now(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _locked(folder: Path) -> frozenset[str]:
    try:
        return frozenset(read_board(folder).lock.entries)
    except UsageProblem:
        return frozenset()
