"""Noisy inputs -> the rows that are needed -> log-probabilities of the true tokens.

Every estimator goes through :func:`row_log_probs`.  Two exact savings live here: the head runs
on the needed rows only, and neighbouring samples with the same noisy input (a group that shares
its masks, completions fully masked) are run once with several targets a row.  Block-causal
models see the blocks in front of a noisy one clean (:mod:`dare.likelihood.two_stream`), so their
samples share no input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dare._lazy import lazy
from dare.likelihood.two_stream import two_stream

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy("torch")


@dataclass(frozen=True)
class Canvas:
    """Clean prompts and completions side by side.

    ids (B, L) int64, L = P + C; attention (B, L) bool, False at left padding, or None where
    there is none; completion_length C.
    """

    ids: Tensor
    attention: Tensor | None
    completion_length: int

    @staticmethod
    def build(prompt_ids: Tensor, prompt_mask: Tensor, completion_ids: Tensor) -> Canvas:
        """From left-padded prompts (B, P) and completions (B, C).

        Columns that are padding in every row are dropped: nothing attends to them.
        """
        real = prompt_mask.any(0)
        first = int(real.long().argmax()) if bool(real.any()) else len(real)
        prompt_ids, prompt_mask = prompt_ids[:, first:], prompt_mask[:, first:]
        attention = None
        if not bool(prompt_mask.all()):
            attention = torch.cat(
                (prompt_mask, torch.ones_like(completion_ids, dtype=torch.bool)), 1
            )
        ids = torch.cat((prompt_ids, completion_ids), 1)
        return Canvas(ids, attention, completion_ids.shape[1])

    def noisy(self, masks: Tensor, mask_token_id: int) -> Tensor:
        """The inputs (B, K, L) under ``masks`` (B, K, at least L), aligned on the right."""
        width = self.ids.shape[1]
        return self.ids[:, None].masked_fill(masks[..., -width:], mask_token_id)


def same_input_runs(inputs: Tensor, attention: Tensor | None) -> Tensor:
    """Run index (R,) of each row: neighbours with equal input and attention share one."""
    new = (inputs[1:] != inputs[:-1]).any(-1)
    if attention is not None:
        new = new | (attention[1:] != attention[:-1]).any(-1)
    return torch.cat((new.new_zeros(min(1, len(inputs))), new)).long().cumsum(0)


def block_length_of(model: Any) -> int | None:
    """Tokens per block of a block-causal model; None for a bidirectional one.

    ``model`` may be wrapped for training on several devices.
    """
    while not hasattr(model, "config"):
        model = model.module
    length: int | None = getattr(model.config, "block_length", None)
    return length


def distinct_inputs(
    canvas: Canvas, masks: Tensor, mask_token_id: int, block_length: int | None
) -> Tensor:
    """Run index (B * K,) of the inputs under ``masks`` (B, K, L): how many forwards they take.

    A block-causal model takes one for each.
    """
    inputs, attention = _inputs(canvas, masks, mask_token_id)
    if block_length is not None:
        return torch.arange(len(inputs), device=inputs.device)
    return same_input_runs(inputs, attention)


def _inputs(canvas: Canvas, masks: Tensor, mask_token_id: int) -> tuple[Tensor, Tensor | None]:
    """Noisy ids and their attention, each (B * K, L)."""
    noisy = canvas.noisy(masks, mask_token_id)
    attention = canvas.attention
    if attention is not None:
        attention = attention[:, None].expand_as(noisy).flatten(0, 1)
    return noisy.flatten(0, 1), attention


def row_log_probs(
    model: Any, canvas: Canvas, masks: Tensor, needed: Tensor, mask_token_id: int
) -> Tensor:
    """log p(completion token | noisy input) where ``needed``, zero elsewhere: (B, K, C).

    masks (B, K, L) bool, True = hidden from the model; needed (B, K, C) bool.  One forward per
    distinct noisy input.  Differentiable in the model's parameters.
    """
    batch, draws, length = needed.shape
    block_length = block_length_of(model)
    inputs, attention = _inputs(canvas, masks, mask_token_id)
    clean = canvas.ids[:, None].expand(batch, draws, -1).flatten(0, 1)
    rows = torch.zeros_like(inputs, dtype=torch.bool)
    rows[:, -length:] = needed.flatten(0, 1)
    if block_length is not None:
        # Earlier blocks are seen clean, the prompt as it was perturbed.
        context = torch.cat((inputs[:, :-length], clean[:, -length:]), 1)
        streams = two_stream(context, inputs, attention, block_length, length)
        values = model(
            streams.ids,
            position_ids=streams.position_ids,
            attend=streams.attend,
            positions=streams.lift(rows),
            targets=clean[rows],
        )
        log_probs = values.new_zeros(rows.shape).masked_scatter(rows, values)
        return log_probs[:, -length:].view(batch, draws, length)
    runs = same_input_runs(inputs, attention)
    if len(runs) and int(runs[-1]) + 1 < len(runs):
        log_probs = _shared_forward(model, inputs, attention, rows, clean, runs)
    else:
        values = model(inputs, attention, positions=rows, targets=clean[rows])
        log_probs = values.new_zeros(rows.shape).masked_scatter(rows, values)
    return log_probs[:, -length:].view(batch, draws, length)


def _shared_forward(
    model: Any,
    inputs: Tensor,
    attention: Tensor | None,
    rows: Tensor,
    clean: Tensor,
    runs: Tensor,
) -> Tensor:
    """One forward per run; each needed row is read at the targets of all its members: (R, L)."""
    sizes = runs.bincount()
    starts = sizes.cumsum(0) - sizes
    member = torch.arange(len(runs), device=runs.device) - starts[runs]
    shape = (len(sizes), int(sizes.max()), inputs.shape[1])
    needed = rows.new_zeros(shape).index_put((runs, member), rows).any(1)
    targets = clean.new_zeros(shape).index_put((runs, member), clean)
    values = model(
        inputs[starts],
        None if attention is None else attention[starts],
        positions=needed,
        targets=targets.transpose(1, 2)[needed],
    )
    table = values.new_zeros(shape[0], shape[2], shape[1]).index_put((needed,), values)
    return table.transpose(1, 2)[runs, member].where(rows, 0.0)
