"""``dare leaderboard``: build, check, compare and extend the boards.

    dare leaderboard check
    dare leaderboard build tiny-sudoku
    dare leaderboard diff --against HEAD~1
    dare leaderboard add tiny-sudoku --run RUN RUN RUN --algorithm d1
    dare leaderboard add llada-8b-instruct --reported d1
    dare leaderboard add llada-8b-instruct --rescored RUN RUN

``check`` and ``build`` end with status 1 when a board cannot be trusted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dare.leaderboard.build import CellTable, Table
    from dare.leaderboard.check import Problem
    from dare.leaderboard.schema import Entry, Protocol

STATES = ("submitted", "replayed")


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--json", "as_json", is_flag=True, help="One JSON document.")(function)
    return click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="The folder of the boards, if not the one that comes with dare.",
    )(function)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


@click.group()
def command() -> None:
    """Build and check the boards.

    A board's table is a function of its entries; each entry holds the sealed records it
    rests on. BOARD is a name such as tiny-sudoku, or tiny-sudoku/v1.
    """


@command.command()
@click.argument("board", required=False)
@_common
def build(board: str | None, root: Path | None, as_json: bool) -> None:
    """Write the table (README.md) of BOARD, or of every board.

    Refused, with exit status 1, when rows were forged, changed or removed.
    """
    from dare.cli._output import next_command, note, print_json
    from dare.leaderboard.add import rebuild
    from dare.leaderboard.build import build as build_table
    from dare.leaderboard.files import find_boards, read_board
    from dare.leaderboard.mend import refuse_untrusted
    from dare.leaderboard.render import as_json as table_json

    tables = []
    folders = find_boards(root, board)
    for folder in folders:  # all of them before the first is written
        refuse_untrusted(folder)
    for folder in folders:
        changed = rebuild(folder)
        table = build_table(read_board(folder))
        tables.append(table)
        note(f"{folder / 'README.md'}: {'written' if changed else 'unchanged'}")
    if as_json:
        print_json([table_json(table) for table in tables])
        return
    for table in tables:
        _show(table)
    next_command("dare leaderboard check")


def _show(table: Table) -> None:
    from dare.cli._output import heading, say
    from dare.leaderboard.render import overview, tasks_of

    heading(f"{table.protocol.name}  {table.protocol.title}")
    if len(table.cells) > 1:
        _grid(("algorithm", *tasks_of(table.protocol), "state"), overview(table))
    else:
        _show_ranks(table.cells[0])
    measured = len({row.entry for part in table.cells for row in part.rows})
    say(
        f"{measured} measured, {len(table.reported)} reported and "
        f"{len(table.withdrawn)} withdrawn rows"
    )


def _show_ranks(part: CellTable) -> None:
    from dare.cli._output import say
    from dare.leaderboard.render import number

    cell = part.cell
    if not part.rows:
        return
    say(f"{cell.task}, {cell.gen_length} tokens, {cell.metric} in percent, {cell.n_items} items")
    rows = [
        (
            row.rank,
            row.algorithm,
            number(row.estimate.value),
            f"{number(row.estimate.lo)} to {number(row.estimate.hi)}",
            len(row.estimate.per_seed),
            row.why or row.state,
        )
        for row in part.rows
    ]
    columns = ("rank", "algorithm", "value", "95 % interval", "seeds", "state")
    _grid(columns, rows, right=("rank", "value", "seeds"))


GAP = 3  # what the console puts between two columns


def _grid(
    columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """A table whose cells are wrapped at spaces, the widest columns first.

    The console would divide a long name anywhere to even the columns out.
    """
    import textwrap

    from dare.cli._output import console
    from dare.cli._output import table as grid
    from dare.cli._problems import printable

    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    by_column = list(zip(columns, *cells, strict=True))
    widths = [max(map(len, column)) for column in by_column]
    least = [max(len(word) for cell in column for word in cell.split()) for column in by_column]
    room = console().width - GAP * (len(columns) - 1)
    while sum(widths) > room and widths != least:
        wrapped = [i for i in range(len(widths)) if widths[i] > least[i]]
        widths[max(wrapped, key=widths.__getitem__)] -= 1
    lines = [
        [
            "\n".join(textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False))
            for cell, width in zip(row, widths, strict=True)
        ]
        for row in cells
    ]
    grid(columns, lines, right=right)


@command.command()
@click.argument("board", required=False)
@click.option(
    "--against",
    default="HEAD",
    show_default=True,
    metavar="COMMIT",
    help="No row locked at this commit may be missing.",
)
@_common
def check(board: str | None, against: str, root: Path | None, as_json: bool) -> int:
    """Verify BOARD, or every board: exit status 1 when one cannot be trusted."""
    from dare.cli._output import next_command, print_json, say
    from dare.leaderboard.check import check as find_problems
    from dare.leaderboard.files import find_boards

    folders = find_boards(root, board)
    found = {f"{f.parent.name}/{f.name}": find_problems(f, against) for f in folders}
    bad = sum(len(problems) for problems in found.values())
    if as_json:
        boards = {
            name: [{"where": p.where, "what": p.what, "help": p.help} for p in problems]
            for name, problems in found.items()
        }
        print_json({"ok": not bad, "boards": boards})
        return 1 if bad else 0
    for name, problems in found.items():
        say(f"{name}: {f'{len(problems)} problems' if problems else 'ok'}")
        for problem in problems:
            say(f"  {problem.where}: {problem.what}")
            if problem.help:
                say(f"    help: {problem.help}")
    next_command(*_after_check(dict(zip(folders, found.values(), strict=True)), against))
    return 1 if bad else 0


def _after_check(found: dict[Path, list[Problem]], against: str) -> list[str]:
    """Restore first: a table built from broken rows would hide that they are broken."""
    from dare.leaderboard.mend import remedies

    problems = [problem for of_one in found.values() for problem in of_one]
    if not problems:
        return ["dare leaderboard diff"]
    if all(problem.by_build for problem in problems):
        return ["dare leaderboard build"]
    return [c for folder, of_one in found.items() for c in remedies(folder, of_one, against)]


@command.command()
@click.argument("board", required=False)
@click.option("--against", default="HEAD", show_default=True, metavar="COMMIT")
@_common
def diff(board: str | None, against: str, root: Path | None, as_json: bool) -> None:
    """What changed on BOARD, or on every board, since a commit, as Markdown."""
    from dataclasses import asdict

    from dare.cli._output import next_command, print_json
    from dare.errors import UsageProblem
    from dare.leaderboard.build import build as build_table
    from dare.leaderboard.diff import as_markdown
    from dare.leaderboard.diff import diff as changes_between
    from dare.leaderboard.files import find_boards, git_files, is_commit, parse, read_board

    result = {}
    for folder in find_boards(root, board):
        if not is_commit(folder, against):
            why = f"git does not know it in {folder}"
            raise UsageProblem(f"'{against}' is no commit", why, "git log --oneline")
        files = git_files(folder, against)
        old = build_table(parse(files, folder)) if files is not None else None
        name = f"{folder.parent.name}/{folder.name}"
        result[name] = changes_between(old, build_table(read_board(folder)))
    if as_json:
        print_json({name: [asdict(c) for c in changes] for name, changes in result.items()})
        return
    click.echo("\n".join(as_markdown(name, changes) for name, changes in result.items()), nl=False)
    next_command("dare leaderboard check")


@command.command()
@click.argument("board")
@click.argument("more", nargs=-1, type=click.Path(path_type=Path), metavar="")
@click.option("--run", "runs", multiple=True, type=click.Path(path_type=Path), metavar="RUN",
              help="Run folders, one per seed.")  # fmt: skip
@click.option("--rescored", multiple=True, type=click.Path(path_type=Path), metavar="RUN",
              help="Folders written by dare rescore --out, one per cell.")  # fmt: skip
@click.option("--reported", metavar="PAPER", help="The numbers that a paper reports.")
@click.option("--algorithm", metavar="NAME", help="What the row is called.")
@click.option(
    "--state",
    type=click.Choice(STATES),
    help="What the row may claim  [default: "
    "rescored if grading its completions again changes nothing, else submitted].",
)
@click.option("--challenges", metavar="ROW", help="The row that this result disputes.")
@click.option("--note", default="", help="A remark kept in the entry.")
@_common
def add(board: str, root: Path | None, as_json: bool, **given: Any) -> None:
    """Add a row to BOARD: from run folders, from rescored completions, or from a paper.

    Several folders may follow one --run or --rescored, as in --run runs/*-d1-*.
    """
    from dare.cli._output import next_command, print_json
    from dare.leaderboard.add import insert
    from dare.leaderboard.build import build as build_table
    from dare.leaderboard.files import find_boards, read_board

    folder = find_boards(root, board)[0]
    entries = _entries(read_board(folder).protocol, given)
    written = insert(folder, entries)
    if as_json:
        print_json({"written": written, "entries": [entry.id for entry in entries]})
        return
    for path in written:
        click.echo(f"added {path}")
    _show(build_table(read_board(folder)))
    next_command(f"dare leaderboard check {board}", f"dare leaderboard diff {board}")


def _entries(protocol: Protocol, given: dict[str, Any]) -> list[Entry]:
    from dare.errors import UsageProblem
    from dare.leaderboard.add import from_paper, from_runs

    sources = [name for name in ("runs", "rescored", "reported") if given[name]]
    if len(sources) != 1:
        raise UsageProblem(
            "a row has exactly one source",
            "name runs (--run), rescored completions (--rescored) or a paper (--reported)",
            "dare leaderboard add --help",
        )
    if sources == ["reported"]:
        if given["more"]:
            extra = ", ".join(map(str, given["more"]))
            raise UsageProblem(f"{extra} does not go with --reported", "a paper has no folders")
        return from_paper(protocol, given["reported"], _today())
    if sources == ["runs"] and not given["algorithm"]:
        raise UsageProblem(
            "the row needs a name", "--run goes with --algorithm NAME", "dare list algorithms"
        )
    row = from_runs(
        protocol,
        (*given[sources[0]], *given["more"]),
        given["algorithm"],
        given["state"],
        _today(),
        given["note"],
        given["challenges"],
    )
    return [row]


@command.command()
@click.argument("board")
@click.argument("row")
@click.option("--reason", required=True, help="Why the row no longer counts.")
@_common
def withdraw(board: str, row: str, reason: str, root: Path | None, as_json: bool) -> None:
    """Take ROW back from BOARD; it stays on the page, struck through, with the reason."""
    from dare.cli._output import next_command, print_json
    from dare.leaderboard.add import withdraw as take_back
    from dare.leaderboard.files import find_boards

    path = take_back(find_boards(root, board)[0], row, reason, _today())
    if as_json:
        print_json({"written": [path], "entry": row})
        return
    click.echo(f"withdrawn: {path}")
    next_command(f"dare leaderboard check {board}")
