"""The method cards' numbers: d1 (T1, T6) and SPG (vectors 3 and 4)."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from dare.algorithms import make
from dare.algorithms.diffu_grpo import DiffuGrpoConfig, diffu_grpo_loss
from dare.algorithms.masking import draw_index, prepare_masked
from dare.algorithms.spg import SpgConfig, sandwich_score, spg_loss
from dare.diffusion.keys import RunKey

A = torch.tensor([0.75, -0.75], dtype=torch.float64)
CUR = torch.tensor([[-1.0, -0.5, -2.0, -3.0], [-0.2, -1.5, -0.7, -1.1]], dtype=torch.float64)
OLD = torch.tensor([[-1.2, -0.5, -1.0, -3.0], [-0.9, -1.4, -0.7, -1.3]], dtype=torch.float64)
REF = torch.tensor([[-1.1, -0.6, -1.5, -2.0], [-0.5, -1.2, -0.7, -1.0]], dtype=torch.float64)


def two_samples(rollout_of, config, advantages, lengths=(3, 4)):
    """Two completions of the given lengths out of four tokens, one group."""
    rollout = rollout_of(prompts=1, group=2, canvas=4)
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    rollout = replace(rollout, completion_mask=mask)
    masks = torch.ones(1, 2, 1, 9, dtype=torch.bool)
    model = SimpleNamespace(config=SimpleNamespace(mask_token_id=6))
    return prepare_masked(config, torch.as_tensor(advantages), masks, rollout, model)


@pytest.mark.parametrize(
    ("normaliser", "beta", "expected"),
    [
        ("group_tokens", 0.0, 0.27329043),
        ("group_tokens", 0.04, 0.27474325),
        ("batch_tokens", 0.04, 0.27474325),
        ("sequence", 0.04, 0.15974927),
    ],
)
def test_d1_loss(rollout_of, normaliser, beta, expected):
    config = DiffuGrpoConfig(beta=beta, loss_normaliser=normaliser)
    micro = two_samples(rollout_of, config, A)
    output = diffu_grpo_loss(CUR, OLD, REF if beta else None, micro, config)
    assert output.loss.item() == pytest.approx(expected, abs=1e-8)


def test_d1_mean_kl(rollout_of):
    config = DiffuGrpoConfig(beta=1.0)
    micro = two_samples(rollout_of, config, A)
    with_kl = diffu_grpo_loss(CUR, OLD, REF, micro, config).loss
    without = diffu_grpo_loss(CUR, OLD, None, micro, config).loss
    assert (with_kl - without).item() == pytest.approx(0.03632058, abs=1e-8)


@pytest.mark.parametrize(
    ("g", "accumulation", "visited"),
    [(0, 2, [1, 3, 1, 3]), (1, 2, [2, 0, 2, 0]), (0, 4, [1, 1, 1, 1])],
)
def test_the_published_counter_visits_these_draws(g, accumulation, visited):
    config = DiffuGrpoConfig(
        mask_order="as_coded", coded_micro_batch=6, coded_accumulation=accumulation
    )
    for sample in (6 * g, 6 * g + 5, 6 * (g + accumulation)):
        assert [draw_index(config, sample, j, 4) for j in range(4)] == visited
    sequential = DiffuGrpoConfig()
    assert [draw_index(sequential, 6 * g, j, 4) for j in range(4)] == [0, 1, 2, 3]


def test_spg_loss_of_two_completions(rollout_of):
    """Scores -1.2 (ELBO, three tokens) and -1.12939103 (mixture of vector 2, four tokens)."""
    config = SpgConfig()
    advantages = torch.tensor([0.6, -0.6], dtype=torch.float64)
    micro = two_samples(rollout_of, config, advantages)
    lp = torch.tensor(
        [
            [[-1.2, 0, 0, 0], [-1.2, 0, 0, 0]],
            [[-0.5, -1.0, -2.0, -0.25], [-0.4, -1.5, -1.0, -0.75]],
        ],
        dtype=torch.float64,
    )
    masked = torch.tensor([[[1, 0, 0, 0], [1, 0, 0, 0]], [[1, 0, 1, 0], [0, 1, 1, 1]]]).bool()
    assert spg_loss(lp, masked, micro, config).loss.item() == pytest.approx(-0.07864835, abs=1e-8)


def test_the_masked_share_is_of_the_counted_tokens(rollout_of):
    """Two of four canvas tokens count, one draw masks one of them: t = 1/2, p = exp(lp) / t."""
    config = SpgConfig(negative_term="eubo", eubo_beta=1.0)
    advantages = torch.tensor([0.0, -1.0], dtype=torch.float64)
    micro = two_samples(rollout_of, config, advantages, lengths=(2, 2))
    lp = torch.full((2, 1, 4), -1.5, dtype=torch.float64)
    masked = torch.tensor([[[1, 0, 0, 0]]] * 2).bool()
    # Half of the tokens belong to the second sample.
    expected = (-1.5 + math.log(2)) / 2
    assert spg_loss(lp, masked, micro, config).loss.item() == pytest.approx(expected, abs=1e-9)


def test_the_sign_of_the_advantage_chooses_the_bound():
    lower, upper = torch.tensor([-3.0, -3.0, -3.0]), torch.tensor([-1.0, -1.0, -1.0])
    advantages = torch.tensor([1.0, -1.0, 0.0])
    by_term = {
        term: sandwich_score(lower, upper, advantages, SpgConfig(negative_term=term, omega=0.25))
        for term in ("mix", "eubo", "elbo", "zero")
    }
    assert [by_term[term][1].item() for term in by_term] == [-2.5, -1, -3, 0]
    assert all(scores[0] == -3 for scores in by_term.values())


def test_omega_does_not_touch_good_samples(rollout_of, mixer):
    rollout = replace(
        rollout_of(prompts=1, group=2), rewards=torch.tensor([1.0, 0.0], dtype=torch.float64)
    )
    losses = []
    for omega in (0.1, 0.9):
        spg = make("spg", {"omega": omega, "block_length": 4, "mc_samples": 2})
        prepared = spg.prepare(mixer, rollout, RunKey(0), 1)
        losses.append([spg.loss(mixer, micro, 0).loss.item() for micro in prepared.slices(1)])
    assert losses[0][0] == losses[1][0]
    assert losses[0][1] != losses[1][1]
