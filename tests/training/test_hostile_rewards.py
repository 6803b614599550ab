"""Rewards and completions that teach nothing, or should not exist, do no harm and are counted."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dare.config import RunConfig
from dare.errors import UsageProblem
from dare.evaluation.engine import evaluate
from dare.results.files import pretty_json
from dare.results.rundir import append_event, read_events, read_outcomes, read_record
from dare.sampling.decode import Generation
from dare.tasks import sudoku4
from dare.training import rollout, worker
from dare.training.ranks import Ranks
from dare.training.session import Session

PAPERS = ("d1", "spg")
SAMPLES, GROUP = 32, 8
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def give(monkeypatch) -> Callable[[list[float | None]], None]:  # type: ignore[no-untyped-def]
    """``give(values)``: every rollout batch earns these rewards, whatever it contains."""

    def set_rewards(values: list[float | None]) -> None:
        def fixed(completions: list[str], **_: Any) -> list[float | None]:
            return list(values)

        monkeypatch.setattr(sudoku4.TASK, "rewards", lambda protocol: (fixed,), raising=False)

    return set_rewards


@dataclass
class Trained:
    events: list[dict[str, Any]]
    before: torch.Tensor
    after: torch.Tensor
    trainer: Any

    @property
    def unchanged(self) -> bool:
        return torch.equal(self.before, self.after)


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().clone().reshape(-1) for p in model.parameters()])


def train(config: RunConfig, folder: Path) -> Trained:
    """Train, and check what must hold under any rewards: finite losses, finite weights."""
    session = Session.open(config, folder, Ranks())
    events: list[dict[str, Any]] = []
    trainer = session.trainer(events.append)
    before = weights(session.model)
    trainer.train()
    after = weights(session.model)
    assert events
    assert all(math.isfinite(event["loss"]) for event in events)
    assert bool(after.isfinite().all())
    return Trained(events, before, after, trainer)


# ---- rewards without information -----------------------------------------------------------


@pytest.mark.parametrize(("paper", "level"), [("d1", 0.0), ("d1", 0.3), ("spg", 1.0)])
def test_constant_rewards_change_nothing(small_run, give, paper, level, tmp_path) -> None:  # type: ignore[no-untyped-def]
    give([level] * SAMPLES)
    run = train(small_run(paper, rollouts=1), tmp_path)
    assert run.unchanged
    for event in run.events:
        assert event["loss"] == 0.0
        assert event["constant_reward"] == 1.0
        assert (event["isolated"], event["missing_rewards"]) == (0.0, 0)
        assert event["reward"] == pytest.approx(level)


@pytest.mark.parametrize("paper", PAPERS)
def test_one_constant_group_counts_as_one_and_its_level_does_not_matter(  # type: ignore[no-untyped-def]
    small_run, give, paper, tmp_path
) -> None:
    informative = [index % GROUP / GROUP for index in range(SAMPLES - GROUP)]
    runs = []
    for level in (0.0, 0.7):
        give([level] * GROUP + informative)
        runs.append(train(small_run(paper, rollouts=1), tmp_path / str(level)))
    assert not runs[0].unchanged
    assert runs[0].events[0]["constant_reward"] == GROUP / SAMPLES
    assert torch.equal(runs[0].after, runs[1].after)


@pytest.mark.parametrize(
    ("paper", "value"), [("d1", None), ("d1", NAN), ("d1", INF), ("d1", -INF), ("spg", None)]
)
def test_missing_rewards_everywhere_change_nothing(small_run, give, paper, value, tmp_path) -> None:  # type: ignore[no-untyped-def]
    give([value] * SAMPLES)
    run = train(small_run(paper, rollouts=1), tmp_path)
    assert run.unchanged
    for event in run.events:
        assert event["loss"] == 0.0
        assert event["missing_rewards"] == SAMPLES
        assert event["isolated"] == 1.0
        assert event["constant_reward"] == 0.0
        assert math.isnan(event["reward"])


def test_a_missing_mean_reward_is_null_in_the_file(small_run, give, tmp_path) -> None:  # type: ignore[no-untyped-def]
    give([None] * SAMPLES)
    for event in train(small_run("d1", rollouts=1), tmp_path).events:
        append_event(tmp_path, event)
    assert [event["reward"] for event in read_events(tmp_path)] == [None]


@pytest.mark.parametrize("value", [None, NAN, INF])
def test_one_missing_reward_leaves_its_sample_out(small_run, give, value, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """One of 32: the mean of the others in its group is 1/7, their sample std sqrt(6/42)."""
    give([value, 1.0] + [0.0] * 6 + [index % GROUP / GROUP for index in range(SAMPLES - GROUP)])
    run = train(small_run("d1", rollouts=1), tmp_path)
    (event,) = run.events
    assert not run.unchanged
    assert event["missing_rewards"] == 1
    assert event["isolated"] == 1 / SAMPLES
    assert event["reward"] == pytest.approx((1 + 3 * sum(range(8)) / 8) / 31)
    prepared = run.trainer._phase.prepared
    std = (((6 / 7) ** 2 + 6 * (1 / 7) ** 2) / 6) ** 0.5
    expected = [0.0, 6 / 7 / (std + 1e-4)] + [-1 / 7 / (std + 1e-4)] * 6
    assert prepared.advantages[:GROUP].tolist() == pytest.approx(expected, abs=1e-6)
    assert prepared.weights[0].tolist() == [0.0] * 16
    assert prepared.weights[1].tolist() == pytest.approx([1 / (31 * 16)] * 16)


def test_a_group_with_one_known_reward_teaches_nothing(small_run, give, tmp_path) -> None:  # type: ignore[no-untyped-def]
    give([1.0, *[None] * (GROUP - 1)] * (SAMPLES // GROUP))
    run = train(small_run("d1", rollouts=1), tmp_path)
    assert run.unchanged
    assert run.events[0]["missing_rewards"] == SAMPLES - SAMPLES // GROUP
    assert run.events[0]["constant_reward"] == (SAMPLES // GROUP) / SAMPLES


@pytest.mark.parametrize("scaled", [False, True])
def test_rewards_of_absurd_size_leave_finite_weights(small_run, give, scaled, tmp_path) -> None:  # type: ignore[no-untyped-def]
    give([1e30 if index % 2 else -1e30 for index in range(SAMPLES)])
    name = "algorithm_options__scale_rewards"
    train(small_run("d1", rollouts=2, **{name: scaled}), tmp_path)


def test_a_reward_function_with_too_few_values_is_named(small_run, give, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """One value would silently become everybody's."""
    give([0.5])
    with pytest.raises(UsageProblem) as caught:
        train(small_run("d1"), tmp_path)
    assert "'fixed' returned 1 values for 32 completions" in caught.value.what
    assert caught.value.why
    assert caught.value.help


