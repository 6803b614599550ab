"""The oracle against brute force over orders, and as a probability distribution."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from dare.likelihood.exact import (
    all_completions,
    any_order_log_likelihood,
    chain_log_likelihood,
    conditional_table,
    exact_elbo,
    exact_eubo,
)

PROMPT = torch.tensor([0, 2, 1])
MASK = 4


@pytest.fixture(scope="module")
def tables(model):
    """Tables of all 64 completions of three tokens over the four real ones."""
    completions = all_completions(range(4), 3)
    return [conditional_table(model, PROMPT, row, exclude=[MASK]) for row in completions]


def test_the_table_holds_the_conditionals_of_a_plain_forward(model):
    completion = torch.tensor([1, 0, 2])
    table = conditional_table(model, PROMPT, completion)
    # Row 5 = bits 0 and 2 revealed: only token 1 is still to come.
    logits = model(torch.tensor([[0, 2, 1, 1, MASK, 2]]))[0, 4].double()
    assert table[5, 1].item() == pytest.approx(logits.log_softmax(-1)[0].item(), abs=1e-6)
    assert table[5].isnan().tolist() == [True, False, True]
    assert not table[0].isnan().any()
    assert table[7].isnan().all()


def test_probabilities_of_all_completions_sum_to_one(tables):
    any_order = sum(any_order_log_likelihood(table).exp().item() for table in tables)
    chain = sum(chain_log_likelihood(table, [2, 0, 1]).exp().item() for table in tables)
    one_step = sum(table[0].sum().exp().item() for table in tables)
    assert any_order == pytest.approx(1, abs=1e-6)
    assert chain == pytest.approx(1, abs=1e-6)
    assert one_step == pytest.approx(1, abs=1e-6)


def test_a_sampler_that_may_draw_the_mask_token_leaks_its_probability(model):
    total = sum(
        any_order_log_likelihood(conditional_table(model, PROMPT, row)).exp().item()
        for row in all_completions(range(4), 1)
    )
    leak = model(torch.tensor([[0, 2, 1, MASK]]))[0, -1].softmax(-1)[MASK].item()
    assert leak > 1e-3
    assert total == pytest.approx(1 - leak, abs=1e-6)


def test_the_recursion_over_subsets_equals_the_mean_over_orders(tables):
    for table in tables[::7]:
        chains = [chain_log_likelihood(table, o).item() for o in itertools.permutations(range(3))]
        likelihood = math.log(sum(map(math.exp, chains)) / 6)
        assert any_order_log_likelihood(table).item() == pytest.approx(likelihood, abs=1e-12)
        assert exact_elbo(table).item() == pytest.approx(sum(chains) / 6, abs=1e-12)


def test_the_bounds_are_ordered(tables):
    gaps = []
    for table in tables:
        elbo, likelihood = exact_elbo(table), any_order_log_likelihood(table)
        gaps.append((likelihood - elbo).item())
        assert gaps[-1] >= -1e-12
        assert exact_eubo(table, 1.0) >= elbo - 1e-12
        assert exact_eubo(table, 2.0) >= exact_eubo(table, 1.0) - 1e-12
    assert max(gaps) > 0.01  # the bound is not trivially tight on this model


def test_one_token_has_one_order(model):
    table = conditional_table(model, PROMPT, torch.tensor([2]))
    expected = table[0, 0].item()
    assert any_order_log_likelihood(table).item() == pytest.approx(expected)
    assert exact_elbo(table).item() == pytest.approx(expected)
    assert exact_eubo(table, 1.5).item() == pytest.approx(expected)


def test_small_forwards_give_the_same_table(model):
    completion = torch.tensor([1, 0, 2])
    whole = conditional_table(model, PROMPT, completion)
    parts = conditional_table(model, PROMPT, completion, rows_per_forward=3)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-5, equal_nan=True)


def test_a_long_completion_is_refused(model):
    with pytest.raises(ValueError, match="2\\^13 forwards"):
        conditional_table(model, PROMPT, torch.zeros(13, dtype=torch.int64))
