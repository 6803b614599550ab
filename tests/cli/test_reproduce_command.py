"""``dare reproduce`` and ``dare compare`` short of running anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dare import reproductions
from dare.cli._reproduce_report import curve, gain_line
from dare.cli._run_progress import cost, percent_done
from dare.errors import Interrupted, UsageProblem
from dare.results.compare_text import render_forest
from dare.training import launch
from dare.training.experiment import baseline_unit, parse_seeds, seed_units
from dare.training.launch import Placed


def dare(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dare", *words],
        cwd=cwd, capture_output=True, text=True, env=os.environ | environment,
    )  # fmt: skip


def placed(tmp_path: Path) -> list[Placed]:
    config, origins = reproductions.load("d1").resolve("tiny")
    units = [baseline_unit(config, origins), *seed_units(config, origins, (0, 1))]
    return [Placed(unit, "key", tmp_path / str(i), False) for i, unit in enumerate(units)]


def test_a_dry_run_touches_nothing(tmp_path: Path) -> None:
    done = dare("reproduce", "d1", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert "training.learning_rate = 0.0003" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_8b_model_without_a_gpu_is_refused_with_the_plan(tmp_path: Path) -> None:
    done = dare("reproduce", "d1", "--model", "llada-8b", cwd=tmp_path, HF_HUB_OFFLINE="1")
    assert done.returncode == 3
    for words in ("hf download GSAI-ML/LLaDA-8B-Instruct", "torchrun --standalone", "plan: "):
        assert words in done.stderr
    assert "--nproc_per_node 8" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_named_sampler_evaluates_and_other_settings_refine_it(tmp_path: Path) -> None:
    words = ("reproduce", "d1", "--sampler", "fast-dllm-dual", "--dry-run", "--set")
    done = dare(*words, "evaluation.selection.threshold=0.8", cwd=tmp_path)
    assert done.returncode == 0
    for line in (
        'evaluation.cache = "dual"  (--sampler)',
        'evaluation.selection.rule = "threshold"  (--sampler)',
        "evaluation.selection.threshold = 0.8  (--set)",
    ):
        assert line in done.stdout
    assert "rollout.cache" not in done.stdout
    other = dare("reproduce", "d1", "--sampler", "sdar", "--dry-run", cwd=tmp_path)
    assert other.returncode == 2
    assert "for block-causal models" in other.stderr


def test_a_mistyped_setting_is_corrected_and_a_flag_beats_a_variable(tmp_path: Path) -> None:
    typo = dare("reproduce", "d1", "--set", "training.learning_rat=1", "--dry-run", cwd=tmp_path)
    assert typo.returncode == 2
    assert "training.learning_rate?" in typo.stderr
    words = ("reproduce", "d1", "--model", "llada-8b", "--dry-run")
    done = dare(*words, cwd=tmp_path, DARE_MODEL__NAME="other")
    assert 'model.name = "llada-8b"  (--model)' in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_stop_the_workers_first(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    class Pool:
        def __init__(self, jobs: int) -> None:
            self.running: list[Any] = []

        def start(self, unit: Placed) -> None:
            self.running.append(unit)

        def collect(self) -> None:
            os.kill(os.getpid(), number)

        def stop(self, tick: Any) -> None:
            told.append("stop")

    monkeypatch.setattr(launch, "_Pool", Pool)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as stopped:
        launch.run_units(placed(tmp_path), 2, stopping=lambda: told.append("said"))
    assert told == ["said", "stop"]
    assert stopped.value.exit_status == 130
    assert signal.getsignal(signal.SIGTERM) == before


def test_progress_counts_work_and_does_not_finish_what_failed(tmp_path: Path) -> None:
    base, seed, _ = placed(tmp_path)
    assert cost(base) < cost(seed) / 5
    seed.phase, seed.done, seed.total = "training", 30, 60
    assert percent_done(seed) == 47
    base.phase, base.done, base.total = "evaluating", 500, 1000
    assert percent_done(base) == 51


def test_the_gain_names_the_widest_interval() -> None:
    paired = {"lo": 24.0, "hi": 33.0, "seed_lo": 24.9, "seed_hi": 34.2, "p": 0.0009}
    numbers = {"gain": 28.53, "minimum_gain": 15.0, "gain_over_problems": paired}
    assert gain_line(numbers) == (
        "gain over the base +28.5 points [+24.0, +34.2], p = 0.0009; at least 15 wanted"
    )
    del numbers["minimum_gain"]  # without a reference nothing is asked for
    assert gain_line(numbers) == "gain over the base +28.5 points [+24.0, +34.2], p = 0.0009"


def test_the_forest_prints_the_interval_that_the_finding_goes_by() -> None:
    paired = SimpleNamespace(
        difference=-6.8, lo=-10.6, hi=-3.1, seed_lo=-13.9, seed_hi=0.2, wider=(-13.9, 0.2)
    )
    contrast = SimpleNamespace(
        a="spg", b="grpo", paired=paired, p_holm=0.053, wording="no difference shown"
    )
    lines = render_forest(SimpleNamespace(contrasts=[contrast]), 80)  # type: ignore[arg-type]
    assert "-6.8 [-13.9, +0.2]" in lines[0]
    assert "no difference shown, p = 0.053" in lines[1]


def test_a_curve_starts_with_the_first_batch() -> None:
    events = [{"accuracy_sampled": share} for share in (0.1, 0.3, 0.5, 0.7)]
    assert curve(events, points=2) == "10 20 60"


@pytest.mark.parametrize(("text", "seeds"), [("0-2", (0, 1, 2)), ("4", (4,)), ("0,3,7", (0, 3, 7))])
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1,1", "3-1", "0-99999999", "-"])
def test_seeds_that_are_none(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse_seeds(text)
