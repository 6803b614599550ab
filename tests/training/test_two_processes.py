"""Two processes that share a run do what one does, and one of them writes.

Started by ``torch.distributed.run`` on gloo.  All cases share one start, because importing the
trainer is what takes long: this file is its own driver, see ``drive``.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dare.config import RunConfig
from dare.results.files import pretty_json
from dare.results.record import Record
from dare.results.rundir import read_events, read_outcomes, read_record
from dare.tasks import sudoku4

LIMIT = 240  # seconds before a start that hangs is ended
TOTAL = 64  # completions of an update


@dataclass(frozen=True)
class Case:
    """A run to have twice, with some rewards missing unless ``whole``: the processes then hold
    unequal shares of what counts.  ``interrupted``: the second process alone is told to stop."""

    name: str
    paper: str
    settings: dict[str, Any]
    rollouts: int = 1
    whole: bool = False
    interrupted: bool = False


IN_TWO_MICRO_BATCHES = {
    "training.per_device_train_batch_size": 16,
    "training.gradient_accumulation_steps": 2,
}
PLAIN = Case("plain", "d1", {}, rollouts=2, whole=True)
CASES = (
    Case("sequence", "spg", {"algorithm_options.loss_normaliser": "sequence"}),
    Case("group", "d1", {"algorithm_options.loss_normaliser": "group_tokens"}),
    Case("batch", "d1", IN_TWO_MICRO_BATCHES, rollouts=2, interrupted=True),
)


def rewards_with_gaps(
    prompts: list[str], completions: list[str], **columns: Any
) -> list[float | None]:
    """The task's reward, missing for about a quarter of the prompts and a third of the rest."""
    earned = sudoku4.blank_share(prompts, completions, **columns)
    return [
        None if int(prompt) % 4 == 0 or sum(map(ord, completion)) % 3 == 0 else value
        for prompt, completion, value in zip(prompts, completions, earned, strict=True)
    ]


# ---- inside torchrun -----------------------------------------------------------------------


def drive(folder: Path) -> None:
    """Run every case in turn; each process leaves its exit statuses in a file of its own.

    The plain one goes through the worker's command line.  In the others the second process gets
    a run folder of its own, where whatever it writes will be found, but for the case that
    continues from a checkpoint.
    """
    from dare.training import ranks, trainer, worker

    rank = ranks.Ranks.here().rank
    statuses = {PLAIN.name: [as_command(folder)]}
    join, report = ranks.Ranks.join, trainer.DiffusionTrainer.report_phase
    sudoku4.TASK.rewards = lambda protocol: (rewards_with_gaps,)  # type: ignore[method-assign]
    for case in CASES:
        shared = folder / "two" / case.name
        mine = shared if rank == 0 or case.interrupted else folder / "second" / case.name
        mine.mkdir(parents=True, exist_ok=True)

        def join_and_copy(self: Any, shared: Path = shared, mine: Path = mine) -> None:
            join(self)
            if mine != shared:
                shutil.copy(shared / "config.json", mine / "config.json")

        def report_and_stop(self: Any, case: Case = case) -> None:
            report(self)
            if case.interrupted and rank == 1 and self.state.global_step == 2:
                signal.raise_signal(signal.SIGTERM)

        ranks.Ranks.join = join_and_copy  # type: ignore[method-assign]
        trainer.DiffusionTrainer.report_phase = report_and_stop  # type: ignore[method-assign]
        plan = folder / f"{case.name}-2.json"
        arguments = ["--config", str(plan), "--run-dir", str(mine)]
        done = [worker.main(arguments)]
        if done == [130]:
            done.append(worker.main(arguments))
        statuses[case.name] = done
    (folder / f"statuses-{rank}.json").write_text(json.dumps(statuses))


def as_command(folder: Path) -> int:
    """``python -m dare.training.worker --config ... --run-dir ...``; the exit status."""
    plan, target = folder / f"{PLAIN.name}-2.json", folder / "two" / PLAIN.name
    sys.argv = ["worker", "--config", str(plan), "--run-dir", str(target)]
    try:
        runpy.run_module("dare.training.worker", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("the command did not exit")


if __name__ == "__main__":
    drive(Path(sys.argv[1]))
    sys.exit(0)


# ---- outside -------------------------------------------------------------------------------


def torchrun(folder: Path, *command: str) -> str:
    """Two processes on this machine; what they printed.  Nothing of them survives."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [*start, *command], stdout=subprocess.PIPE, stderr=errors, text=True,
            env=environment,
        )  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=LIMIT)
        finally:
            if process.poll() is None:  # it ends its processes, within 30 s by force
                process.terminate()
                process.wait()
    assert process.returncode == 0, (folder / "errors.txt").read_text()[-3000:]
    return printed


def write_plan(small_run, folder: Path, case: Case, processes: int) -> Path:  # type: ignore[no-untyped-def]
    settings: dict[str, Any] = {
        "training.per_device_train_batch_size": TOTAL // processes,
        "training.num_processes": processes,
        "task.eval_limit": 21,
    }
    settings |= case.settings if processes == 2 else _in_one(case.settings)
    named = {name.replace(".", "__"): value for name, value in settings.items()}
    config: RunConfig = small_run(case.paper, case.rollouts, **named)
    assert config.training is not None
    assert config.training.completions_per_update == TOTAL
    plan = folder / f"{case.name}-{processes}.json"
    plan.write_bytes(pretty_json({"config": config.model_dump(mode="json"), "origins": {}}))
    return plan


def _in_one(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not name.startswith("training.")}


@pytest.fixture(scope="module")
def own_signals() -> Iterator[None]:
    """A worker in this process takes over the signals; give them back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def alone(small_run, folder: Path, case: Case) -> None:  # type: ignore[no-untyped-def]
    """The same run by one process: this one."""
    from dare.training import worker

    plan, target = write_plan(small_run, folder, case, 1), folder / "one" / case.name
    function = sudoku4.blank_share if case.whole else rewards_with_gaps
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sudoku4.TASK, "rewards", lambda protocol: (function,), raising=False)
        assert worker.main(["--config", str(plan), "--run-dir", str(target)]) == 0