# ---- advantages of zero --------------------------------------------------------------------


def test_zero_advantages_are_exact_where_the_ratio_overflows(small_run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """exp(1000) is infinite and infinity times zero is not a number: zero must win."""
    session = Session.open(small_run("d1"), tmp_path, Ranks())
    trainer = session.trainer(lambda event: None)
    batch, _ = trainer.source.collect(session.model, 0)
    prepared = trainer.algorithm.prepare(session.model, batch, session.run_key, 2)
    silent = replace(
        prepared,
        advantages=torch.zeros_like(prepared.advantages),
        old_log_probs=torch.full_like(prepared.old_log_probs, -1000.0),
    )
    loss = trainer.algorithm.loss(session.model, silent, 1).loss
    loss.backward()
    assert loss.item() == 0.0
    gradients = [p.grad for p in session.model.parameters() if p.grad is not None]
    assert gradients
    assert all(bool((gradient == 0).all()) for gradient in gradients)


# ---- completions and prompts ---------------------------------------------------------------


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize(("policy", "counted"), [("first_eos", 1.0), ("all", 16.0)])
def test_completions_of_nothing_but_eos(  # type: ignore[no-untyped-def]
    small_run, give, monkeypatch, paper, policy, counted, tmp_path
) -> None:
    def only_eos(model: Any, prompts: Any, config: Any, *_: Any) -> Generation:
        shape = (len(prompts), config.gen_length)
        return Generation(
            tokens=torch.full(shape, model.config.eos_token_id),
            commit_step=torch.zeros(shape, dtype=torch.int64),
            confidence=torch.ones(shape),
            nfe=torch.full((len(prompts),), config.nfe),
            finished=torch.ones(len(prompts), dtype=torch.bool),
        )

    monkeypatch.setattr(rollout, "generate", only_eos)
    config = small_run(paper, rollouts=1, algorithm_options__eos_policy=policy)
    # The task's own reward: an empty answer is malformed and earns nothing, so all are equal.
    run = train(config, tmp_path / "own")
    assert run.unchanged
    assert (run.events[0]["reward"], run.events[0]["constant_reward"]) == (0.0, 1.0)
    assert run.events[0]["completion_tokens"] == counted
    # Even where they earn different rewards nothing breaks.
    give([index % GROUP / GROUP for index in range(SAMPLES)])
    train(config, tmp_path / "different")


@pytest.fixture
def own_signals() -> Iterator[None]:
    """A worker in this process takes over the signals; give them back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def work(config: RunConfig, folder: Path) -> int:
    """``config`` as a unit of its own, run by a worker in this process; the exit status."""
    plan = folder.with_suffix(".json")
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_bytes(pretty_json({"config": config.model_dump(mode="json"), "origins": {}}))
    return worker.main(["--run-dir", str(folder), "--config", str(plan)])


def last_message(capsys) -> dict[str, Any]:  # type: ignore[no-untyped-def]
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    message = json.loads(captured.out.splitlines()[-1])
    assert isinstance(message, dict)
    return message


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("sampler", ["rollout", "evaluation"])
def test_a_prompt_longer_than_the_context_is_explained(
    small_run, sampler, tmp_path, capsys
) -> None:  # type: ignore[no-untyped-def]
    """16 + 128 tokens do not fit 128: exit status 2, three parts, and the run knows why."""
    too_long = {"gen_length": 128, "steps": 64, "block_length": 128}
    settings = {f"{sampler}__{name}": value for name, value in too_long.items()}
    config = small_run("d1", rollouts=1, **settings)
    if sampler == "evaluation":
        config = config.baseline()
    assert work(config, tmp_path / "run") == 2
    error = last_message(capsys)["error"]
    assert error["what"] == "a sequence of 144 tokens does not fit the model"
    assert "128 tokens" in error["why"]
    assert f"{sampler}.gen_length" in error["help"]
    assert error["status"] == 2
    mark = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (mark["state"], mark["reason"]) == ("failed", error["what"])


# ---- the smallest evaluation ---------------------------------------------------------------


@pytest.mark.usefixtures("own_signals")
def test_an_evaluation_of_one_problem(small_run, tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    config = small_run("d1", rollouts=1, task__eval_limit=1)
    assert work(config, tmp_path / "run") == 0
    record = read_record(tmp_path / "run")
    outcomes = read_outcomes(tmp_path / "run", record)
    assert len(outcomes) == 1
    assert record.metric("accuracy").n == 1
    assert record.metric("accuracy").value == 100.0 * outcomes[0].correct
    assert all(math.isfinite(metric.value) for metric in record.metrics)


def test_a_process_without_a_share_of_the_problems_has_no_outcomes(small_run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The second of two processes that evaluate one problem."""
    session = Session.open(small_run("d1", task__eval_limit=1), tmp_path, Ranks())
    common = (session.model, session.tokenizer, session.task, session.items, session.config)
    assert evaluate(*common, session.run_key, rows=range(1, 1, 2)) == []
    assert len(evaluate(*common, session.run_key, rows=range(0, 1, 2))) == 1
