"""The reverse process: one loop that fills a canvas of masks block by block.

    out = generate(model, prompts, SamplerConfig(gen_length=16, steps=8, block_length=16))
    out.tokens                    # (B, N) int64

For each block, left to right, and each step: run the model on the whole canvas (later blocks
are visible as masks), propose a token for every masked position of the block, score it, and
commit the most confident ones (LLaDA's semi-autoregressive low-confidence remasking).  The
head runs on the masked positions of the current block only; at temperature 0 no noise exists.
Rows may have prompts of any length: they are padded on the left and padding is never attended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dare.diffusion.keys import Key
from dare.sampling.config import SamplerConfig
from dare.sampling.selection import (
    confidence_of,
    propose,
    row_draws,
    top_positions,
    transfer_schedule,
)


@dataclass(frozen=True)
class Generation:
    """What sampling produced, for B prompts and N generated positions.

    tokens (B, N) int64; commit_step (B, N) int64, the denoising step that fixed each token
    (-1: never); confidence (B, N) float32 at that step; nfe (B,) forwards per row;
    finished (B,) bool, no mask left.
    """

    tokens: Tensor
    commit_step: Tensor
    confidence: Tensor
    nfe: Tensor
    finished: Tensor


@dataclass(frozen=True)
class SpecialTokens:
    """The ids a sampler must know; they come from the checkpoint's config."""

    mask: int
    eos: int | None
    eot: int | None = None
    pad: int | None = None

    @classmethod
    def of(cls, model: nn.Module) -> SpecialTokens:
        """Read from ``model.config``; a checkpoint without a mask token is refused."""
        config: Any = model.config
        mask = getattr(config, "mask_token_id", None)
        if mask is None:
            raise ValueError("the checkpoint's config names no mask_token_id; it cannot be sampled")
        return cls(
            mask=mask,
            eos=getattr(config, "eos_token_id", None),
            eot=getattr(config, "eot_token_id", None),
            pad=getattr(config, "pad_token_id", None),
        )


@torch.no_grad()
def generate(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    config: SamplerConfig,
    keys: Sequence[Key] | None = None,
    special: SpecialTokens | None = None,
) -> Generation:
    """Sample one completion of ``config.gen_length`` tokens per prompt.

    prompts: B unpadded token lists.  keys: one per row, needed when anything is random
    (temperature > 0 or random remasking).  The tokens of a row depend on its prompt and key,
    never on the rest of the batch.  Raises ValueError without keys where they are needed.
    """
    special = special or SpecialTokens.of(model)
    if keys is None and (config.temperature > 0 or config.remasking == "random"):
        raise ValueError("temperature > 0 and random remasking need one key per row")
    state = _Canvas.start(model, prompts, config, special)
    for block in range(config.num_blocks):
        schedule = transfer_schedule(config.block_length, config.steps_per_block)
        for step_in_block, quota in enumerate(schedule):
            if quota:  # a step that commits nothing changes nothing
                step = block * config.steps_per_block + step_in_block
                _denoise(state, block, step, quota, keys)
    return state.result()


