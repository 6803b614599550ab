"""What must not matter does not: micro-batches, order, padding, interruption, repetition."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dare.training.equivalence import VARIANTS, Trajectory, trajectory

PAPERS = ("d1", "spg")


@pytest.fixture(scope="module")
def plain(small_run, tmp_path_factory) -> dict[str, Trajectory]:  # type: ignore[no-untyped-def]
    return {
        paper: trajectory(small_run(paper), "plain", tmp_path_factory.mktemp(paper))
        for paper in PAPERS
    }


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v not in ("plain", "resumed")])
def test_variants_agree_to_rounding(small_run, plain, paper, variant, tmp_path) -> None:  # type: ignore[no-untyped-def]
    other = trajectory(small_run(paper), variant, tmp_path)
    loss, weight = plain[paper].distance(other)
    assert loss < 1e-5
    assert weight < 1e-4


@pytest.mark.parametrize("paper", PAPERS)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(  # type: ignore[no-untyped-def]
    small_run, plain, paper, tmp_path
) -> None:
    resumed = trajectory(small_run(paper), "resumed", tmp_path)
    assert torch.equal(resumed.weights, plain[paper].weights)
    assert resumed.losses == plain[paper].losses[1:]


@pytest.mark.parametrize("paper", PAPERS)
def test_same_seed_same_weights_other_seed_other_weights(  # type: ignore[no-untyped-def]
    small_run, plain, paper, tmp_path
) -> None:
    again = trajectory(small_run(paper), "plain", tmp_path / "again")
    other = trajectory(small_run(paper, training__seed=1), "plain", tmp_path / "other")
    assert torch.equal(again.weights, plain[paper].weights)
    assert not torch.equal(other.weights, plain[paper].weights)


def micro_batched(small_run, paper: str, parts: int, folder: Path) -> Trajectory:  # type: ignore[no-untyped-def]
    config = small_run(
        paper,
        rollouts=1,
        training__per_device_train_batch_size=32 // parts,
        training__gradient_accumulation_steps=parts,
    )
    return trajectory(config, "plain", folder)


@pytest.mark.parametrize("paper", PAPERS)
def test_micro_batch_splits_of_1_2_4_8(small_run, paper, tmp_path) -> None:  # type: ignore[no-untyped-def]
    runs = [micro_batched(small_run, paper, n, tmp_path / str(n)) for n in (1, 2, 4, 8)]
    assert runs[0].losses[0] != 0.0
    for other in runs[1:]:
        loss, weight = runs[0].distance(other)
        assert loss < 1e-6
        assert weight < 1e-5
