"""A float64 stand-in with the models' calling convention, and rollouts for it.

The real family computes its norms in float32, so equalities to 1e-10 need a model that does not;
tests/algorithms/test_llada_objectives.py runs the same checks on a small LLaDA.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from dare.kernels.linear_logp import linear_logp
from torch import nn

from dare.algorithms.base import RolloutBatch, completion_mask

EOS, MASK, VOCABULARY = 5, 6, 7


class Mixer(nn.Module):
    """Embedding, one bidirectional attention layer that ignores padding, and a head."""

    def __init__(self, width=8, seed=0):
        super().__init__()
        self.config = SimpleNamespace(mask_token_id=MASK, eos_token_id=EOS)
        shapes = {
            "tokens": (VOCABULARY, width),
            "places": (64, width),
            "query": (width, width),
            "key": (width, width),
            "value": (width, width),
            "head": (VOCABULARY, width),
        }
        generator = torch.Generator().manual_seed(seed)
        for name, shape in shapes.items():
            weight = torch.randn(shape, generator=generator, dtype=torch.float64) * 0.6
            self.register_parameter(name, nn.Parameter(weight))
        self.calls = []

    def forward(self, input_ids, attention_mask=None, *, positions=None, targets=None):
        self.calls.append(input_ids)
        real = torch.ones_like(input_ids, dtype=torch.bool)
        if attention_mask is not None:
            real = attention_mask.bool()
        x = self.tokens[input_ids] + self.places[(real.cumsum(-1) - 1).clamp(min=0)]
        scores = (x @ self.query) @ (x @ self.key).transpose(1, 2)
        scores = scores.masked_fill(~real[:, None], float("-inf"))
        x = torch.tanh(x + scores.softmax(-1) @ (x @ self.value))
        if positions is not None:
            x = x[positions]
        self.rows = x
        if targets is not None:
            return linear_logp(x, self.head, targets)
        return x @ self.head.T


def make_rollout(prompts=4, group=4, canvas=8, padding=0, seed=0, policy="first_eos"):
    """Groups of one prompt each, prompts of 2 to 5 tokens, random completions and rewards."""
    generator = torch.Generator().manual_seed(seed)
    width = 5 + padding
    prompt_ids = torch.full((prompts, width), EOS)
    prompt_mask = torch.zeros(prompts, width, dtype=torch.bool)
    for row in range(prompts):
        length = 2 + int(torch.randint(4, (1,), generator=generator))
        prompt_ids[row, -length:] = torch.randint(5, (length,), generator=generator)
        prompt_mask[row, -length:] = True
    completions = torch.randint(6, (prompts * group, canvas), generator=generator)
    completions[0] = 1  # one without an end
    rewards = torch.rand(prompts * group, generator=generator, dtype=torch.float64)
    return RolloutBatch(
        prompt_ids=prompt_ids.repeat_interleave(group, 0),
        prompt_mask=prompt_mask.repeat_interleave(group, 0),
        completion_ids=completions,
        completion_mask=completion_mask(completions, EOS, policy),
        rewards=rewards,
        group_size=group,
        sample_ids=torch.arange(prompts * group),
        step=3,
    )


@pytest.fixture
def mixer():
    return Mixer()


@pytest.fixture
def reference():
    return Mixer(seed=1)


@pytest.fixture
def rollout_of():
    return make_rollout
