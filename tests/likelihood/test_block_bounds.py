"""SPG's bounds against the method card's vectors, and where naive code breaks."""

from __future__ import annotations

import pytest
import torch

from dare.likelihood.block_bounds import elbo, eubo, mixture, token_upper_bounds

LP = torch.tensor([[[-0.5, -1.0, -2.0, -0.25], [-0.4, -1.5, -1.0, -0.75]]], dtype=torch.float64)
M = torch.tensor([[[1, 0, 1, 0], [0, 1, 1, 1]]]).bool()
N = torch.tensor([4])


def test_elbo_vector():
    first, second = elbo(LP[:, :1], M[:, :1]), elbo(LP[:, 1:], M[:, 1:])
    assert first.item() == pytest.approx(-1.25, abs=1e-8)
    assert second.item() == pytest.approx(-1.08333333, abs=1e-8)
    assert elbo(LP, M).item() == pytest.approx(-1.16666667, abs=1e-8)


@pytest.mark.parametrize(
    ("beta", "p", "upper", "mix"),
    [
        (1.0, [0.60653066, 0.14875344, 0.38058824, 0.31491104], -1.13174186, -1.14920426),
        (1.5, [0.47236655, 0.07026615, 0.19854051, 0.21643498], -1.09211539, -1.12939103),
        (2.0, [0.36787944, 0.03319138, 0.10853916, 0.14875344], -1.06644681, -1.11655674),
    ],
)
def test_eubo_vectors(beta, p, upper, mix):
    found = token_upper_bounds(LP, M, N, beta).exp()[0]
    assert found.tolist() == pytest.approx(p, abs=1e-8)
    assert eubo(LP, M, N, beta).item() == pytest.approx(upper, abs=1e-8)
    assert mixture(LP, M, N, beta, 0.5).item() == pytest.approx(mix, abs=1e-8)


def test_only_covered_tokens_enter_the_mean():
    """The last token is never masked: the mean is over three, and t counts n = 4."""
    masked = M.clone()
    masked[..., 3] = False
    log_p = token_upper_bounds(LP, masked, N, 1.5)[0]
    # t = [2/4, 2/4]; token 0 in draw 0 only: exp(-.75) / .5 / 2.
    assert log_p[0].item() == pytest.approx(-0.75, abs=1e-12)
    assert log_p[3].item() == 0
    assert eubo(LP, masked, N, 1.5).item() == pytest.approx(log_p[:3].mean().item() / 1.5)


def test_gradients_reach_masked_tokens_only_and_are_finite():
    masked = M.clone()
    masked[..., 3] = False
    log_probs = LP.clone().requires_grad_()
    mixture(log_probs, masked, N, 1.5, 0.5).sum().backward()
    assert torch.equal(log_probs.grad != 0, masked)
    assert log_probs.grad.isfinite().all()
    # Every covered token has total EUBO weight 1/3, and the ELBO weights add up to one.
    assert log_probs.grad.sum().item() == pytest.approx(1.0)


def test_a_probability_that_underflows_keeps_its_gradient():
    log_probs = torch.full((1, 2, 4), -200.0, requires_grad=True)
    upper = eubo(log_probs, torch.ones(1, 2, 4, dtype=torch.bool), N, 1.5)
    assert upper.item() == pytest.approx(-200.0)
    upper.backward()
    torch.testing.assert_close(log_probs.grad, torch.full((1, 2, 4), 1 / 8))


def test_values_at_unmasked_tokens_do_not_matter():
    other = LP.where(M, float("nan"))
    assert mixture(other, M, N, 1.5, 0.5).item() == mixture(LP, M, N, 1.5, 0.5).item()


def test_a_sample_without_masked_tokens_is_zero_with_a_zero_gradient():
    """An isolated sample has no needed token and counts none."""
    log_probs = torch.zeros(1, 2, 4, requires_grad=True)
    nothing = torch.zeros(1, 2, 4, dtype=torch.bool)
    value = mixture(log_probs, nothing, torch.tensor([0]), 1.5, 0.5)
    assert value.item() == 0
    value.sum().backward()
    assert (log_probs.grad == 0).all()
