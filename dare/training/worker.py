"""One run in one process: load, train, evaluate, record.

    python -m dare.training.worker --run-dir runs/2026-12-01-d1-sudoku4-1a2b3c4d
    torchrun --standalone --nproc_per_node 8 -m dare.training.worker \\
        --config plan.json --run-dir runs/NAME

The folder holds the config (see ``dare.training.launch``), or ``--config`` names a file that
``dare reproduce PAPER --dry-run --json`` wrote.  Under ``torchrun`` the processes share every
rollout batch and the evaluation; the first one writes.  Progress goes to stdout as JSON lines.
SIGINT and SIGTERM stop at the next rollout boundary with a checkpoint and status 130;
started again in the same folder, the run continues as if nothing had happened.
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dare.config import RunConfig, TrainingConfig
from dare.errors import DareError, Missing, UsageProblem
from dare.results.files import parse_object, read_plain
from dare.results.rundir import (
    RECORD,
    append_event,
    lock,
    mark_run,
    read_record,
    truncate_events,
)
from dare.training.ranks import Ranks, any_process

MODEL = "model"


@dataclass
class Stop:
    """Whether somebody asked us to stop, and whom to tell."""

    requested: bool = False
    trainer: Any = None

    def __call__(self, *_: object) -> None:
        self.requested = True
        if self.trainer is not None:
            self.trainer.stop_requested = True


def tell(**message: Any) -> None:
    """One progress message.  If nobody reads them any more, end as if interrupted."""
    if not Ranks.here().first:
        return
    try:
        print(json.dumps(message), flush=True)
    except BrokenPipeError:
        signal.raise_signal(signal.SIGTERM)


def main(arguments: list[str] | None = None) -> int:
    """Run the unit in ``--run-dir``; the exit status."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m dare.training.worker")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    options = parser.parse_args(arguments)
    folder: Path = options.run_dir
    stop = Stop()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        with lock(folder) if Ranks.here().first else nullcontext():
            if options.config is not None:
                _adopt(options.config, folder)
            if (folder / RECORD).exists():
                read_record(folder)
                tell(phase="done", done=1, total=1)
                return 0
            return _run_marked(folder, stop)
    except DareError as problem:
        tell(error=_as_message(problem))
        return problem.exit_status


def _run_marked(folder: Path, stop: Stop) -> int:
    """Run the unit; the reason of a failure is kept in its folder, which must be ours."""
    try:
        return 0 if _run(folder, stop) else 130
    except DareError as problem:
        _mark_failed(folder, problem.what)
        raise
    except Exception as problem:
        _mark_failed(folder, f"{type(problem).__name__}: {problem}")
        if "No space left on device" in str(problem):  # by the system, safetensors or torch
            raise Missing(
                f"the disk of {folder} is full", str(problem)[:200],
                "make room, then run the same command again: it continues",
            ) from problem  # fmt: skip
        raise


def _as_message(problem: DareError) -> dict[str, Any]:
    return {
        "what": problem.what,
        "why": problem.why,
        "help": problem.help,
        "status": problem.exit_status,
    }


def _mark_failed(folder: Path, why: str) -> None:
    if Ranks.here().first and (folder / "run.json").exists():
        mark_run(folder, "failed", why)


def _adopt(file: Path, folder: Path) -> None:
    """Take the config of ``--dry-run --json`` into a run folder, new or of the same config."""
    if not Ranks.here().first:
        return
    from dare.training.launch import CONFIG, Unit, prepare_folder

    content = parse_object(read_plain(file, "run config"), file, "run config")
    try:
        config = RunConfig.model_validate(content["config"])
    except (KeyError, ValueError) as error:
        raise UsageProblem(
            f"{file} is not the plan of a run",
            str(error),
            "dare reproduce PAPER --model MODEL --dry-run --json > plan.json",
        ) from error
    if not (folder / CONFIG).exists():
        unit = Unit(config, content.get("origins", {}), folder.name)
        prepare_folder(unit, unit.key(), folder)
    elif (present := read_config(folder)[0].digest()) != config.digest():
        raise UsageProblem(
            f"{folder} belongs to a run with other settings",
            f"their digest is {present[:8]}, that of {file} is {config.digest()[:8]}",
            "choose another --run-dir; nothing was changed",
        )


def read_config(folder: Path) -> tuple[RunConfig, dict[str, str], str]:
    """Config, origins and run key of the unit in ``folder``."""
    path = folder / "config.json"
    content = parse_object(read_plain(path, "run config"), path, "run config")
    try:
        config = RunConfig.model_validate(content["config"])
        return config, dict(content["origins"]), str(content["run_key"])
    except (KeyError, ValueError) as error:
        raise UsageProblem(
            f"{path} is not the config of a run", str(error), "start the run again in a new folder"
        ) from error


def _run(folder: Path, stop: Stop) -> bool:
    """Train if there is anything to train, evaluate, write the record.  False: stopped."""
    tell(phase="loading", done=0, total=1)
    import torch

    from dare.training import session

    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    ranks = Ranks.here()
    ranks.join()
    config, origins, key = read_config(folder)
    if config.training is not None:
        check_shape(config.training, ranks)
    run = session.Session.open(config, folder, ranks)
    if config.training is not None and not _train(run, folder, stop):
        return False
    if any_process(stop.requested):
        return False
    tell(phase="evaluating", done=0, total=1)
    outcomes, metrics, seconds = run.evaluate(
        lambda done, total: tell(phase="evaluating", done=done, total=total)
    )
    if not ranks.first:
        return True
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    spent = run.budget(outcomes, seconds, memory)
    run.write_record(outcomes, metrics, spent, origins, key)
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return True


def check_shape(training: TrainingConfig, ranks: Ranks) -> None:
    """Refuse what would train on other batches than the config says."""
    if training.num_processes != ranks.size:
        raise UsageProblem(
            f"a run for {training.num_processes} process(es) was started in {ranks.size}",
            "its batches would not be those that its config describes",
            f"torchrun --standalone --nproc_per_node {training.num_processes} "
            "-m dare.training.worker --run-dir FOLDER, or change training.num_processes",
        )


def _train(run: Any, folder: Path, stop: Stop) -> bool:
    """The training phase, continued from the last complete checkpoint.  False: stopped."""
    from dare.training.trainer import latest_checkpoint

    training = run.config.training
    total = training.max_steps // training.num_iterations
    resume = latest_checkpoint(folder)
    done = int(resume.name.rpartition("-")[2]) // training.num_iterations if resume else 0
    first = run.ranks.first
    if first:
        truncate_events(folder, done - 1)

    def on_event(event: dict[str, Any]) -> None:
        if first:
            append_event(folder, event)
        tell(phase="training", done=event["step"] + 1, total=total)

    trainer = run.trainer(on_event)
    stop.trainer, trainer.stop_requested = trainer, stop.requested
    tell(phase="training", done=done, total=total)
    if done < total:
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    else:
        trainer._load_from_checkpoint(str(resume), run.model)
    finished = done >= total or trainer.state.global_step >= training.max_steps
    if finished and first:
        run.save_model(folder / MODEL)
    return finished


if __name__ == "__main__":
    sys.exit(main())
