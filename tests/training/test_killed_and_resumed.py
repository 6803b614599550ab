"""A run that is killed, damaged, stopped and started again is the run that nothing happened to.

One story, told once and asked many questions, because every worker spends its first seconds on
imports:

    first worker    a second one is refused meanwhile; killed after some rollout steps
    between         a checkpoint that was never completed, half a line at the end of the curve
    second worker   goes on from the last complete checkpoint; told to stop (in this process)
    third worker    started by the launcher; finishes
    afterwards      the launcher and a worker meet a finished run
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dare.config import RunConfig
from dare.results.files import pretty_json
from dare.results.rundir import find_run, read_events, read_outcomes, read_record
from dare.training import launch, worker
from dare.training.launch import Placed, Unit, place, prepare_folder, run_units

ROLLOUTS, SAVE_EVERY = 16, 2
DEADLINE = 120.0  # seconds until something that must happen has to have happened


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Look every few milliseconds, as long as the process lives."""
    deadline = time.monotonic() + DEADLINE
    while not happened():
        assert process.poll() is None, "the worker ended too early"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def whole_lines(folder: Path) -> int:
    path = folder / "events.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def start_worker(folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "dare.training.worker", "--run-dir", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def complete(folder: Path) -> dict[int, int]:
    """The complete checkpoints: update in the name -> update in the marker."""
    return {
        int(path.parent.name.rpartition("-")[2]): json.loads(path.read_text())["update"]
        for path in folder.glob("checkpoint-*/complete.json")
    }


@dataclass
class Ended:
    """How a worker ended and what it left behind."""

    status: int = 0
    printed: str = ""
    errors: str = ""
    events: int = 0
    checkpoints: dict[int, int] = field(default_factory=dict)
    state: str = ""


def ended(status: int, printed: str, errors: str, folder: Path) -> Ended:
    found = find_run(folder.parent, json.loads((folder / "run.json").read_text())["run_key"])
    assert found is not None
    return Ended(status, printed, errors, whole_lines(folder), complete(folder), found.state)


def end_of(process: subprocess.Popen[str], folder: Path) -> Ended:
    printed, errors = process.communicate(timeout=DEADLINE)
    return ended(process.returncode, printed, errors, folder)


@dataclass
class Story:
    whole: Path
    placed: Placed
    holder: int = 0
    refused: Ended = field(default_factory=Ended)
    mark_while_refused: dict[str, Any] = field(default_factory=dict)
    killed: Ended = field(default_factory=Ended)
    stopped: Ended = field(default_factory=Ended)

    @property
    def folder(self) -> Path:
        return self.placed.folder


