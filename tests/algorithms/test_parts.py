"""Advantages, ratios, penalties and weights, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from dare.algorithms.base import completion_mask
from dare.algorithms.parts import (
    clipped_surrogate,
    constant_groups,
    group_advantages,
    isolated_samples,
    kl_penalty,
    token_weights,
)

NAN = math.nan


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def test_d1_advantages_are_not_divided_by_the_std():
    rewards = tensor([2, 0, 0.5, 3.5, 0, 0])
    assert group_advantages(rewards, 6).tolist() == [1, -1, -0.5, 2.5, -1, -1]
    scaled = group_advantages(rewards, 6, scale="sample", eps=1e-4)
    assert scaled[0].item() == pytest.approx(0.690018, abs=1e-6)


def test_population_std_and_leave_one_out():
    rewards = tensor([1, 3, 5, 0, 0, 6])
    assert group_advantages(rewards, 3, baseline="leave_one_out").tolist() == [-3, 0, 3, -3, -3, 6]
    population = group_advantages(rewards, 3, scale="population", eps=0.0)
    assert population[:3].tolist() == pytest.approx([-math.sqrt(1.5), 0, math.sqrt(1.5)])


@pytest.mark.parametrize("missing", [NAN, math.inf, -math.inf])
def test_a_missing_reward_is_left_out_of_its_group_and_spreads_nowhere(missing):
    rewards = tensor([1, missing, 3, 8, 0, 2, 4, 6])
    assert isolated_samples(rewards).tolist() == [False, True] + [False] * 6
    assert group_advantages(rewards, 4).tolist() == [-3, 0, -1, 4, -3, -1, 1, 3]
    # Sample std of 1, 3, 8 is sqrt(13); leaving one out, 8 is compared with the mean of 1 and 3.
    scaled = group_advantages(rewards, 4, scale="sample", eps=0.0)
    assert scaled[:4].tolist() == pytest.approx([-3 / 13**0.5, 0, -1 / 13**0.5, 4 / 13**0.5])
    assert group_advantages(rewards, 4, baseline="leave_one_out")[3].item() == 6


@pytest.mark.parametrize("rewards", [[0.1] * 3, [NAN] * 3, [NAN, 0.3, NAN]])
@pytest.mark.parametrize("scale", ["none", "sample", "population"])
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
def test_constant_groups_get_exactly_zero(rewards, scale, baseline):
    rewards = torch.tensor([*rewards, 1.0, 2.0, 4.0])
    advantages = group_advantages(rewards, 3, baseline=baseline, scale=scale, eps=0.0)
    assert advantages[:3].tolist() == [0, 0, 0]
    assert advantages[3:].ne(0).all()
    assert constant_groups(rewards, 3).tolist() == [True] * 3 + [False] * 3


CUR = tensor([[-1.0, -0.5, -2.0, -3.0], [-0.2, -1.5, -0.7, -1.1]])
OLD = tensor([[-1.2, -0.5, -1.0, -3.0], [-0.9, -1.4, -0.7, -1.3]])


def test_clipped_surrogate_vector():
    loss, clipped = clipped_surrogate(CUR - OLD, tensor([0.75, -0.75]), 0.5)
    ratio = [[1.22140276, 1, 0.36787944, 1], [2.01375271, 0.90483742, 1, 1.22140276]]
    # Row 1, A > 0: only a ratio above 1.5 is cut.  Row 2, A < 0: only one below .5.
    expected = [-0.75 * r for r in ratio[0]] + [0.75 * r for r in ratio[1]]
    assert loss.flatten().tolist() == pytest.approx(expected, abs=1e-8)
    assert not clipped.any()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (2.0, 1.0, -1.5, True),
        (2.0, -1.0, 2.0, False),
        (0.25, 1.0, -0.25, False),
        (0.25, -1.0, 0.5, True),
        (1.2, 1.0, -1.2, False),
    ],
)
def test_the_clip_cuts_the_gain_and_never_the_loss(ratio, advantage, loss, clipped):
    log_ratio = tensor([[math.log(ratio)]]).requires_grad_()
    value, was_clipped = clipped_surrogate(log_ratio, tensor([advantage]), 0.5)
    assert value.item() == pytest.approx(loss)
    assert was_clipped.item() is clipped
    value.sum().backward()
    assert log_ratio.grad.item() == pytest.approx(0 if clipped else -advantage * ratio)


def test_zero_advantage_survives_an_overflowing_ratio():
    log_ratio = tensor([[1e4]]).requires_grad_()
    loss, _ = clipped_surrogate(log_ratio, tensor([0.0]), 0.5)
    loss.sum().backward()
    assert loss.item() == 0
    assert log_ratio.grad.item() == 0


def test_kl_estimators():
    log_probs, reference = tensor([-1.0, -2.0]), tensor([-2.0, -1.5])
    assert kl_penalty(log_probs, reference, "k1").tolist() == [1, -0.5]
    assert kl_penalty(log_probs, reference, "k2").tolist() == [0.5, 0.125]
    k3 = [math.exp(-1) - 1 + 1, math.exp(0.5) - 1 - 0.5]
    assert kl_penalty(log_probs, reference, "k3").tolist() == pytest.approx(k3)


COUNTS = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0]]).bool()


@pytest.mark.parametrize(
    ("normaliser", "rows"),
    [
        ("group_tokens", [1 / 8, 1 / 8, 1 / 8, 1 / 8]),
        ("batch_tokens", [1 / 8, 1 / 8, 1 / 8, 1 / 8]),
        ("sequence", [1 / 12, 1 / 4, 1 / 8, 1 / 8]),
    ],
)
def test_token_weights(normaliser, rows):
    weights = token_weights(COUNTS, tensor([0, 1, 0, 1]), 2, normaliser)
    expected = COUNTS * tensor(rows)[:, None]
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize(
    ("normaliser", "rows"),
    [
        # Without sample 0: groups of 1 and of 2 + 2 tokens, 5 tokens, 3 sequences.
        ("group_tokens", [0, 1 / 2, 1 / 8, 1 / 8]),
        ("batch_tokens", [0, 1 / 5, 1 / 5, 1 / 5]),
        ("sequence", [0, 1 / 3, 1 / 6, 1 / 6]),
    ],
)
def test_an_isolated_sample_enters_no_denominator(normaliser, rows):
    weights = token_weights(COUNTS, tensor([NAN, 1, 0, 1]), 2, normaliser)
    torch.testing.assert_close(weights, COUNTS * tensor(rows)[:, None])
    # A group without any reward is not a group.
    alone = token_weights(COUNTS, tensor([NAN, NAN, 0, 1]), 2, normaliser)
    torch.testing.assert_close(alone, COUNTS * tensor([0, 0, 1 / 4, 1 / 4])[:, None])
    nothing = token_weights(COUNTS, tensor([NAN] * 4), 2, normaliser)
    assert not nothing.any()


def test_completion_mask_ends_with_the_first_end_of_sequence():
    ids = torch.tensor([[1, 5, 2, 5], [5, 1, 1, 1], [1, 2, 3, 4]])
    expected = [[True, True, False, False], [True, False, False, False], [True] * 4]
    assert completion_mask(ids, 5, "first_eos").tolist() == expected
    assert completion_mask(ids, 5, "all").all()
    assert completion_mask(ids, None, "first_eos").all()
    with pytest.raises(ValueError, match="eos_policy"):
        completion_mask(ids, 5, "last")