@pytest.fixture(scope="module")
def driven(small_run, own_signals, tmp_path_factory) -> Path:  # type: ignore[no-untyped-def]
    """Every case by two processes in ``two/``, and by one in ``one/``."""
    folder = tmp_path_factory.mktemp("driven")
    for case in (PLAIN, *CASES):
        write_plan(small_run, folder, case, 2)
        alone(small_run, folder, case)
    (folder / "printed.txt").write_text(torchrun(folder, __file__, str(folder)))
    return folder


def assert_same_run(folder: Path, case: Case) -> list[dict[str, Any]]:
    """Losses to 1e-5, weights to 1e-4 of the largest, outcomes line for line; the events."""
    from safetensors.torch import load_file

    one, two = folder / "one" / case.name, folder / "two" / case.name
    ours, theirs = read_events(one), read_events(two)
    assert [event["step"] for event in theirs] == list(range(case.rollouts))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for key in mine.keys() - {"cpu_seconds", "wall_seconds"}:
            assert other[key] == pytest.approx(mine[key], abs=1e-5), key
    weights = load_file(one / "model" / "model.safetensors")
    shared = load_file(two / "model" / "model.safetensors")
    largest = max(float(weight.abs().max()) for weight in weights.values())
    assert weights.keys() == shared.keys()
    for key, weight in weights.items():
        assert float((shared[key] - weight).abs().max()) < 1e-4 * largest, key
    assert (two / "outcomes.jsonl").read_bytes() == (one / "outcomes.jsonl").read_bytes()
    assert len(read_outcomes(two)) == 21
    return theirs


def spent(record: Record) -> dict[str, Any]:
    measured = {"cpu_seconds", "wall_seconds", "peak_memory_bytes"}
    return record.budget.model_dump(exclude=measured)


def test_the_worker_under_torchrun_is_the_worker_alone(driven: Path) -> None:
    events = assert_same_run(driven, PLAIN)
    assert all(event["completions"] == TOTAL for event in events)
    records = [read_record(driven / side / PLAIN.name) for side in ("one", "two")]
    assert spent(records[0]) == spent(records[1])
    assert records[0].metrics == records[1].metrics


def test_only_the_first_process_speaks(driven: Path) -> None:
    """One message per phase and rollout step, not two; the plain run comes first."""
    messages = [json.loads(line) for line in (driven / "printed.txt").read_text().splitlines()]
    phases = [message["phase"] for message in messages]
    assert phases.count("loading") == len(CASES) + 2  # one case was started twice
    plain = messages[: phases.index("loading", 1)]
    assert [m["done"] for m in plain if m["phase"] == "training"] == [0, 1, 2]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_unequal_shares_of_missing_rewards_give_the_same_run(driven: Path, case: Case) -> None:
    """Each process normalises by what the whole batch holds, not by its own part."""
    events = assert_same_run(driven, case)
    assert all(0 < event["missing_rewards"] < TOTAL for event in events)


def test_only_the_first_process_writes(driven: Path) -> None:
    left = {path.relative_to(driven / "second").as_posix() for path in driven.glob("second/**/*.*")}
    assert left == {f"{case.name}/config.json" for case in CASES if not case.interrupted}
    for case in CASES:
        names = {path.name for path in (driven / "two" / case.name).iterdir()}
        visible = {name for name in names if not name.startswith(".")}
        assert visible == {
            "config.json", "events.jsonl", "model", "outcomes.jsonl", "record.json", "run.json",
        }  # fmt: skip


def test_a_stop_that_one_process_saw_stops_both_and_costs_nothing(driven: Path) -> None:
    """Status 130 in both, at the same rollout boundary; that the continued run is the same is
    asserted above."""
    statuses = [json.loads((driven / f"statuses-{rank}.json").read_text()) for rank in (0, 1)]
    assert statuses[0] == statuses[1] == {
        "plain": [0], "sequence": [0], "group": [0], "batch": [130, 0],
    }  # fmt: skip
