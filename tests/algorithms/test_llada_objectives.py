"""The objectives on the real family in float32: a small LLaDA with random weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dare.algorithms import make
from dare.diffusion.keys import RunKey
from dare.models.llada import LLaDAConfig, LLaDAModelLM

KEY = RunKey(2)
VARIANTS = {
    "d1": ("diffu-grpo", {"beta": 0.04}),
    "d1-shared": ("diffu-grpo", {"beta": 0.0, "share_mask_in_group": True}),
    "spg": ("spg", {"block_length": 4}),
    "spg-random": ("spg", {"masking": "random", "share_mask_in_group": True}),
}


def llada(seed, tied, std=0.3):
    config = LLaDAConfig(
        vocab_size=7,
        d_model=16,
        n_layers=2,
        n_heads=2,
        mlp_hidden_size=32,
        max_sequence_length=64,
        rope_theta=100.0,
        weight_tying=tied,
        mask_token_id=6,
        eos_token_id=5,
        pad_token_id=5,
    )
    model = LLaDAModelLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, std, generator=generator)
    return model


def in_float32(rollout):
    return replace(rollout, rewards=rollout.rewards.float())


def gradient(algorithm, model, prepared, iteration, micro_batch):
    model.zero_grad()
    loss = 0.0
    for micro in prepared.slices(micro_batch):
        part = algorithm.loss(model, micro, iteration).loss
        part.backward()
        loss += part.item()
    return loss, torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def policy(request):
    return llada(0, request.param)


@pytest.mark.parametrize("variant", VARIANTS)
def test_split_and_padding_do_not_matter_in_float32(variant, policy, rollout_of):
    name, options = VARIANTS[variant]
    algorithm = make(name, options)
    reference = llada(1, False) if algorithm.needs_reference else None
    rollout = in_float32(rollout_of())
    prepared = algorithm.prepare(policy, rollout, KEY, 2, reference)
    padded = in_float32(rollout_of(padding=3))
    wide = algorithm.prepare(policy, padded, KEY, 2, reference, micro_batch=4)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.05)
    loss, expected = gradient(algorithm, policy, prepared, 1, None)
    scale = expected.abs().max().item()
    assert scale > 1e-3
    for batch, size in ((prepared, 1), (prepared, 2), (prepared, 4), (prepared, 8), (wide, 3)):
        value, found = gradient(algorithm, policy, batch, 1, size)
        assert value == pytest.approx(loss, rel=1e-5, abs=1e-6)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_few_updates_raise_the_reward_of_a_countable_goal(variant, rollout_of):
    """Reward: the share of token 2 in random completions.  Four updates of a model whose
    predictions are nearly uniform must make token 2 more likely where everything is masked."""
    name, options = VARIANTS[variant]
    algorithm = make(name, {**options, "eos_policy": "all", "scale_rewards": True})
    model = llada(0, False, std=0.1)
    reference = llada(0, False, std=0.1) if algorithm.needs_reference else None
    rollout = rollout_of(prompts=8, group=8, policy="all")
    rollout = replace(rollout, rewards=(rollout.completion_ids == 2).float().mean(-1))
    prepared = algorithm.prepare(model, rollout, KEY, 4, reference)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    masked = torch.cat((rollout.prompt_ids, torch.full_like(rollout.completion_ids, 6)), 1)
    attention = torch.cat((rollout.prompt_mask, torch.ones_like(masked[:, 5:]).bool()), 1)

    def chance():
        with torch.no_grad():
            return model(masked, attention)[:, 5:].softmax(-1)[..., 2].mean().item()

    before = chance()
    for iteration in range(4):
        gradient(algorithm, model, prepared, iteration, 16)
        optimizer.step()
    after = chance()
    assert 0.05 < before < 0.3
    assert after > before + 0.01
