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
    The tokens of a row depend on its prompt and key, never on the rest of the batch (but for an
    empty prompt, whose masks all look alike: rounding then decides which of them is surest).
    ``watch`` is called after every round with the canvas.  Raises ValueError without keys where
    they are needed, ``UsageProblem`` for blocks, caches and lengths that the model cannot do.
    """
    special = special or SpecialTokens.of(model)
    if keys is None and config.is_random:
        raise ValueError("temperature > 0 and random rules need one key per row")
    lagging = bool(getattr(model, "head_lags", False))
    _check_blocks(model, config)
    _check_cache(config, lagging)
    device = next(model.parameters()).device
    selector = selection.make(config, special, len(prompts))
    canvas = Canvas.start(prompts, config, special, selector.block_lengths(), device)
    _check_context(model, prompts, canvas.ids.shape[1])
    # The most blocks that any row has, whatever is in the batch: it numbers a row's draws.
    most = len(selector.block_lengths()) + (config.block_origin == "sequence")
    loop = _Loop(
        canvas=canvas,
        selector=selector,
        forward=forwarding.make(model, canvas, config),
        noise=None if keys is None else Noise(keys, selector.max_rounds * most, device),
        lagging=lagging,
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
            "block_origin sequence, or a sampler of its family: dare list samplers",
        )
    if own is None and config.block_origin == "sequence":
        raise UsageProblem(
            "this model is bidirectional, the sampler is for a block-causal one",
            "blocks counted from the start of the sequence have no meaning for it",
            "block_origin completion, or a sampler of its family: dare list samplers",
        )


def _check_cache(config: SamplerConfig, lagging: bool) -> None:
    rule = config.selection.rule
    if lagging and config.cache != "none" and rule in ("schedule", "ascending", "maskgit"):
        raise UsageProblem(
            f"the rule '{rule}' cannot run through the cache '{config.cache}' on this model",
            "its head predicts the next token, so that the first step of a block is spent on the "
            "block's first token, and a fixed schedule then ends with masks left",
            "the cache none, or one of the rules dream, threshold and dynamic",
        )


def _check_context(model: Any, prompts: Sequence[Sequence[int]], width: int) -> None:
    """Before anything is spent: a block-causal model would notice in the last block only."""
    context = getattr(model.config, "max_position_embeddings", None)
    if context is not None and width > context:
        longest = max((len(prompt) for prompt in prompts), default=0)
        raise UsageProblem(
            f"a sequence of {width} tokens does not fit the model",
            f"its context is {context} tokens, for the prompt (the longest has {longest}) and "
            "the completion, in whole blocks for a block-causal model, together",
            "a lower gen_length (of a run: --set rollout.gen_length=N, "
            "--set evaluation.gen_length=N), or no such long prompts",
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
    broken: bool | Tensor = False

    def fill(self, number: int, block: slice) -> None:
        """Run the rounds of one block."""
        canvas, selector = self.canvas, self.selector
        start, stop = block.start, block.stop
        if selector.scope == "region":
            start = canvas.ids.shape[1] - canvas.config.gen_length
        elif selector.scope == "ahead" and number + 1 < len(canvas.blocks):
            stop = canvas.blocks[number + 1].stop
        window = slice(start, stop)
        self.forward.begin_block()
        selector.begin(number, canvas.masked(window))
        places = canvas.block_numbers(block)
        for index in range(selector.max_rounds):
            masked = canvas.masked(window)
            live = selector.goes_on(masked, index) & ~canvas.stopped
            rows = live.nonzero().squeeze(1)  # the one wait for the device in a round
            if not len(rows):
                break
            if len(rows) < len(masked):
                masked = masked[rows]
            if self.opening or not selector.is_idle(masked, index):
                steps = [places[row] * selector.max_rounds + index for row in rows.tolist()]
                self._round(rows, window, masked, index, steps)
                if canvas.config.eos_stop == "token":
                    canvas.stop_rows(block.stop)
        if bool(self.broken):
            raise UsageProblem(
                "the model gives no probabilities: some of its logits are not finite",
                "weights that hold NaN or infinity, or a half precision that overflows",
                "check the checkpoint, or use float32",
            )
        canvas.stop_rows(block.stop)

    @property
    def opening(self) -> bool:
        """Whether the next forward is the only one that can predict the block's first token."""
        return self.lagging and self.forward.opens_block

    def _round(
        self, rows: Tensor, window: slice, masked: Tensor, index: int, steps: list[int]
    ) -> None:
        """One forward and what follows from it, for the live rows (A,)."""
        canvas, selector = self.canvas, self.selector
        cells = canvas.cells(rows, window)
        ids = canvas.ids[cells]
        scored = selector.scored(masked, canvas.region[cells])
        opening = self.opening
        logits = self.forward(rows, window, scored)
        canvas.nfe[cells[0]] += self.forward.passes
        logits = selector.adjust(logits, scored, rows, index)
        tokens, scores = self._propose(logits, scored, rows.tolist(), steps)
        confidence = scores.new_full(scored.shape, -torch.inf).masked_scatter(scored, scores)
        if canvas.config.confidence_eos_eot_inf:
            confidence = _later_ends_first(confidence)
        round = Round(
            index=index,
            rows=rows,
            numbers=steps,
            masked=masked,
            ids=ids,
            tokens=ids.masked_scatter(scored, tokens),
            confidence=confidence,
            scored=scored,
            logits=logits,
            noise=self.noise,
        )
        decision = _first_column(masked) if opening else selector.choose(round)
        canvas.apply(
            rows, window, decision.commit, round.tokens, round.confidence, steps, decision.remask
        )
        if self.watch is not None:
            self.watch(canvas)

    def _propose(
        self, logits: Tensor, scored: Tensor, rows: list[int], steps: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Candidates and their scores, each (N,)."""
        config, noise, counts = self.canvas.config, None, []
        if config.temperature > 0 or config.remasking == "random":
            counts = scored.sum(-1).tolist()
        if config.temperature > 0:
            assert self.noise is not None
            noise = self.noise.exponential(rows, steps, counts, logits.shape[-1])
        tokens, source = candidates(
            logits, config, self.canvas.special, noise, self.selector.allow_mask
        )
        if config.remasking == "random":
            assert self.noise is not None
            draws = self.noise.exponential(rows, steps, counts, 1, kind=1).squeeze(-1)
            scores = -(-draws).expm1()  # uniform, so that thresholds keep their meaning
        else:
            scores = scores_of(config.remasking, source, tokens)
        # Looked at when the block is done: asking now would wait for the device.
        self.broken = self.broken | source[:, 0].isnan().any() | scores.isnan().any()
        return tokens, scores


def _later_ends_first(confidence: Tensor) -> Tensor:
    """Confidences (A, W) in which equal zeros rank from the right.

    ``confidence_eos_eot_inf`` gives every EOS candidate the confidence 0.  Where there is nothing
    else, the original takes the one that ``torch.topk`` happens to find first, which hangs on the
    device and the canvas; the leftmost would end the answer before it began.
    """
    width = confidence.shape[1]
    places = torch.arange(width, 0, -1, device=confidence.device, dtype=confidence.dtype)
    return confidence.where(confidence != 0, places * -1e-30)


def _first_column(masked: Tensor) -> Decision:
    """Commit the first token of the block alone.

    Where row i - 1 predicts token i and a cache feeds only the block, later forwards cannot
    predict it; Fast-dLLM for Dream takes it, and nothing else, from the block's first forward.
    """
    first = torch.zeros_like(masked)
    first[:, 0] = masked[:, 0]
    return Decision(first)
