"""Monte Carlo estimators have the oracle's values as their means: z-tests with fixed keys."""

from __future__ import annotations

import itertools

import pytest
import torch

from dare.diffusion.keys import RunKey
from dare.diffusion.masks import MaskingRule, draw_masks
from dare.likelihood.block_bounds import elbo, token_upper_bounds
from dare.likelihood.denoising import masked_sft_loss
from dare.likelihood.exact import chain_log_likelihood, conditional_table, exact_elbo, exact_eubo
from dare.likelihood.one_step import one_step_log_probs, one_step_rule
from dare.likelihood.rows import Canvas, row_log_probs

PROMPT, COMPLETION, MASK = torch.tensor([0, 2, 1]), torch.tensor([1, 0, 2, 2]), 4
N = len(COMPLETION)


@pytest.fixture(scope="module")
def table(model):
    return conditional_table(model, PROMPT, COMPLETION)


def canvas(rows):
    shape = (rows, len(PROMPT))
    return Canvas.build(
        PROMPT.expand(shape), torch.ones(shape, dtype=torch.bool), COMPLETION.expand(rows, N)
    )


def keys(count):
    return [RunKey(11).at("mask", sample=sample) for sample in range(count)]


def drawn(model, rule, count):
    """Log-probabilities and masks (count, K, C) of keyed draws of one completion."""
    prompt_mask = torch.ones(count, len(PROMPT), dtype=torch.bool)
    masks = draw_masks(keys(count), prompt_mask, torch.full((count,), N), N, rule)
    masked = masks[..., -N:]
    with torch.no_grad():
        return row_log_probs(model, canvas(count), masks, masked, MASK), masked


def z_score(values, expected):
    values = values.double()
    return abs((values.mean() - expected) / (values.std() / len(values) ** 0.5)).item()


def test_elbo_with_k_uniform_masks_is_unbiased(model, table):
    log_probs, masked = drawn(model, MaskingRule("random", 2, p_mask_prompt=0.0), 2000)
    estimates = N * elbo(log_probs, masked)
    assert estimates.std() > 0.1
    assert z_score(estimates, exact_elbo(table)) < 4
    # The test has the power to see a wrong value: a likelihood in a fixed order is far away.
    assert z_score(estimates, chain_log_likelihood(table, [3, 2, 1, 0])) > 10


def test_the_mass_inside_the_upper_bound_is_unbiased(model, table):
    """E exp(log p_i) over draws is the exact mass of which the EUBO takes the logarithm."""
    log_probs, masked = drawn(model, MaskingRule("random", 1, p_mask_prompt=0.0), 4000)
    mass = token_upper_bounds(log_probs, masked, torch.full((4000,), N), 1.5).exp()
    mass = mass.where(masked[:, 0], 0.0)  # a token that the draw leaves alone has no mass
    assert mass.double().mean(0).log().sum() / 1.5 == pytest.approx(
        exact_eubo(table, 1.5).item(), abs=0.1
    )
    single = conditional_table(model, PROMPT, COMPLETION[:1])
    assert exact_eubo(single, 1.5).item() == pytest.approx(single[0, 0].item())


def test_denoising_loss_has_the_elbo_as_its_mean(model, table):
    ids = torch.cat((PROMPT, COMPLETION))
    count, per_key = 1500, []
    response = torch.arange(len(ids)) >= len(PROMPT)
    with torch.no_grad():
        for key in keys(count):
            per_key.append(masked_sft_loss(model, ids[None], response[None], [key], eps=1e-6))
    assert z_score(-N * torch.stack(per_key), exact_elbo(table)) < 4


def test_one_step_is_the_first_row_of_the_table(model, table):
    masks = torch.tensor([[[False] * 3 + [True] * 4]])
    log_probs = one_step_log_probs(model, canvas(1), masks, MASK)
    torch.testing.assert_close(log_probs[0].double(), table[0], rtol=0, atol=1e-5)


def test_one_step_is_the_closed_form_under_its_prompt_mask(model):
    """Logits of the hand-masked input, softmax written out."""
    rule = one_step_rule(0.5)
    masks = draw_masks(keys(6), torch.ones(6, 3, dtype=torch.bool), torch.full((6,), N), N, rule)
    assert len({tuple(row) for row in masks[:, 0, :3].tolist()}) > 2
    log_probs = one_step_log_probs(model, canvas(6), masks, MASK)
    for row in range(6):
        prompt = [MASK if masks[row, 0, i] else int(PROMPT[i]) for i in range(3)]
        exponentials = model(torch.tensor([prompt + [MASK] * N]))[0, 3:].double().exp()
        for position, token in enumerate(COMPLETION.tolist()):
            p = exponentials[position, token] / exponentials[position].sum()
            assert log_probs[row, position].item() == pytest.approx(p.log().item(), abs=1e-5)


def test_mean_over_prompt_masks_has_the_binomial_weights(model):
    """The share of each of the 8 prompt masks follows p = .15 (chi-square, 7 degrees)."""
    count = 4000
    masks = draw_masks(
        keys(count),
        torch.ones(count, 3, dtype=torch.bool),
        torch.full((count,), N),
        N,
        one_step_rule(),
    )
    observed = {pattern: 0 for pattern in itertools.product([False, True], repeat=3)}
    for pattern in masks[:, 0, :3].tolist():
        observed[tuple(pattern)] += 1
    chi_square = 0.0
    for pattern, seen in observed.items():
        expected = count * 0.15 ** sum(pattern) * 0.85 ** (3 - sum(pattern))
        chi_square += (seen - expected) ** 2 / expected
    assert chi_square < 24.3  # p = .001
