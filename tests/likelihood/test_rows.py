"""The path every estimator takes: same numbers, fewer rows."""

from __future__ import annotations

import pytest
import torch

from dare.likelihood.rows import Canvas, row_log_probs, same_input_runs

MASK = 4


class Recorder:
    """Passes calls on and remembers what the model was given."""

    def __init__(self, model):
        self.model, self.config, self.calls = model, model.config, []

    def __call__(self, input_ids, attention_mask=None, **kwargs):
        self.calls.append((input_ids, attention_mask, kwargs["positions"]))
        return self.model(input_ids, attention_mask, **kwargs)


def batch(rows=4, prompt=3, completion=4, padding=0):
    generator = torch.Generator().manual_seed(1)
    prompt_ids = torch.randint(4, (rows, prompt), generator=generator)
    completion_ids = torch.randint(4, (rows, completion), generator=generator)
    prompt_mask = torch.ones_like(prompt_ids, dtype=torch.bool)
    filler = torch.full((rows, padding), 3)
    return (
        torch.cat((filler, prompt_ids), 1),
        torch.cat((torch.zeros_like(filler, dtype=torch.bool), prompt_mask), 1),
        completion_ids,
    )


def random_masks(rows, draws, length, seed=2):
    return torch.rand(rows, draws, length, generator=torch.Generator().manual_seed(seed)) < 0.5


def by_hand(model, canvas, masks, needed):
    """One full forward per sample and draw, all logits, log-softmax, gather."""
    result = torch.zeros(needed.shape)
    for b in range(needed.shape[0]):
        for k in range(needed.shape[1]):
            noisy = canvas.ids[b].masked_fill(masks[b, k], MASK)
            logp = model(noisy[None])[0, -needed.shape[2] :].log_softmax(-1)
            targets = canvas.ids[b, -needed.shape[2] :]
            result[b, k] = logp.gather(1, targets[:, None])[:, 0] * needed[b, k]
    return result


def test_values_equal_one_full_forward_each(model):
    canvas = Canvas.build(*batch())
    masks, needed = random_masks(4, 2, 7), random_masks(4, 2, 4, seed=3)
    found = row_log_probs(model, canvas, masks, needed, MASK)
    torch.testing.assert_close(found, by_hand(model, canvas, masks, needed), rtol=0, atol=1e-5)


def test_padding_changes_nothing_and_common_padding_is_not_computed(model):
    masks, needed = random_masks(4, 2, 7), random_masks(4, 2, 4, seed=3)
    expected = row_log_probs(model, Canvas.build(*batch()), masks, needed, MASK)
    recorder = Recorder(model)
    wide = torch.cat((torch.zeros(4, 2, 5, dtype=torch.bool), masks), -1)
    found = row_log_probs(recorder, Canvas.build(*batch(padding=5)), wide, needed, MASK)
    assert torch.equal(found, expected)
    assert recorder.calls[0][0].shape == (8, 7)
    assert recorder.calls[0][1] is None


def test_mixed_lengths_equal_each_alone(model):
    prompt_ids, prompt_mask, completion_ids = batch()
    prompt_mask[0, :2] = False
    prompt_mask[2, :1] = False
    masks = random_masks(4, 1, 7) & torch.cat((prompt_mask, completion_ids >= 0), 1)[:, None]
    needed = random_masks(4, 1, 4, seed=3)
    together = row_log_probs(
        model, Canvas.build(prompt_ids, prompt_mask, completion_ids), masks, needed, MASK
    )
    for row in range(4):
        alone = Canvas.build(
            prompt_ids[row : row + 1], prompt_mask[row : row + 1], completion_ids[row : row + 1]
        )
        assert alone.attention is None
        single = row_log_probs(model, alone, masks[row : row + 1], needed[row : row + 1], MASK)
        torch.testing.assert_close(single[0], together[row], rtol=0, atol=1e-5)


def test_equal_inputs_run_once_with_the_same_values_and_gradients(model):
    """Two groups of three: one prompt each, completions fully masked, other tokens needed."""
    prompt_ids, prompt_mask, completion_ids = batch(rows=6)
    prompt_ids[1] = prompt_ids[2] = prompt_ids[0]
    prompt_ids[4] = prompt_ids[5] = prompt_ids[3]
    canvas = Canvas.build(prompt_ids, prompt_mask, completion_ids)
    masks = torch.tensor([[[True, False, False] + [True] * 4]]).expand(6, 1, 7)
    needed = random_masks(6, 1, 4, seed=3)
    weights = torch.randn(6, 1, 4, generator=torch.Generator().manual_seed(4))

    recorder = Recorder(model)
    shared = row_log_probs(recorder, canvas, masks, needed, MASK)
    assert recorder.calls[0][0].shape == (2, 7)
    assert int(recorder.calls[0][2].sum()) == int(
        needed[:3, 0].any(0).sum() + needed[3:, 0].any(0).sum()
    )
    grads = torch.autograd.grad((shared * weights).sum(), list(model.parameters()))

    apart = by_hand(model, canvas, masks, needed)
    expected = torch.autograd.grad((apart * weights).sum(), list(model.parameters()))
    torch.testing.assert_close(shared, apart, rtol=0, atol=1e-5)
    for found, wanted in zip(grads, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-5)


def test_runs_need_equal_attention_too():
    inputs = torch.tensor([[1, 2], [1, 2], [1, 2], [3, 2]])
    attention = torch.tensor([[True, True], [True, True], [False, True], [True, True]])
    assert same_input_runs(inputs, None).tolist() == [0, 0, 0, 1]
    assert same_input_runs(inputs, attention).tolist() == [0, 0, 1, 2]


def test_no_needed_row_gives_zeros_that_carry_a_zero_gradient(model):
    canvas = Canvas.build(*batch())
    needed = torch.zeros(4, 1, 4, dtype=torch.bool)
    found = row_log_probs(model, canvas, random_masks(4, 1, 7), needed, MASK)
    assert not found.any()
    grads = torch.autograd.grad(found.sum(), list(model.parameters()))
    assert all(not grad.any() for grad in grads)


def test_an_empty_prompt_is_a_canvas_of_the_completion_alone():
    canvas = Canvas.build(*batch(prompt=0, padding=2))
    assert canvas.ids.shape == (4, 4)
    assert canvas.attention is None


@pytest.mark.parametrize("padding", [0, 3])
def test_a_noisy_input_is_aligned_on_the_right(padding):
    prompt_ids, prompt_mask, completion_ids = batch(rows=1, padding=padding)
    masks = torch.zeros(1, 1, padding + 7, dtype=torch.bool)
    masks[..., -7] = True  # the first real prompt token
    noisy = Canvas.build(prompt_ids, prompt_mask, completion_ids).noisy(masks, MASK)[0, 0]
    assert noisy[0] == MASK
    assert torch.equal(noisy[1:], torch.cat((prompt_ids[0, padding + 1 :], completion_ids[0])))
