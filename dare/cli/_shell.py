"""The lazy command group: subcommands are imported when they are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NoReturn

import click

from dare import __version__
from dare.cli import _problems
from dare.errors import unknown_name

COMPLETION_VARIABLE = "_DARE_COMPLETE"


@dataclass
class Invocation:
    """One call of ``dare``: its words, the command they named, and whether ``-v`` was given."""

    argv: list[str] = field(default_factory=list)
    verbose: bool = False
    command: click.Command | None = None


def _note_verbose(context: click.Context, _: click.Parameter, given: bool) -> None:
    invocation = context.find_object(Invocation)
    if given and invocation is not None:
        invocation.verbose = True


def _verbose_option() -> click.Option:
    return click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_note_verbose,
        help="Show the traceback of an error.",
    )


def _accept_verbose(command: click.Command) -> None:
    """Let ``command`` and its subcommands take ``-v`` too, so it may stand at the end."""
    taken = {name for parameter in command.params for name in parameter.opts}
    if not taken & {"-v", "--verbose"}:
        command.params.append(_verbose_option())
    if isinstance(command, click.Group):
        for child in command.commands.values():
            _accept_verbose(child)


def _print_version(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not context.resilient_parsing:
        click.echo(f"dare {__version__}")
        context.exit()


def _version_option() -> click.Option:
    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Show the version and exit.",
    )


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported on use.

    ``commands_table`` maps a name to (module, help line); the module defines ``command``.
    A command's integer return value, or ``ctx.exit(status)``, is the exit status.
    """

    def __init__(self, commands_table: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        settings.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        settings.setdefault("params", [_verbose_option(), _version_option()])
        super().__init__(**settings)
        self.commands_table = commands_table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_table:
            return None
        module, _ = self.commands_table[cmd_name]
        command: click.Command = import_module(module).command
        _accept_verbose(command)
        invocation = ctx.find_object(Invocation)
        if invocation is not None:
            invocation.command = command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands_table and not name.startswith("-"):
            raise unknown_name("command", name, self.commands_table, "dare --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, line) for name, (_, line) in self.commands_table.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode or COMPLETION_VARIABLE in os.environ:
            return super().main(
                args, prog_name or "dare", complete_var, standalone_mode=standalone_mode, **extra
            )
        self._run(list(sys.argv[1:] if args is None else args), **extra)

    def _run(self, argv: list[str], **extra: Any) -> NoReturn:
        invocation = Invocation(argv=list(argv))
        status: object = 0
        try:
            with self.make_context("dare", argv, obj=invocation, **extra) as context:
                status = self.invoke(context)
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as problem:
            status = _problems.report(
                problem, invocation.argv, invocation.command, invocation.verbose
            )
        sys.exit(status if isinstance(status, int) else 0)