@dataclass
class _Canvas:
    """The state of one batch: ids (B, P + N) and what has been committed so far."""

    model: nn.Module
    config: SamplerConfig
    special: SpecialTokens
    ids: Tensor
    attention_mask: Tensor | None
    prompt_length: int
    commit_step: Tensor
    confidence: Tensor
    forwards: int = 0

    @classmethod
    def start(
        cls,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        config: SamplerConfig,
        special: SpecialTokens,
    ) -> _Canvas:
        device = next(model.parameters()).device
        width = max((len(prompt) for prompt in prompts), default=0)
        filler = special.pad if special.pad is not None else special.mask
        shape = (len(prompts), width + config.gen_length)
        ids = torch.full(shape, special.mask, dtype=torch.int64)
        attended = torch.ones(shape, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            pads = width - len(prompt)
            ids[row, :pads], attended[row, :pads] = filler, False
            ids[row, pads:width] = torch.tensor(prompt, dtype=torch.int64)
        generated = (len(prompts), config.gen_length)
        return cls(
            model=model,
            config=config,
            special=special,
            ids=ids.to(device),
            attention_mask=None if bool(attended.all()) else attended.to(device),
            prompt_length=width,
            commit_step=torch.full(generated, -1, dtype=torch.int64, device=device),
            confidence=torch.zeros(generated, device=device),
        )

    def logits_at(self, positions: Tensor) -> Tensor:
        """Logits (N, V) at the needed positions, guided when the config asks for it."""
        if self.config.cfg_scale == 0:
            self.forwards += 1
            return self.model(self.ids, self.attention_mask, positions=positions)
        self.forwards += 2
        blind = self.ids.clone()
        blind[:, : self.prompt_length] = self.special.mask
        mask = self.attention_mask
        both = self.model(
            torch.cat((self.ids, blind)),
            None if mask is None else torch.cat((mask, mask)),
            positions=torch.cat((positions, positions)),
        )
        conditional, unconditional = both.chunk(2)
        return unconditional + (self.config.cfg_scale + 1) * (conditional - unconditional)

    def result(self) -> Generation:
        tokens = self.ids[:, self.prompt_length :]
        rows = tokens.shape[0]
        return Generation(
            tokens=tokens,
            commit_step=self.commit_step,
            confidence=self.confidence,
            nfe=torch.full((rows,), self.forwards, dtype=torch.int64),
            finished=(tokens != self.special.mask).all(dim=-1),
        )


def _denoise(state: _Canvas, block: int, step: int, quota: int, keys: Sequence[Key] | None) -> None:
    """One step: propose for the block's masked positions and commit the ``quota`` best."""
    config, special = state.config, state.special
    offset = block * config.block_length
    first = state.prompt_length + offset
    window = slice(first, first + config.block_length)
    masked = state.ids[:, window] == special.mask
    positions = torch.zeros_like(state.ids, dtype=torch.bool)
    positions[:, window] = masked
    logits = state.logits_at(positions)
    if config.logits_eos_inf and special.eos is not None:
        logits[:, special.eos] = -torch.inf
    tokens = _candidates(logits, masked, config, step, keys)
    scores = _scores(logits, tokens, masked, state, step, keys)

    confidence = torch.full(masked.shape, -torch.inf, device=logits.device)
    confidence[masked] = scores
    proposal = state.ids[:, window].masked_scatter(masked, tokens)
    chosen = top_positions(confidence, quota)
    state.ids[:, window] = torch.where(chosen, proposal, state.ids[:, window])
    generated = slice(offset, offset + config.block_length)
    fixed = chosen & (proposal != special.mask)
    state.commit_step[:, generated].masked_fill_(fixed, step)
    state.confidence[:, generated] = torch.where(fixed, confidence, state.confidence[:, generated])


def _candidates(
    logits: Tensor, masked: Tensor, config: SamplerConfig, step: int, keys: Sequence[Key] | None
) -> Tensor:
    """The proposed token of every needed row, (N,)."""
    noise = None
    if config.temperature > 0:
        assert keys is not None
        noise = row_draws(keys, step, masked.sum(-1).tolist(), logits.shape[-1], logits.device)
    return propose(logits, config.temperature, noise)


def _scores(
    logits: Tensor,
    tokens: Tensor,
    masked: Tensor,
    state: _Canvas,
    step: int,
    keys: Sequence[Key] | None,
) -> Tensor:
    """The confidence of every proposal, (N,): probability, or uniform noise."""
    config, special = state.config, state.special
    if config.remasking == "random":
        assert keys is not None
        # Draw indices past the last step, so that scores and tokens never share noise.
        draw = config.steps + step
        return row_draws(keys, draw, masked.sum(-1).tolist(), 1, logits.device).squeeze(-1)
    if config.confidence_eos_eot_inf:
        # The original blanks both ids at temperature 0; with noise its aliasing spares eos.
        if special.eot is not None:
            logits[:, special.eot] = -torch.inf
        if special.eos is not None and config.temperature == 0:
            logits[:, special.eos] = -torch.inf
    return confidence_of(logits, tokens)
