"""How commands print.

Results go to stdout, everything else to stderr.  Colour and moving bars need a terminal;
without one, lines are at most 80 columns wide (``COLUMNS`` changes that) and carry no escape
codes.  ``NO_COLOR`` is respected.  Markup is off: text from files and models is shown as it is.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from dare.cli._problems import WIDTH, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

T = TypeVar("T")
LEAST_COLUMN = 8  # what a table leaves for each other column before a fixed one is wrapped


def console() -> Console:
    """The console on stdout, for results."""
    return _console(sys.stdout)


def error_console() -> Console:
    """The console on stderr, for everything that is not a result."""
    return _console(sys.stderr)


def _console(stream: IO[str]) -> Console:
    from rich.console import Console

    terminal = stream.isatty()
    return Console(
        file=stream,
        force_terminal=terminal,
        width=None if terminal else _piped_width(),
        no_color=None if terminal else True,
        markup=False,
        emoji=False,
        highlight=False,
    )


def _piped_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and 20 <= int(columns) <= 1000 else WIDTH


def print_json(value: Any) -> None:
    """``value`` as the one JSON document on stdout.

    Pydantic models, mappings, sequences, paths and tuples are accepted; a number
    JSON cannot hold (NaN, infinity) becomes null.
    """
    sys.stdout.write(json.dumps(_plain(value), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="python", by_alias=True))
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def say(text: str = "", indent: int = 0) -> None:
    """One line or paragraph of a result, wrapped to the console."""
    from rich.padding import Padding
    from rich.text import Text

    body = Padding(Text(printable(text)), (0, 0, 0, indent), expand=False) if text else ""
    _print_rendered(console(), body)


def heading(text: str) -> None:
    """A heading above a block of results; bold on a terminal."""
    from rich.text import Text

    out = console()
    _print_rendered(out, Text(printable(text), style="bold" if out.is_terminal else ""))


def note(text: str) -> None:
    """A remark that is not a result: stderr."""
    _print_rendered(error_console(), printable(text))


def next_command(text: str, *more: str) -> None:
    """The next useful commands, on stderr, after everything on stdout has been written.

    Never wrapped, so that they can be copied.
    """
    sys.stdout.flush()
    lines = [f"{'next: ' if not i else '      '}{line}" for i, line in enumerate((text, *more))]
    sys.stderr.write(printable("\n".join(lines)) + "\n")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str = "",
    right: Sequence[str] = (),
    fixed: Sequence[str] = (),
    header: bool = True,
) -> None:
    """A table on stdout.

    ``right`` names right-aligned columns, ``fixed`` those that must not be wrapped (ids that
    somebody will copy).  None is shown as "-".
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out = console()
    grid = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        show_header=header,
        title=title,
        title_justify="left",
    )
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    room = out.width - LEAST_COLUMN * (len(columns) - 1)
    for index, name in enumerate(columns):
        widest = max((len(row[index]) for row in cells), default=0)
        grid.add_column(
            Text(name),
            justify="right" if name in right else "left",
            no_wrap=name in fixed and widest <= room,  # never squeezes the others out
            overflow="fold",
        )
    for row in cells:
        grid.add_row(*map(Text, row))
    _print_rendered(out, grid)


def _print_rendered(out: Console, renderable: Any) -> None:
    """Print without the padding at line ends that a terminal needs and a file does not."""
    if out.is_terminal:
        out.print(renderable)
        return
    with out.capture() as captured:
        out.print(renderable)
    text = "\n".join(line.rstrip() for line in captured.get().split("\n"))
    out.file.write(text)


class Row:
    """One line of progress.  ``completed`` and ``total`` count the same unit."""

    def __init__(self, owner: Progress, label: str, total: float | None) -> None:
        self.label, self.total = label, total
        self.completed, self.note = 0.0, ""
        self._before = 0.0
        self._owner = owner
        self._started = self.last_line = owner.clock()
        self.bar: Any = None

    def advance(self, amount: float = 1, note: str | None = None) -> None:
        """``amount`` more is done."""
        self.update(self.completed + amount, note)

    def update(self, completed: float, note: str | None = None) -> None:
        """``completed`` is done altogether; ``note`` replaces the remark behind the bar."""
        self.completed = completed
        if note is not None:
            self.note = note
        self._owner.changed(self)

    def resume(self, completed: float) -> None:
        """So much was done before this row began; it says nothing about the pace."""
        self._before, self._started = completed, self._owner.clock()

    def seconds_left(self) -> float | None:
        """Estimated from the pace so far; None before a twentieth is done: loading has no pace."""
        if not self.total:
            return None
        done, left = self.completed - self._before, self.total - self.completed
        if done <= 0 or done < 0.05 * (self.total - self._before):
            return None
        elapsed = self._owner.clock() - self._started
        return max(0.0, elapsed * left / done)

    def line(self) -> str:
        """The row as one line of text, for a stream that is no terminal."""
        done = f"{self.completed:g}" + (f"/{self.total:g}" if self.total else "")
        left = self.seconds_left()
        eta = f", {duration(left)} left" if left is not None else ""
        remark = f", {self.note}" if self.note else ""
        return printable(f"{self.label}: {done}{eta}{remark}")


class Progress:
    """Rows of progress on stderr: moving bars on a terminal, else a line now and then."""

    def __init__(
        self, stream: IO[str], clock: Callable[[], float] = time.monotonic, every: float = 10.0
    ) -> None:
        self.clock, self._every, self._stream = clock, every, stream
        self._bars = _bars(stream) if stream.isatty() else None

    def add(self, label: str, total: float | None = None) -> Row:
        """A new row; ``total`` None means that the end is not known."""
        row = Row(self, label, total)
        if self._bars is not None:
            row.bar = self._bars.add_task(printable(label), total=total, note="")
        return row

    def changed(self, row: Row) -> None:
        """Show the row's new state."""
        if self._bars is not None:
            self._bars.update(row.bar, completed=row.completed, note=row.note)
            return
        now = self.clock()
        ended = row.total is not None and row.completed >= row.total
        if ended or now - row.last_line >= self._every:
            row.last_line = now
            self._stream.write(row.line() + "\n")
            self._stream.flush()

    def start(self) -> None:
        if self._bars is not None:
            self._bars.start()

    def stop(self) -> None:
        if self._bars is not None:
            self._bars.stop()


@contextmanager
def progress(
    *, clock: Callable[[], float] = time.monotonic, every: float = 10.0
) -> Iterator[Progress]:
    """Progress on stderr for work of more than two seconds.

    with progress() as bars:
        row = bars.add("seed 0", total=60)
        row.advance(1, note="reward 0.71")
    """
    bars = Progress(sys.stderr, clock, every)
    bars.start()
    try:
        yield bars
    finally:
        bars.stop()


def _bars(stream: IO[str]) -> RichProgress:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", markup=False),
        console=_console(stream),
    )


def duration(seconds: float) -> str:
    """``95`` as "1 min 35 s"; the two largest units."""
    total = round(seconds)
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    shown = [f"{value} {unit}" for value, unit in parts if value]
    return " ".join(shown[:2]) or "0 s"
