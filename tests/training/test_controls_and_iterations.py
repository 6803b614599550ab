"""The shuffled-reward control, and that every inner iteration is really its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dare.diffusion.keys import RunKey
from dare.results.control import check_control
from dare.results.record import Metric
from dare.training.ranks import Ranks
from dare.training.rollout import shuffled_within_groups
from dare.training.session import Session


def test_a_shuffle_keeps_each_group_and_is_keyed() -> None:
    rewards = torch.arange(32.0)
    shuffled = shuffled_within_groups(rewards, 8, RunKey(0), step=3, first_prompt=0)
    for before, after in zip(rewards.view(-1, 8), shuffled.view(-1, 8), strict=True):
        assert sorted(after.tolist()) == before.tolist()
    assert not torch.equal(shuffled, rewards)
    assert torch.equal(shuffled, shuffled_within_groups(rewards, 8, RunKey(0), 3, 0))
    assert not torch.equal(shuffled, shuffled_within_groups(rewards, 8, RunKey(0), 4, 0))
    # The second process shuffles its groups as one process would have.
    second = shuffled_within_groups(rewards[16:], 8, RunKey(0), 3, first_prompt=2)
    assert torch.equal(second, shuffled[16:])


def test_a_control_run_learns_from_shuffled_rewards(small_run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    batches = []
    for control in ("none", "shuffled-rewards"):
        session = Session.open(small_run("d1", control=control), tmp_path, Ranks())
        batches.append(session.trainer(lambda event: None).source.collect(session.model, 0)[0])
    real, control_batch = batches
    assert torch.equal(real.completion_ids, control_batch.completion_ids)
    assert not torch.equal(real.rewards, control_batch.rewards)
    assert real.rewards.sort().values.tolist() == control_batch.rewards.sort().values.tolist()


class _Record:
    """As much of a record as the control reads."""

    def __init__(self, seed: int, value: float) -> None:
        self.id, self.seeds = f"record {seed}", {"run": seed}
        self.outcomes = {"sha256": f"{seed} {value}"}
        self._value = value

    def metric(self, name: str) -> Metric:
        return Metric(name=name, value=self._value, n=1000)


@pytest.mark.parametrize(("gains", "status"), [((-9.0, 4.9), 0), ((-30.0, 5.0), 1)])
def test_one_seed_that_gains_fails_the_control(gains: tuple[float, ...], status: int) -> None:
    runs: Any = [(_Record(seed, 20.0 + gain), []) for seed, gain in enumerate(gains)]
    base: Any = (_Record(99, 20.0), [])
    assert check_control(runs, base).exit_status == status


def test_each_update_of_a_rollout_batch_uses_its_own_iteration(small_run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    session = Session.open(small_run("d1", rollouts=2), tmp_path, Ranks())
    trainer = session.trainer(lambda event: None)
    seen: list[int] = []
    ratios: list[float] = []
    algorithm = trainer.algorithm

    class Watched:
        config, needs_reference = algorithm.config, algorithm.needs_reference
        prepare = staticmethod(algorithm.prepare)

        def loss(self, model: Any, micro: Any, iteration: int) -> Any:
            output = algorithm.loss(model, micro, iteration)
            seen.append(iteration)
            ratios.append(float(output.metrics["ratio"]) / len(micro))
            return output

    trainer.algorithm = Watched()  # type: ignore[assignment]
    trainer.train()
    assert seen == [0, 1, 0, 1]
    assert ratios[0] == ratios[2] == 1.0
    assert ratios[1] != 1.0
    assert ratios[3] != 1.0
