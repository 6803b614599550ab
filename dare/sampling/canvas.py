"""The state of one batch: prompts and masks side by side, and what has been committed so far.

Bidirectional models: prompts are padded on the left to one width and blocks are counted from
its end.  Block-causal models: blocks are counted from a row's first token, so rows are padded
by whole blocks on the left until all of them end in the same column; block boundaries are then
the same columns in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dare.sampling.candidates import SpecialTokens
from dare.sampling.config import SamplerConfig


@dataclass(frozen=True)
class Generation:
    """What sampling produced, for B prompts and N generated positions.

    tokens (B, N) int64; commit_step (B, N) int64, which grows along a row's trajectory and is
    equal for what one denoising step fixed (-1: never); confidence (B, N) float32 at that step;
    nfe (B,) forwards per row; finished (B,) bool, no mask left.
    """

    tokens: Tensor
    commit_step: Tensor
    confidence: Tensor
    nfe: Tensor
    finished: Tensor


@dataclass
class Canvas:
    """ids (B, T); attention_mask (B, T) bool or None without padding; first (B,) the first
    generated column of each row; region (B, T) bool, what may be generated; blocks (columns)."""

    config: SamplerConfig
    special: SpecialTokens
    ids: Tensor
    attention_mask: Tensor | None
    first: Tensor
    region: Tensor
    blocks: list[slice]
    commit_step: Tensor
    confidence: Tensor
    nfe: Tensor
    stopped: Tensor

    @classmethod
    def start(
        cls,
        prompts: Sequence[Sequence[int]],
        config: SamplerConfig,
        special: SpecialTokens,
        block_lengths: Sequence[int],
        device: torch.device,
    ) -> Canvas:
        """A canvas of masks behind the prompts (unpadded token lists)."""
        length, size = config.gen_length, config.block_length
        if config.block_origin == "sequence":
            spans = [-(-(len(prompt) + length) // size) * size for prompt in prompts]
        else:
            spans = [len(prompt) + length for prompt in prompts]
        width = max(spans, default=length)
        filler = special.pad if special.pad is not None else special.mask
        ids = torch.full((len(prompts), width), special.mask, dtype=torch.int64)
        attended = torch.ones(ids.shape, dtype=torch.bool)
        region = torch.zeros(ids.shape, dtype=torch.bool)
        for row, (prompt, span) in enumerate(zip(prompts, spans, strict=True)):
            pads = width - span
            ids[row, :pads], attended[row, :pads] = filler, False
            ids[row, pads : pads + len(prompt)] = torch.tensor(prompt, dtype=torch.int64)
            region[row, pads + len(prompt) :] = True
        return cls(
            config=config,
            special=special,
            ids=ids.to(device),
            attention_mask=None if bool(attended.all()) else attended.to(device),
            first=region.long().argmax(-1).to(device),
            region=region.to(device),
            blocks=_blocks(region, config, block_lengths),
            commit_step=torch.full(ids.shape, -1, dtype=torch.int64, device=device),
            confidence=torch.zeros(ids.shape, device=device),
            nfe=torch.zeros(len(prompts), dtype=torch.int64, device=device),
            stopped=torch.zeros(len(prompts), dtype=torch.bool, device=device),
        )

    def cells(self, rows: Tensor, window: slice) -> tuple[Tensor | slice, slice]:
        """The index of the window for ``rows``, ascending; without a gather where it is all."""
        return (slice(None) if len(rows) == len(self.ids) else rows), window

    def masked(self, window: slice) -> Tensor:
        """Generated positions of ``window`` that still hold a mask, (B, W) bool."""
        return (self.ids[:, window] == self.special.mask) & self.region[:, window]

    def block_numbers(self, block: slice) -> list[int]:
        """Which block of its own completion ``block`` is for every row, counted from 0."""
        if self.config.block_origin == "completion":
            return [self.blocks.index(block)] * len(self.ids)
        size = self.config.block_length
        return [block.start // size - int(first) // size for first in self.first]

    def apply(
        self, rows: Tensor, window: slice, commit: Tensor, tokens: Tensor, confidence: Tensor,
        numbers: Sequence[int], remask: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Write the decision of a round for ``rows`` (A,): commit, tokens, confidence (A, W)."""
        cells = self.cells(rows, window)
        ids, steps = self.ids[cells], self.commit_step[cells]
        fixed = commit & (tokens != self.special.mask)
        number = torch.tensor(numbers, device=rows.device)[:, None]
        ids = torch.where(commit, tokens, ids)
        steps = torch.where(fixed, number, steps)
        sure = torch.where(fixed, confidence, self.confidence[cells])
        if remask is not None:
            ids = ids.masked_fill(remask, self.special.mask)
            steps, sure = steps.masked_fill(remask, -1), sure.masked_fill(remask, 0.0)
        self.ids[cells] = ids
        self.commit_step[cells] = steps
        self.confidence[cells] = sure

    def stop_rows(self, end: int) -> None:
        """Stop the rows that hold a stop token and have no mask left up to column ``end``.

        With ``eos_stop`` "token" only the masks in front of the first stop token count.
        """
        if self.config.eos_stop == "never" or not self.special.stops:
            return
        stops = torch.tensor(self.special.stops, device=self.ids.device)
        ids, region = self.ids[:, :end], self.region[:, :end]
        found = torch.isin(ids, stops) & region
        masks = (ids == self.special.mask) & region
        if self.config.eos_stop == "token":
            masks = masks & (found.cumsum(-1) == 0)
        self.stopped |= found.any(-1) & ~masks.any(-1)

    def result(self) -> Generation:
        """The completions; what a stopped row did not generate is filled with EOS."""
        unfilled = (self.ids == self.special.mask) & self.region & self.stopped[:, None]
        if self.special.stops:
            eos = self.special.eos
            self.ids = self.ids.masked_fill(unfilled, self.special.stops[0] if eos is None else eos)
        steps = torch.arange(self.config.gen_length, device=self.ids.device)
        columns = self.first[:, None] + steps
        tokens = self.ids.gather(1, columns)
        return Generation(
            tokens=tokens,
            commit_step=self.commit_step.gather(1, columns),
            confidence=self.confidence.gather(1, columns),
            nfe=self.nfe.cpu(),
            finished=(tokens != self.special.mask).all(dim=-1),
        )


Watch = Callable[[Canvas], None]


def _blocks(region: Tensor, config: SamplerConfig, lengths: Sequence[int]) -> list[slice]:
    """Columns of the blocks, left to right."""
    if not len(region):
        return []
    width = region.shape[1]
    if config.block_origin == "sequence":
        size = config.block_length
        first = int(region.long().argmax(-1).min()) // size * size
        return [slice(start, start + size) for start in range(first, width, size)]
    start, blocks = width - config.gen_length, []
    for length in lengths:
        blocks.append(slice(start, start + length))
        start += length
    return blocks
