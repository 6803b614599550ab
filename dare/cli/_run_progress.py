"""Progress of runs side by side: a row per run, on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dare.cli._output import Progress, Row, note, progress

STOPPING = "stopping at the next safe point ... (Ctrl-C again stops at once)"

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
        note(f"{len(reused)} of {counted(len(placed))} finished before and reused")
    if len(reused) < len(placed):
        workers = min(jobs or default_jobs(), len(placed) - len(reused))
        note(f"{counted(len(placed) - len(reused))} to do, {workers} at once, in {root}/")
        with progress() as bars:
            report = _Report(bars, [unit for unit in placed if not unit.finished])
            run_units(placed, workers, report, lambda: note(STOPPING))
    return [Finished.read(unit.folder) for unit in placed]


class _Report:
    """One row for everything, and one per run from the moment it starts."""

    def __init__(self, bars: Progress, units: Sequence[Placed]) -> None:
        self.bars, self.units = bars, units
        self.costs = [cost(unit) for unit in units]
        self.overall = bars.add("all runs", total=100)
        self.rows: dict[int, Row] = {}

    def __call__(self, _: Sequence[Placed]) -> None:
        for unit in self.units:
            if unit.phase == "waiting":
                continue
            if id(unit) not in self.rows:
                self.rows[id(unit)] = self.bars.add(unit.unit.label, total=100)
            row = self.rows[id(unit)]
            over = unit.phase in ("failed", "stopped")
            now = (row.completed if over else percent_done(unit), unit.phase)
            if now != (row.completed, row.note):
                row.update(*now)
        shares = [self._percent(unit) * c for unit, c in zip(self.units, self.costs, strict=True)]
        done = int(sum(shares) / sum(self.costs))
        if done != self.overall.completed:
            self.overall.update(done)

    def _percent(self, unit: Placed) -> float:
        row = self.rows.get(id(unit))
        return row.completed if row is not None else 0.0


def counted(runs: int) -> str:
    """``1 run``, ``2 runs``."""
    return "1 run" if runs == 1 else f"{runs} runs"


def cost(unit: Placed) -> float:
    """The arithmetic of a run, so that a short evaluation does not count as a training run."""
    from dare.models import registry
    from dare.results.plan import estimate

    config = unit.unit.config
    return estimate(config, registry.describe(config.model.name)).flops


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
