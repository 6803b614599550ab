"""linear_logp against float64 autograd of the formula, at sizes that break tilings."""

from __future__ import annotations

import pytest
import torch
from dare.kernels.linear_logp import linear_logp, reference


def problem(rows, vocabulary, d=16, dtype=torch.float32, targets_per_row=None):
    generator = torch.Generator().manual_seed(rows * 1000 + vocabulary)
    hidden = torch.randn(rows, d, generator=generator).to(dtype)
    weight = torch.randn(vocabulary, d, generator=generator).to(dtype)
    shape = (rows,) if targets_per_row is None else (rows, targets_per_row)
    targets = torch.randint(vocabulary, shape, generator=generator)
    incoming = torch.randn(shape, generator=generator)
    return hidden, weight, targets, incoming


def oracle(hidden, weight, targets, incoming):
    """Value and both gradients of sum(incoming * logp), in float64, written out."""
    hidden = hidden.double().requires_grad_()
    weight = weight.double().requires_grad_()
    exponentials = (hidden @ weight.T).exp()
    probabilities = exponentials / exponentials.sum(-1, keepdim=True)
    columns = targets if targets.dim() == 2 else targets[:, None]
    logp = probabilities.gather(1, columns).log().reshape(targets.shape)
    (logp * incoming.double()).sum().backward()
    return logp.detach(), hidden.grad, weight.grad


@pytest.mark.parametrize("chunk_rows", [None, 1, 2, 64])
@pytest.mark.parametrize("vocabulary", [1, 63, 65, 300])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_value_and_gradients_are_exact(rows, vocabulary, chunk_rows):
    hidden, weight, targets, incoming = problem(rows, vocabulary)
    expected, d_hidden, d_weight = oracle(hidden, weight, targets, incoming)
    hidden.requires_grad_()
    weight.requires_grad_()
    logp = linear_logp(hidden, weight, targets, chunk_rows=chunk_rows)
    assert logp.shape == (rows,)
    assert logp.dtype == torch.float32
    (logp * incoming).sum().backward()
    torch.testing.assert_close(logp.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hidden.grad.double(), d_hidden, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(weight.grad.double(), d_weight, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("chunk_rows", [None, 3])
def test_float64_stays_float64(chunk_rows):
    hidden, weight, targets, incoming = problem(5, 65, dtype=torch.float64)
    expected, d_hidden, _ = oracle(hidden, weight, targets, incoming)
    hidden.requires_grad_()
    logp = linear_logp(hidden, weight, targets, chunk_rows=chunk_rows)
    (logp * incoming).sum().backward()
    torch.testing.assert_close(logp, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(hidden.grad, d_hidden, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk_rows", [None, 2])
def test_several_targets_share_a_row(chunk_rows):
    hidden, weight, targets, incoming = problem(5, 65, targets_per_row=3)
    targets[0] = 7  # the same target three times: its gradients must add up
    incoming[1, :2] = 0  # a row is skipped only when all of its targets send back zero
    expected, d_hidden, d_weight = oracle(hidden, weight, targets, incoming)
    hidden.requires_grad_()
    weight.requires_grad_()
    logp = linear_logp(hidden, weight, targets, chunk_rows=chunk_rows)
    (logp * incoming).sum().backward()
    torch.testing.assert_close(logp.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hidden.grad.double(), d_hidden, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(weight.grad.double(), d_weight, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("frozen", ["weight", "hidden"])
def test_a_frozen_side_gets_no_gradient(frozen):
    hidden, weight, targets, incoming = problem(5, 65)
    _, d_hidden, d_weight = oracle(hidden, weight, targets, incoming)
    trained, expected = (hidden, d_hidden) if frozen == "weight" else (weight, d_weight)
    trained.requires_grad_()
    (linear_logp(hidden, weight, targets, chunk_rows=2) * incoming).sum().backward()
    assert (weight if frozen == "weight" else hidden).grad is None
    torch.testing.assert_close(trained.grad.double(), expected, rtol=1e-5, atol=2e-6)


def test_a_row_with_zero_incoming_gradient_gets_exactly_zero():
    hidden, weight, targets, incoming = problem(5, 65)
    incoming[1] = 0
    incoming[4] = 0
    hidden.requires_grad_()
    (linear_logp(hidden, weight, targets, chunk_rows=2) * incoming).sum().backward()
    assert (hidden.grad == 0).all(1).tolist() == [False, True, False, False, True]


def test_large_products_take_the_chunked_path(monkeypatch):
    hidden, weight, targets, _ = problem(5, 65)
    hidden.requires_grad_()
    assert "Chunked" not in type(linear_logp(hidden, weight, targets).grad_fn).__name__
    monkeypatch.setattr(reference, "PLAIN_ELEMENTS", 5 * 65 - 1)
    logp = linear_logp(hidden, weight, targets)
    names = [
        type(logp.grad_fn).__name__,
        *(type(f).__name__ for f, _ in logp.grad_fn.next_functions),
    ]
    assert any("Chunked" in name for name in names)


@pytest.mark.parametrize("chunk_rows", [None, 2])
def test_huge_logits_stay_finite(chunk_rows):
    hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]])
    logp = linear_logp(hidden, weight, torch.tensor([0, 0]), chunk_rows=chunk_rows)
    assert logp.tolist() == [0.0, -2e4]
    logp.sum().backward()
    assert hidden.grad.tolist() == [[0.0], [2.0]]


@pytest.mark.parametrize("chunk_rows", [None, 2])
def test_half_precision_inputs_give_float32_log_probabilities(chunk_rows):
    hidden, weight, targets, incoming = problem(5, 65, dtype=torch.bfloat16)
    expected, d_hidden, _ = oracle(hidden, weight, targets, incoming)
    hidden.requires_grad_()
    logp = linear_logp(hidden, weight, targets, chunk_rows=chunk_rows)
    (logp * incoming).sum().backward()
    assert logp.dtype == torch.float32
    assert hidden.grad.dtype == torch.bfloat16
    torch.testing.assert_close(logp.double(), expected, rtol=0.02, atol=0.05)
    torch.testing.assert_close(hidden.grad.double(), d_hidden, rtol=0.1, atol=0.05)


def test_autocast_computes_the_logits_in_its_dtype():
    hidden, weight, targets, _ = problem(5, 65)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp = linear_logp(hidden, weight, targets, chunk_rows=2)
    expected = linear_logp(hidden.bfloat16(), weight.bfloat16(), targets)
    torch.testing.assert_close(logp, expected)


@pytest.mark.parametrize(
    ("hidden", "weight", "targets"),
    [((2, 3), (4, 5), (2,)), ((2, 3), (4, 3), (3,)), ((2, 2, 3), (4, 3), (2,))],
)
def test_shapes_that_do_not_fit_are_refused(hidden, weight, targets):
    with pytest.raises(ValueError, match="must be"):
        linear_logp(
            torch.zeros(hidden), torch.zeros(weight), torch.zeros(targets, dtype=torch.int64)
        )
