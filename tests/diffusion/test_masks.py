"""The forward process: keyed, padding-blind, and distributed as the papers say."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch

from dare.diffusion.keys import RunKey
from dare.diffusion.masks import (
    CompletionDraws,
    MaskingRule,
    bernoulli_mask,
    chosen_blocks,
    completion_masks,
    draw_masks,
    k_uniform_mask,
)
from dare.errors import UsageProblem

RULES = [
    MaskingRule("full"),
    MaskingRule("random", mc_samples=3),
    MaskingRule("block_random", mc_samples=3, block_length=4),
    MaskingRule("block_all", mc_samples=3, block_length=4),
]
CANVAS = 16


def keys(count, stream="mask", draw=0):
    return [RunKey(7).at(stream, step=2, sample=sample, draw=draw) for sample in range(count)]


def prompts(*lengths, width=None):
    width = width or max(lengths)
    return torch.arange(width) >= width - torch.tensor(lengths)[:, None]


def names(rule):
    return rule.kind


def positions(mask):
    return mask.nonzero().squeeze(-1).tolist()


def test_bernoulli_frequency():
    total = sum(int(bernoulli_mask(key, 100, 0.15).sum()) for key in keys(200))
    # 20,000 draws: mean 3,000, standard deviation 50.5.
    assert abs(total - 3000) < 4 * 50.5
    assert not bernoulli_mask(keys(1)[0], 100, 0.0).any()
    assert bernoulli_mask(keys(1)[0], 100, 1.0).all()


def test_k_uniform_takes_every_size_and_subset_equally():
    draws = 9000
    seen = Counter(tuple(k_uniform_mask(key, 3).tolist()) for key in keys(draws))
    # Size 1: three subsets, 1/9 each; size 2: the same; size 3: one subset, 1/3.
    expected = {
        subset: draws * {1: 1 / 9, 2: 1 / 9, 3: 1 / 3}[sum(subset)]
        for subset in itertools.product([False, True], repeat=3)
        if any(subset)
    }
    assert set(seen) == set(expected)
    chi_square = sum((seen[s] - mean) ** 2 / mean for s, mean in expected.items())
    assert chi_square < 22.5  # 6 degrees of freedom, p = .001


@pytest.mark.parametrize("rule", RULES, ids=names)
def test_a_draw_does_not_depend_on_padding_or_on_its_batch(rule):
    counted = torch.tensor([16, 10, 5])
    together = draw_masks(keys(3), prompts(6, 3, 1), counted, CANVAS, rule)
    for row, length in enumerate([6, 3, 1]):
        alone = draw_masks(
            [keys(3)[row]], prompts(length, width=length + 2), counted[row : row + 1], CANVAS, rule
        )
        kept = length + CANVAS
        assert torch.equal(alone[0, :, -kept:], together[row, :, -kept:])
        assert not together[row, :, :-kept].any()
    assert torch.equal(together, draw_masks(keys(3), prompts(6, 3, 1), counted, CANVAS, rule))


@pytest.mark.parametrize("rule", RULES, ids=names)
def test_other_keys_give_other_draws(rule):
    first, second = (
        draw_masks(keys(4, draw=draw), prompts(*[30] * 4), torch.tensor([16] * 4), CANVAS, rule)
        for draw in (0, 1)
    )
    assert (first != second).any(-1).all()


@pytest.mark.parametrize("rule", RULES, ids=names)
def test_padding_is_never_masked_and_probability_one_masks_the_whole_prompt(rule):
    certain = MaskingRule(rule.kind, rule.mc_samples, rule.block_length, p_mask_prompt=1.0)
    real = prompts(6, 3)
    masks = draw_masks(keys(2), real, torch.tensor([16, 9]), CANVAS, certain)
    assert torch.equal(masks[..., :6], real[:, None].expand(-1, rule.mc_samples, -1))
    never = MaskingRule(rule.kind, rule.mc_samples, rule.block_length, p_mask_prompt=0.0)
    assert not draw_masks(keys(2), real, torch.tensor([16, 9]), CANVAS, never)[..., :6].any()


def test_full_masks_every_completion_token_and_the_prompt_at_its_rate():
    masks = draw_masks(keys(200), prompts(*[100] * 200), torch.tensor([3] * 200), CANVAS, RULES[0])
    assert masks.shape == (200, 1, 116)
    assert masks[..., 100:].all()
    assert abs(int(masks[..., :100].sum()) - 3000) < 4 * 50.5


def test_random_masks_k_counted_tokens_and_all_that_do_not_count():
    rule = MaskingRule("random", mc_samples=3, p_mask_prompt=1.0)
    masks = draw_masks(keys(300), prompts(*[2] * 300), torch.tensor([4] * 300), CANVAS, rule)
    assert masks[..., 2 + 4 :].all()
    sizes = Counter(masks[..., 2:6].sum(-1).flatten().tolist())
    # 900 draws of k uniform in 1..4: 225 each, standard deviation 13.
    assert set(sizes) == {1, 2, 3, 4}
    assert all(abs(count - 225) < 4 * 13 for count in sizes.values())


def fixed_draws(light):
    """Block 1, k = 2 of 4, offsets 0 and 2 first."""
    rank = torch.full((1, 1, 16), 0.9)
    rank[..., [4, 6]] = 0.1
    return CompletionDraws(
        order=torch.tensor([[1, 0, 2, 3]]),
        level=torch.tensor([[0.26]], dtype=torch.float64),
        rank=rank,
        light=torch.full((1, 1, 16), light),
    )


def test_block_random_matches_the_published_mask_rule():
    """L = 16, block 4, n = 10, b = 1, k = 2 at offsets 0 and 2 (SPG test vector 5)."""
    rule = MaskingRule("block_random", mc_samples=1, block_length=4)
    masks = completion_masks(fixed_draws(light=False), torch.tensor([10]), rule)
    assert positions(masks[0, 0]) == [4, 6, *range(8, 16)]


def test_light_masks_touch_only_the_blocks_before():
    rule = MaskingRule("block_random", mc_samples=1, block_length=4)
    masks = completion_masks(fixed_draws(light=True), torch.tensor([10]), rule)
    assert positions(masks[0, 0]) == [0, 1, 2, 3, 4, 6, *range(8, 16)]


def test_block_all_masks_the_block_and_what_follows():
    rule = MaskingRule("block_all", mc_samples=1, block_length=4)
    masks = completion_masks(fixed_draws(light=False), torch.tensor([10]), rule)
    assert positions(masks[0, 0]) == list(range(4, 16))


def test_the_last_block_is_cut_at_the_end_of_the_completion():
    """n = 10: block 2 holds tokens 8 and 9 only, so k is 1 or 2."""
    rule = MaskingRule("block_random", mc_samples=1, block_length=4, p_mask_prompt=0.0)
    draws = fixed_draws(light=False)
    for level, expected in ((0.49, [8]), (0.5, [8, 9])):
        last = CompletionDraws(
            torch.tensor([[2, 0, 1, 3]]),
            torch.tensor([[level]], dtype=torch.float64),
            torch.arange(16.0).expand(1, 1, 16),
            draws.light,
        )
        masks = completion_masks(last, torch.tensor([10]), rule)
        assert positions(masks[0, 0]) == [*expected, *range(10, 16)]


def test_blocks_come_from_a_permutation_of_all_blocks_modulo_the_used_ones():
    """4 blocks of which 3 are used: block 0 in half of the permutations, 1 and 2 in a quarter."""
    orders = torch.tensor(list(itertools.permutations(range(4))))
    counted = torch.full((24,), 9)
    first = chosen_blocks(orders, counted, mc_samples=2, block_length=4)[:, 0]
    assert Counter(first.tolist()) == {0: 12, 1: 6, 2: 6}
    full = chosen_blocks(orders, torch.full((24,), 16), mc_samples=4, block_length=4)
    assert torch.equal(full, orders)


def test_drawn_blocks_follow_that_distribution():
    rule = MaskingRule("block_all", mc_samples=1, block_length=4, p_mask_prompt=0.0)
    masks = draw_masks(keys(2000), prompts(*[1] * 2000), torch.tensor([9] * 2000), CANVAS, rule)
    block = masks[:, 0, 1:].long().argmax(-1) // 4
    # Mean 1,000, standard deviation 22.
    assert abs(int((block == 0).sum()) - 1000) < 4 * 22


def test_a_shared_key_shares_the_light_mask_whatever_the_lengths():
    rule = MaskingRule("block_random", mc_samples=2, block_length=4, p_mask_prompt=0.5)
    shared = [keys(1)[0]] * 2
    masks = draw_masks(shared, prompts(9, 9), torch.tensor([16, 16]), CANVAS, rule)
    assert torch.equal(masks[0], masks[1])
    shorter = draw_masks(shared, prompts(9, 9), torch.tensor([16, 4]), CANVAS, rule)
    assert torch.equal(shorter[0, :, :9], shorter[1, :, :9])
    assert torch.equal(shorter[0], masks[0])


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (MaskingRule("full", mc_samples=2), "mc_samples 2"),
        (MaskingRule("block_random", mc_samples=2, block_length=5), "whole blocks of 5"),
        (MaskingRule("block_all", mc_samples=3, block_length=8), "2 block"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused(rule, what):
    with pytest.raises(UsageProblem, match=what) as caught:
        draw_masks(keys(1), prompts(2), torch.tensor([16]), CANVAS, rule)
    assert caught.value.why
    assert caught.value.help
