"""From an exception to three parts on stderr and an exit status."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import textwrap
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches

import click
from click.exceptions import Abort, Exit, NoArgsIsHelpError

from dare.errors import DareError, Interrupted, Missing, UsageProblem, unknown_name

INTERNAL = DareError.exit_status
INTERRUPTED = Interrupted.exit_status
# What a shell reports for a program stopped by a closed pipe (128 + SIGPIPE).
BROKEN_PIPE = 141
WIDTH = 80

_ENVIRONMENT = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def report(
    problem: BaseException,
    argv: Sequence[str] = (),
    command: click.Command | None = None,
    verbose: bool = False,
) -> int:
    """Say on stderr what happened to ``dare argv``; return the exit status."""
    if isinstance(problem, Exit):
        return problem.exit_code
    if isinstance(problem, BrokenPipeError):
        _silence_stdout()
        return BROKEN_PIPE
    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()
    if verbose and not isinstance(problem, click.UsageError):
        _say("".join(traceback.format_exception(problem)).rstrip())
    if isinstance(problem, NoArgsIsHelpError):
        _say(problem.format_message())
        return problem.exit_code
    told = _translate(problem, argv, command)
    if told is None:
        name, text = type(problem).__name__, str(problem)
        first = textwrap.shorten(text.splitlines()[0], 200) if text.strip() else ""
        hint = "" if verbose else " (run again with -v for the traceback)"
        _say(f"internal error: {name}{': ' if first else ''}{first}{hint}")
        return INTERNAL
    _say(render(told))
    return told.exit_status


def render(problem: DareError) -> str:
    """The three parts, wrapped; ``help`` keeps its lines so that commands can be copied."""
    prefix = "" if isinstance(problem, Interrupted) else "error: "
    lines = textwrap.wrap(f"{prefix}{problem.what}", WIDTH, subsequent_indent="  ") or [prefix]
    for label, text, wrap in (("why:  ", problem.why, True), ("help: ", problem.help, False)):
        if not text:
            continue
        first, rest = f"  {label}", " " * 8
        for paragraph in filter(None, map(str.strip, text.splitlines())):
            if wrap:
                lines += textwrap.wrap(
                    paragraph,
                    WIDTH,
                    initial_indent=first,
                    subsequent_indent=rest,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            else:
                lines.append(f"{first}{paragraph}")
            first = rest
    return "\n".join(lines)


def printable(text: str) -> str:
    """``text`` with control characters shown as escapes: a name must not drive the terminal."""
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def _say(text: str) -> None:
    # Without a stderr there is nobody left to tell; the exit status still does.
    with suppress(OSError):
        click.echo(printable(text), err=True)


def _silence_stdout() -> None:
    """Keep the interpreter from complaining about the closed pipe when it exits."""
    with suppress(OSError, ValueError):  # no file descriptor: nothing will be flushed to a pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _translate(
    problem: BaseException, argv: Sequence[str], command: click.Command | None
) -> DareError | None:
    """``problem`` in three parts, or None for a fault of ours."""
    if isinstance(problem, DareError):
        return problem
    if isinstance(problem, KeyboardInterrupt | Abort):
        return _interrupted(argv, command)
    if isinstance(problem, click.ClickException):
        return _usage(problem)
    if isinstance(problem, OSError) and problem.errno in _ENVIRONMENT:
        where = f": {problem.filename}" if problem.filename else ""
        return Missing(
            f"the system refused a file{where}",
            problem.strerror or "",
            "free some space or choose a folder you can write to, then run the command again",
        )
    return None


def _interrupted(argv: Sequence[str], command: click.Command | None) -> Interrupted:
    resumes = command is not None and any("--resume" in p.opts for p in command.params)
    words = [*argv, "--resume"] if resumes and "--resume" not in argv else list(argv)
    again = shlex.join(["dare", *words])
    action = "continue with" if resumes else "run it again with"
    return Interrupted("interrupted", "Ctrl-C; what was finished is kept", f"{action}: {again}")


def _usage(problem: click.ClickException) -> DareError:
    context = getattr(problem, "ctx", None)
    path = context.command_path if context is not None else "dare"
    listing = f"{path} --help"
    option = getattr(problem, "option_name", None)
    if isinstance(problem, click.NoSuchOption) and option is not None:
        params = context.command.get_params(context) if context is not None else []
        known = [name for parameter in params for name in parameter.opts]
        return _with_nearest(f"'{path}' has no option '{option}'", option, known, listing)
    name = getattr(problem, "command_name", None)
    if name is not None and context is not None and isinstance(context.command, click.Group):
        return unknown_name(
            f"command of '{path}'", name, context.command.list_commands(context), listing
        )
    if isinstance(problem, click.MissingParameter):
        return UsageProblem(problem.format_message(), _usage_line(context), listing)
    if isinstance(problem, click.BadParameter):
        return _bad_value(problem, listing)
    return UsageProblem(problem.format_message(), _usage_line(context), listing)


def _usage_line(context: click.Context | None) -> str:
    return " ".join(context.get_usage().split()) if context is not None else ""


def _bad_value(problem: click.BadParameter, listing: str) -> UsageProblem:
    parameter, hint = problem.param, problem.param_hint
    if isinstance(hint, Sequence) and not isinstance(hint, str):
        hint = " / ".join(hint)
    where = hint or (parameter.get_error_hint(problem.ctx) if parameter else "the value")
    if parameter is None or not isinstance(parameter.type, click.Choice):
        return UsageProblem(f"bad value for {where}", problem.message, listing)
    # click quotes the offending value first in this message and nowhere else.
    given = problem.message.split("'")[1] if problem.message.count("'") > 1 else ""
    known = [str(choice) for choice in parameter.type.choices]
    return _with_nearest(f"{where} cannot be '{given}'", given, known, listing)


def _with_nearest(what: str, given: str, known: Iterable[str], listing: str) -> UsageProblem:
    known = sorted(known)
    near = get_close_matches(given, known, n=1, cutoff=0.4)
    suggestion = f"did you mean '{near[0]}'? " if near else ""
    return UsageProblem(what, f"known: {', '.join(known) or 'none'}", f"{suggestion}{listing}")