@pytest.fixture(scope="module")
def own_signals() -> Iterator[None]:
    """A worker in this process takes over the signals; give them back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def unit(small_run) -> Unit:  # type: ignore[no-untyped-def]
    config: RunConfig = small_run("d1", rollouts=ROLLOUTS, training__save_steps=SAVE_EVERY)
    return Unit(config, {}, "seed 0")


@pytest.fixture(scope="module")
def story(unit, own_signals, tmp_path_factory) -> Story:  # type: ignore[no-untyped-def]
    root = tmp_path_factory.mktemp("runs")
    told = Story(tmp_path_factory.mktemp("whole") / "run", place(unit, root))
    folder = told.folder
    prepare_folder(unit, told.placed.key, folder)
    first = start_worker(folder)
    try:
        wait_for((folder / ".lock.json").exists, first)
        told.holder = first.pid
        told.refused = end_of(start_worker(folder), folder)
        told.mark_while_refused = json.loads((folder / "run.json").read_text())
        # Past a checkpoint, so that something has to be thrown away.
        wait_for(lambda: whole_lines(folder) > SAVE_EVERY, first)
    finally:
        first.kill()
    told.killed = end_of(first, folder)
    damage(folder)
    told.stopped = work_until_stopped(folder)
    prepare_folder(unit, told.placed.key, told.whole)
    assert worker.main(["--run-dir", str(told.whole)]) == 0
    run_units([told.placed], jobs=1)
    return told


def damage(folder: Path) -> None:
    """What else a killed process may leave: a torn checkpoint that looks newest, half a line."""
    torn = folder / f"checkpoint-{2 * ROLLOUTS - 2}"
    shutil.copytree(folder / f"checkpoint-{max(complete(folder))}", torn)
    (torn / "complete.json").unlink()
    weights = (torn / "model.safetensors").read_bytes()
    (torn / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    (torn / "optimizer.pt").unlink()
    with (folder / "events.jsonl").open("a") as events:
        events.write('{"step":99,"update":')


def work_until_stopped(folder: Path) -> Ended:
    """A worker in this process, which gets SIGTERM while it writes its third event."""
    written, append, printed = [0], worker.append_event, io.StringIO()

    def append_and_signal(*arguments: Any) -> None:
        append(*arguments)
        written[0] += 1
        if written[0] == 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(worker, "append_event", append_and_signal)
        status = worker.main(["--run-dir", str(folder)])
    return ended(status, printed.getvalue(), "", folder)


# ---- refused -------------------------------------------------------------------------------


def test_a_second_worker_is_refused_and_told_who_is_there(story: Story) -> None:
    assert story.refused.status == 2
    error = json.loads(story.refused.printed.splitlines()[-1])["error"]
    assert error["what"] == f"another process is running {story.folder.name}"
    assert error["why"].startswith(f"process {story.holder} on ")
    assert error["help"]
    assert error["status"] == 2
    assert "Traceback" not in story.refused.errors


def test_the_refused_worker_leaves_no_mark_on_the_others_run(story: Story) -> None:
    assert story.mark_while_refused["state"] == "started"
    assert "reason" not in story.mark_while_refused


# ---- killed --------------------------------------------------------------------------------


def test_a_killed_worker_leaves_an_unfinished_run_with_a_checkpoint(story: Story) -> None:
    assert story.killed.status == -signal.SIGKILL
    assert story.killed.state == "partial"
    assert SAVE_EVERY < story.killed.events < ROLLOUTS
    assert all(name == update for name, update in story.killed.checkpoints.items())
    assert max(story.killed.checkpoints) >= 2 * SAVE_EVERY


# ---- stopped -------------------------------------------------------------------------------


def test_a_stopped_worker_ends_at_a_rollout_boundary_with_a_checkpoint(story: Story) -> None:
    assert story.stopped.status == 130
    assert story.stopped.state == "partial"
    assert story.stopped.events == max(story.killed.checkpoints) // 2 + 3
    # The newest complete checkpoint is of the very step at which it stopped.
    assert max(story.stopped.checkpoints) == 2 * story.stopped.events


def test_the_second_worker_went_on_from_the_last_complete_checkpoint(story: Story) -> None:
    """Not from the torn one, which has a higher number, and not from the beginning."""
    messages = [json.loads(line) for line in story.stopped.printed.splitlines()]
    steps = [message["done"] for message in messages if message["phase"] == "training"]
    assert steps[0] == max(story.killed.checkpoints) // 2
    assert steps == list(range(steps[0], story.stopped.events + 1))


# ---- finished ------------------------------------------------------------------------------


def comparable(folder: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in event.items() if not name.endswith("_seconds")}
        for event in read_events(folder)
    ]


def test_events_are_those_of_the_uninterrupted_run(story: Story) -> None:
    events = comparable(story.folder)
    assert [event["step"] for event in events] == list(range(ROLLOUTS))
    assert events == comparable(story.whole)


def test_outcomes_are_those_of_the_uninterrupted_run(story: Story) -> None:
    assert len(read_outcomes(story.folder)) == 20
    ours, whole = (folder / "outcomes.jsonl" for folder in (story.folder, story.whole))
    assert ours.read_bytes() == whole.read_bytes()


def test_weights_are_those_of_the_uninterrupted_run_bit_for_bit(story: Story) -> None:
    ours, whole = (folder / "model" / "model.safetensors" for folder in (story.folder, story.whole))
    assert ours.read_bytes() == whole.read_bytes()


def test_the_record_counts_the_work_once(story: Story) -> None:
    """What was done twice because of the kill is not counted twice."""
    ours, whole = read_record(story.folder), read_record(story.whole)
    measured = {"cpu_seconds", "wall_seconds", "peak_memory_bytes"}
    assert ours.status == "complete"
    assert ours.budget.model_dump(exclude=measured) == whole.budget.model_dump(exclude=measured)
    assert ours.budget.completions == 32 * ROLLOUTS
    assert ours.metrics == whole.metrics


def test_no_checkpoint_outlives_the_run(story: Story) -> None:
    assert not list(story.folder.glob("checkpoint-*"))


# ---- afterwards ----------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Time of change and bytes of every file but the locks."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".lock")
    }


def test_a_finished_unit_is_reused(story: Story, unit: Unit, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    before = contents(story.folder)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a worker was started for a finished run")

    monkeypatch.setattr(launch.subprocess, "Popen", never)
    # The key hashes the sources; somebody may be editing them while the tests run.
    monkeypatch.setattr(Unit, "key", lambda self: story.placed.key)
    again = place(unit, story.folder.parent)
    assert (again.finished, again.folder) == (True, story.folder)
    run_units([again], jobs=1)
    assert contents(story.folder) == before


def test_a_worker_leaves_a_finished_run_alone(story: Story, own_signals, capsys) -> None:  # type: ignore[no-untyped-def]
    before = contents(story.folder)
    assert worker.main(["--run-dir", str(story.folder)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["phase"] == "done"
    assert contents(story.folder) == before


def test_a_plan_with_other_settings_is_refused(  # type: ignore[no-untyped-def]
    story: Story, unit: Unit, own_signals, tmp_path, capsys
) -> None:
    before = contents(story.folder)
    other = unit.config.with_seed(1).model_dump(mode="json")
    (tmp_path / "plan.json").write_bytes(pretty_json({"config": other}))
    arguments = ["--run-dir", str(story.folder), "--config", str(tmp_path / "plan.json")]
    assert worker.main(arguments) == 2
    error = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert "other settings" in error["what"]
    assert error["why"]
    assert "--run-dir" in error["help"]
    assert contents(story.folder) == before


def test_a_run_for_more_processes_than_there_are_is_refused(  # type: ignore[no-untyped-def]
    unit: Unit, own_signals, tmp_path, capsys
) -> None:
    """Its batches would silently be others than the config says."""
    training = unit.config.training.model_copy(update={"num_processes": 2})
    config = unit.config.model_copy(update={"training": training})
    prepare_folder(Unit(config, {}, "two"), "0" * 64, tmp_path / "run")
    assert worker.main(["--run-dir", str(tmp_path / "run")]) == 2
    error = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert error["what"] == "a run for 2 process(es) was started in 1"
    assert "--nproc_per_node 2" in error["help"]
