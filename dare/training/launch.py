"""Runs side by side: one worker process per run, as many at once as there are cores.

A *unit* is one seed of one config.  Its run key names it: a finished unit is reused, an
interrupted one continues in its own folder, and two processes cannot work on the same one.
Imports no torch; the workers do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from dare.config import Origins, RunConfig
from dare.errors import DareError, Interrupted
from dare.models import registry
from dare.models.weights import checkpoint_sha256
from dare.results.environment import numerics_sha256, run_key
from dare.results.files import pretty_json, write_atomic
from dare.results.rundir import (
    RECORD,
    find_run,
    read_outcomes,
    read_record,
    run_name,
    start_run,
)

CONFIG = "config.json"
LOG = "log.txt"


@dataclass(frozen=True)
class Unit:
    """One run to have: its config, where the values came from, and how to call it on screen."""

    config: RunConfig
    origins: Origins
    label: str

    def key(self) -> str:
        """Equal keys give equal numbers: config, code and libraries that decide them, base."""
        base = registry.require(self.config.model.name)
        code = (
            f"{numerics_sha256()} torch {version('torch')} transformers {version('transformers')}"
        )
        return run_key(self.config.digest(), code, checkpoint_sha256(base))


@dataclass
class Placed:
    """A unit with its folder; ``finished`` when its record is there and intact."""

    unit: Unit
    key: str
    folder: Path
    finished: bool
    phase: str = "waiting"
    done: int = 0
    total: int = 1
    started: float | None = None
    problem: DareError | None = None
    log: str = ""


Reporter = Callable[[Sequence[Placed]], None]


def place(unit: Unit, root: Path) -> Placed:
    """Find the unit's folder below ``root``, or name a new one (nothing is created)."""
    key = unit.key()
    found = find_run(root, key)
    if found is not None and found.state == "complete":
        read_outcomes(found.path, found.record)
        return Placed(unit, key, found.path, finished=True, phase="done", done=1)
    if found is not None:
        return Placed(unit, key, found.path, finished=False)
    config = unit.config
    today = datetime.now(UTC).date().isoformat()
    folder = root / run_name(today, config.paper, config.task.name, key)
    if (folder / RECORD).exists():  # not found above, so it is damaged: say how
        read_outcomes(folder, read_record(folder))
    return Placed(unit, key, folder, finished=False)


def prepare_folder(unit: Unit, key: str, folder: Path) -> None:
    """Mark ``folder`` as this unit's and put its config there for the worker."""
    start_run(folder, key, label=unit.label)
    content = {
        "config": unit.config.model_dump(mode="json"),
        "origins": unit.origins,
        "run_key": key,
    }
    write_atomic(folder / CONFIG, pretty_json(content))


def run_units(
    placed: Sequence[Placed],
    jobs: int,
    report: Reporter = lambda units: None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Finish every unit.  Ctrl-C, SIGTERM and SIGHUP let the workers stop at a safe point.

    ``stopping`` is called when that begins.  Raises ``Interrupted`` when stopped, or the first
    worker's error once the others are done.
    """
    waiting = [unit for unit in placed if not unit.finished]
    pool = _Pool(jobs)
    try:
        with _signals_interrupt():
            while waiting or pool.running:
                while waiting and len(pool.running) < jobs:
                    pool.start(waiting.pop(0))
                pool.collect()
                report(placed)
                time.sleep(0.1)
    except KeyboardInterrupt:
        stopping()
        pool.stop(lambda: report(placed))
        raise Interrupted(
            "stopped at a safe point",
            "finished runs are kept, the others have a checkpoint",
            "run the same command again to continue",
        ) from None
    report(placed)
    for unit in placed:
        # Another process may have finished the run that this one found in use.
        if unit.problem is not None and not place(unit.unit, unit.folder.parent).finished:
            raise unit.problem


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP act as Ctrl-C does, so that no worker is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {s: signal.signal(s, interrupt) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _Pool:
    """The running workers."""

    jobs: int
    running: list[tuple[Placed, subprocess.Popen[str], threading.Thread]] = field(
        default_factory=list
    )

    def start(self, unit: Placed) -> None:
        prepare_folder(unit.unit, unit.key, unit.folder)
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",  # tiny matrices: a second thread only costs
            # glibc gives large buffers back at once, and page faults then take a fifth of a run.
            "MALLOC_MMAP_THRESHOLD_": str(2**30),
            "MALLOC_TRIM_THRESHOLD_": str(2**30),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONUNBUFFERED": "1",
        }
        with open(unit.folder / LOG, "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dare.training.worker", "--run-dir", str(unit.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        unit.phase, unit.started = "loading", time.monotonic()
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(unit, process.stdout), daemon=True)
        reader.start()
        self.running.append((unit, process, reader))

    def collect(self) -> None:
        """Take in the workers that have ended."""
        for entry in list(self.running):
            unit, process, reader = entry
            if process.poll() is None:
                continue
            reader.join()
            self.running.remove(entry)
            if process.returncode == 0:
                unit.finished, unit.phase = True, "done"
            else:
                unit.phase = "stopped" if process.returncode == 130 else "failed"
                unit.problem = unit.problem or _failure(unit, process.returncode)

    def stop(self, tick: Callable[[], None]) -> None:
        """Ask every worker to stop; a second Ctrl-C kills them."""
        for _, process, _ in self.running:
            process.send_signal(signal.SIGTERM)
        try:
            while self.running:
                self.collect()
                tick()
                time.sleep(0.1)
        except KeyboardInterrupt:
            for _, process, _ in self.running:
                process.kill()


def _read(unit: Placed, stream: IO[str]) -> None:
    """Follow a worker's messages, one JSON object a line."""
    for line in stream:
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        if "phase" in message:
            unit.phase, unit.done, unit.total = message["phase"], message["done"], message["total"]
        if "error" in message:
            error = message["error"]
            unit.problem = DareError(error["what"], error["why"], error["help"])
            unit.problem.exit_status = error["status"]


def _failure(unit: Placed, status: int) -> DareError:
    log = unit.folder / LOG
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    if status == 130:
        return Interrupted(f"{unit.unit.label} was stopped", "", "run the same command again")
    why = lines[-1] if lines else f"its process ended with status {status}"
    return DareError(f"the run '{unit.unit.label}' failed", why, f"see {log}")
