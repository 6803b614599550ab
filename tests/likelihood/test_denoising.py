"""The supervised loss: d1's numbers, and who may be masked."""

from __future__ import annotations

import pytest
import torch

from dare.diffusion.keys import RunKey
from dare.likelihood.denoising import denoising_loss, masked_sft_loss, noise_level, response_noise


def keys(count):
    return [RunKey(3).at("mask", sample=sample) for sample in range(count)]


def test_vector():
    """t = .25 gives t' = .25075; CE [1, 2, .5, 3], masked [1, 0, 1, 1], t' = .4, 6 + 4 tokens."""
    assert noise_level(torch.tensor(0.25, dtype=torch.float64)).item() == pytest.approx(0.25075)
    log_probs = torch.zeros(1, 10, dtype=torch.float64)
    log_probs[0, 6:] = -torch.tensor([1, 2, 0.5, 3])
    masked = torch.tensor([[False] * 6 + [True, False, True, True]])
    response = torch.tensor([[False] * 6 + [True] * 4])
    level = torch.tensor([0.4], dtype=torch.float64)
    loss = denoising_loss(log_probs, masked, level, response)
    assert loss.item() == pytest.approx(2.8125, abs=1e-9)


def test_the_denominator_counts_the_tokens_of_all_responses():
    log_probs = torch.full((2, 4), -1.0)
    masked = torch.tensor([[False, False, True, True], [False, False, False, True]])
    response = torch.tensor([[False, False, True, True], [False, True, True, True]])
    loss = denoising_loss(log_probs, masked, torch.tensor([0.5, 0.25]), response)
    assert loss.item() == pytest.approx((2 / 0.5 + 1 / 0.25) / 5)


def test_no_response_token_is_an_error():
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="no response token"):
        denoising_loss(torch.zeros(1, 3), nothing, torch.ones(1), nothing)


def test_only_the_response_is_masked_at_its_level():
    response = torch.arange(400) >= 100
    levels, masks = response_noise(keys(200), response.expand(200, -1))
    assert not masks[:, :100].any()
    assert levels.min() >= 1e-3
    share = masks[:, 100:].float().mean(-1)
    # 300 tokens a row: standard deviation at most .029.
    assert (share - levels).abs().max() < 5 * 0.029
    assert abs(levels.mean() - 0.5) < 4 * 0.289 / 200**0.5


def test_noise_does_not_depend_on_padding():
    narrow = torch.tensor([[False, True, True, True, True]])
    wide = torch.cat((torch.zeros(1, 3, dtype=torch.bool), narrow), 1)
    level, masks = response_noise(keys(1), narrow)
    other, wider = response_noise(keys(1), wide)
    assert level == other
    assert torch.equal(masks, wider[:, 3:])


def test_the_model_loss_is_the_formula(model):
    ids = torch.tensor([[0, 1, 2, 2, 1, 0], [2, 2, 1, 0, 0, 1]])
    response = torch.tensor([[False, False, True, True, True, True]] * 2)
    level, masked = response_noise(keys(2), response)
    assert masked.any()
    log_probs = model(ids.masked_fill(masked, 4)).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    expected = -(log_probs * masked / level[:, None]).sum() / 8
    loss = masked_sft_loss(model, ids, response, keys(2))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
