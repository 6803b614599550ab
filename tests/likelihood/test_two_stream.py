"""Block-causal models score all noisy blocks in one forward as they would one by one."""

from __future__ import annotations

import pytest
import torch

from dare.likelihood.rows import Canvas, distinct_inputs, row_log_probs
from dare.likelihood.two_stream import two_stream
from dare.models.sdar import SDARConfig, SDARForCausalLM

MASK, PAD = 11, 10


@pytest.fixture(scope="module")
def model() -> SDARForCausalLM:
    torch.manual_seed(0)
    config = SDARConfig(
        vocab_size=12, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=64,
        mask_token_id=MASK, pad_token_id=PAD, eos_token_id=9, block_size=4,
    )  # fmt: skip
    return SDARForCausalLM(config).eval()


def canvas_of(lengths: list[int], completion: int) -> Canvas:
    generator = torch.Generator().manual_seed(3)
    width = max(lengths)
    ids = torch.full((len(lengths), width), PAD)
    mask = torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, length in enumerate(lengths):
        ids[row, width - length :] = torch.randint(9, (length,), generator=generator)
        mask[row, width - length :] = True
    return Canvas.build(
        ids, mask, torch.randint(9, (len(lengths), completion), generator=generator)
    )


def block_by_block(model: SDARForCausalLM, canvas: Canvas, masks: torch.Tensor) -> torch.Tensor:
    """log p of every completion token: one forward per row and block, earlier blocks clean."""
    batch, length = canvas.ids.shape
    first = length - canvas.completion_length
    result = torch.zeros(batch, length)
    for row in range(batch):
        pads = 0 if canvas.attention is None else int((~canvas.attention[row]).sum())
        ids, hidden = canvas.ids[row, pads:], masks[row, 0, pads:]
        for start in range(0, len(ids), 4):
            window = slice(start, start + 4)
            seen = ids[: start + 4].clone()
            # The prompt is perturbed everywhere, the completion only in the block itself.
            perturbed = hidden[: start + 4].clone()
            perturbed[first - pads : start] = False
            seen[perturbed] = MASK
            logp = model(seen[None])[0].log_softmax(-1)
            for place in range(len(ids))[window]:
                result[row, pads + place] = logp[place, ids[place]]
    return result[:, first:]


@pytest.mark.parametrize("lengths", [[4, 4], [6, 6, 6], [3, 8, 5], [1, 7], [0, 3]])
@pytest.mark.parametrize("completion", [8, 5])
def test_one_forward_equals_block_by_block(
    model: SDARForCausalLM, lengths: list[int], completion: int
) -> None:
    canvas = canvas_of(lengths, completion)
    generator = torch.Generator().manual_seed(5)
    masks = torch.rand(len(lengths), 1, canvas.ids.shape[1], generator=generator) < 0.5
    if canvas.attention is not None:
        masks &= canvas.attention[:, None]
    needed = masks[..., -completion:]
    found = row_log_probs(model, canvas, masks, needed, MASK)[:, 0]
    expected = block_by_block(model, canvas, masks).where(needed[:, 0], 0.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


def test_columns_nobody_depends_on_are_left_out() -> None:
    context = torch.zeros(1, 16, dtype=torch.int64)
    streams = two_stream(context, context, None, 4, 8)
    # 12 of 16 context columns, the two noisy blocks.
    assert (streams.ids.shape, streams.start) == ((1, 20), 8)


def test_a_group_shares_no_input_when_completions_differ(model: SDARForCausalLM) -> None:
    canvas = canvas_of([4, 4], 4)
    same = Canvas(canvas.ids[:1].repeat(2, 1), None, 4)
    other = Canvas(torch.cat((same.ids[:1], same.ids[:1].flip(1))), None, 4)
    other.ids[:, :4] = same.ids[:, :4]
    masks = torch.zeros(2, 1, 8, dtype=torch.bool)
    masks[..., -4:] = True
    assert distinct_inputs(same, masks, MASK, None).tolist() == [0, 0]
    # What is counted is what is run: a block-causal model takes even equal rows one by one.
    assert distinct_inputs(same, masks, MASK, 4).tolist() == [0, 1]
    assert distinct_inputs(other, masks, MASK, None).tolist() == [0, 0]
    assert distinct_inputs(other, masks, MASK, 4).tolist() == [0, 1]


def test_gradients_reach_the_weights_and_padding_stays_finite(model: SDARForCausalLM) -> None:
    canvas = canvas_of([2, 7], 6)
    masks = torch.ones(2, 1, canvas.ids.shape[1], dtype=torch.bool)
    assert canvas.attention is not None
    masks &= canvas.attention[:, None]
    row_log_probs(model, canvas, masks, masks[..., -6:], MASK).sum().backward()
    grads = [p.grad for p in model.parameters()]
    assert all(g is not None and bool(g.isfinite().all()) for g in grads)
    model.zero_grad()
