"""The reverse process: one loop that fills a canvas of masks block by block.

    out = generate(model, prompts, SamplerConfig(gen_length=16, steps=8, block_length=16))
    out.tokens                    # (B, N) int64

For each block, left to right, while it has something to do: get logits where they are needed,
propose a token for each of those positions and score it, let the selection rule decide what to
commit or to mask again.  Rows may have prompts of any length; padding is never attended; a row
that has nothing left to do in a block costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dare.diffusion.keys import Key
from dare.errors import UsageProblem
from dare.sampling import forwarding, selection
from dare.sampling.candidates import Noise, SpecialTokens, candidates, scores_of
from dare.sampling.canvas import Canvas, Generation, Watch
from dare.sampling.config import SamplerConfig
from dare.sampling.forwarding import FullCanvas
from dare.sampling.selection.base import Decision, Round, Selector

__all__ = ["Generation", "SpecialTokens", "generate"]


@torch.no_grad()
def generate(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    config: SamplerConfig,
    keys: Sequence[Key] | None = None,
    special: SpecialTokens | None = None,
    watch: Watch | None = None,
) -> Generation:
    """Sample one completion of ``config.gen_length`` tokens per prompt.

    prompts: B unpadded token lists.  keys: one per row, needed when anything is random.
    The tokens of a row depend on its prompt and key, never on the rest of the batch.
    ``watch`` is called after every round with the canvas.  Raises ValueError without keys where
    they are needed, ``UsageProblem`` for blocks that the model cannot do.
    """
    special = special or SpecialTokens.of(model)
    if keys is None and config.is_random:
        raise ValueError("temperature > 0 and random rules need one key per row")
    _check_blocks(model, config)
    device = next(model.parameters()).device
    selector = selection.make(config, special, len(prompts))
    canvas = Canvas.start(prompts, config, special, selector.block_lengths(), device)
    span = selector.max_rounds * (len(canvas.blocks) + 1)
    if config.block_origin == "completion":
        span = selector.max_rounds * len(canvas.blocks)
    loop = _Loop(
        canvas=canvas,
        selector=selector,
        forward=forwarding.make(model, canvas, config),
        noise=None if keys is None else Noise(keys, span, device),
        lagging=bool(getattr(model, "head_lags", False)),
        watch=watch,
    )
    for number, block in enumerate(canvas.blocks):
        loop.fill(number, block)
    return canvas.result()


def _check_blocks(model: Any, config: SamplerConfig) -> None:
    own = getattr(model.config, "block_length", None)
    if own is not None and config.block_origin != "sequence":
        raise UsageProblem(
            "this model is block-causal, the sampler is for a bidirectional one",
            f"its blocks (of {own} tokens) are counted from the start of the sequence",
            "--set evaluation.block_origin=sequence, or a sampler preset of its family: "
            "dare list samplers",
        )
    if own is None and config.block_origin == "sequence":
        raise UsageProblem(
            "this model is bidirectional, the sampler is for a block-causal one",
            "blocks counted from the start of the sequence have no meaning for it",
            "--set evaluation.block_origin=completion, or a sampler preset of its family: "
            "dare list samplers",
        )


@dataclass
class _Loop:
    """One call's parts.  ``lagging``: the head of row i - 1 predicts token i (Dream)."""

    canvas: Canvas
    selector: Selector
    forward: FullCanvas
    noise: Noise | None
    lagging: bool
    watch: Watch | None

    def fill(self, number: int, block: slice) -> None:
        """Run the rounds of one block."""
        canvas, selector = self.canvas, self.selector
        start = block.start
        if selector.scope == "region":
            start = canvas.ids.shape[1] - canvas.config.gen_length
        window = slice(start, block.stop)
        self.forward.begin_block()
        selector.begin(number, canvas.masked(window))
        places = canvas.block_numbers(block)
        index = 0
        while True:
            masked = canvas.masked(window)
            live = selector.goes_on(masked, index) & ~canvas.stopped
            rows = live.nonzero().squeeze(1)  # the one wait for the device in a round
            if not len(rows):
                break
            if not selector.is_idle(masked, index):
                steps = [places[row] * selector.max_rounds + index for row in rows.tolist()]
                self._round(rows, window, masked[rows], index, steps)
                if canvas.config.eos_stop == "token":
                    canvas.stop_rows(block.stop)
            index += 1
        canvas.stop_rows(block.stop)

    def _round(
        self, rows: Tensor, window: slice, masked: Tensor, index: int, steps: list[int]
    ) -> None:
        """One forward and what follows from it, for the live rows (A,)."""
        canvas, selector = self.canvas, self.selector
        ids = canvas.ids[rows, window]
        scored = selector.scored(masked, canvas.region[rows, window])
        opens = self.forward.opens_block and self.lagging
        logits = self.forward(rows, window, scored)
        canvas.nfe[rows] += self.forward.passes
        logits = selector.adjust(logits, scored, rows, index)
        tokens, scores = self._propose(logits, scored, rows.tolist(), steps)
        round = Round(
            index=index,
            rows=rows,
            numbers=steps,
            masked=masked,
            ids=ids,
            tokens=ids.masked_scatter(scored, tokens),
            confidence=scores.new_full(scored.shape, -torch.inf).masked_scatter(scored, scores),
            scored=scored,
            logits=logits,
            noise=self.noise,
        )
        decision = _first_column(masked) if opens else selector.choose(round)
        canvas.apply(
            rows, window, decision.commit, round.tokens, round.confidence, steps, decision.remask
        )
        if self.watch is not None:
            self.watch(canvas)

    def _propose(
        self, logits: Tensor, scored: Tensor, rows: list[int], steps: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Candidates and their scores, each (N,)."""
        config, noise = self.canvas.config, None
        counts = scored.sum(-1).tolist()
        if config.temperature > 0:
            assert self.noise is not None
            noise = self.noise.exponential(rows, steps, counts, logits.shape[-1])
        tokens, source = candidates(
            logits, config, self.canvas.special, noise, self.selector.allow_mask
        )
        if config.remasking == "random":
            assert self.noise is not None
            return tokens, self.noise.exponential(rows, steps, counts, 1, kind=1).squeeze(-1)
        return tokens, scores_of(config.remasking, source, tokens)


def _first_column(masked: Tensor) -> Decision:
    """Commit the first token of the block alone.

    Where row i - 1 predicts token i and a cache feeds only the block, later forwards cannot
    predict it; Fast-dLLM for Dream takes it, and nothing else, from the block's first forward.
    """
    first = torch.zeros_like(masked)
    first[:, 0] = masked[:, 0]
    return Decision(first)
