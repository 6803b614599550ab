"""Progress of runs side by side: a row per run, on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dare.cli._output import Progress, Row, note, progress

if TYPE_CHECKING:
    from dare.training.experiment import Finished
    from dare.training.launch import Placed, Unit


def run_with_progress(
    units: Sequence[Unit], root: Path, jobs: int | None, resume: bool = True
) -> list[Finished]:
    """Finish ``units`` below ``root`` and read them back, in order."""
    from dare.errors import UsageProblem
    from dare.training.experiment import Finished, default_jobs
    from dare.training.launch import place, run_units

    placed = [place(unit, root) for unit in units]
    started = [unit for unit in placed if not unit.finished and unit.folder.exists()]
    if started and not resume:
        raise UsageProblem(
            f"{started[0].folder} holds an interrupted run of exactly this",
            "--no-resume was given, and nothing is ever overwritten",
            "leave out --no-resume to continue it, or choose another --runs folder",
        )
    reused = [unit for unit in placed if unit.finished]
    if reused:
        note(f"{len(reused)} of {len(placed)} runs were finished before and are reused")
    if len(reused) < len(placed):
        workers = min(jobs or default_jobs(), len(placed) - len(reused))
        note(f"{len(placed) - len(reused)} runs, {workers} at once, in {root}/")
        with progress() as bars:
            report = _Report(bars, [unit for unit in placed if not unit.finished])
            run_units(placed, workers, report)
    return [Finished.read(unit.folder) for unit in placed]


class _Report:
    """One row for everything, and one per run from the moment it starts."""

    def __init__(self, bars: Progress, units: Sequence[Placed]) -> None:
        self.bars, self.units = bars, units
        self.overall = bars.add("all runs", total=100 * len(units))
        self.rows: dict[int, Row] = {}

    def __call__(self, _: Sequence[Placed]) -> None:
        for unit in self.units:
            if unit.phase == "waiting":
                continue
            if id(unit) not in self.rows:
                self.rows[id(unit)] = self.bars.add(unit.unit.label, total=100)
            row, now = self.rows[id(unit)], (percent_done(unit), unit.phase)
            if now != (row.completed, row.note):
                row.update(*now)
        done = sum(percent_done(unit) for unit in self.units)
        if done != self.overall.completed:
            self.overall.update(done)


def percent_done(unit: Placed) -> int:
    """How much of a run is done, 0 to 100: training counts for most of it."""
    share = unit.done / max(1, unit.total)
    start, width = {
        "waiting": (0.0, 0.0),
        "loading": (0.0, 0.0),
        "training": (0.02, 0.9),
        "evaluating": (0.92, 0.08),
    }.get(unit.phase, (1.0, 0.0))
    if unit.unit.config.training is None and unit.phase == "evaluating":
        start, width = 0.02, 0.98
    return int(100 * (start + width * share))
