"""KLASS: commit what is both confident and no longer changing."""

from __future__ import annotations

import torch
from torch import Tensor

from dare.sampling.candidates import SpecialTokens
from dare.sampling.config import SamplerConfig
from dare.sampling.selection.base import (
    Decision,
    Round,
    Selector,
    even_shares,
    top_positions,
)

FLOOR = -27.631  # log 1e-12, which the original adds to probabilities


class KlassSelector(Selector):
    """Masks with c > conf_threshold and KL(p_t || p_(t-1)) < kl_threshold in each of the last
    ``history`` steps; where a row has none, the quota's best.

    The original follows the whole canvas.  What it uses of a later block is its distribution in
    the last step of the block before, so the next block is followed as well, and no further.
    Memory: the last log-probabilities, float32 (B, 2 block_length, vocabulary): 65 MB a row for
    LLaDA-8B and blocks of 64.
    """

    def __init__(self, config: SamplerConfig, special: SpecialTokens, batch: int) -> None:
        super().__init__(config, special, batch)
        self.scope = "ahead" if config.block_origin == "completion" else "block"
        self.last = torch.empty(0)
        self.calm = torch.empty(0)

    def begin(self, block: int, masked: Tensor) -> None:
        size = self.config.block_length
        self.calm = torch.zeros(self.batch, size, dtype=torch.int64, device=masked.device)
        if self.scope == "ahead" and self.last.numel():
            self.last[:, :size] = self.last[:, size:]
        else:
            self.last = torch.empty(0)  # nothing is known of this block: the first KL is infinite

    def goes_on(self, masked: Tensor, index: int) -> Tensor:
        return super().goes_on(masked[:, : self.config.block_length], index)

    def choose(self, round: Round) -> Decision:
        size = self.config.block_length
        masked, confidence = round.masked[:, :size], round.confidence[:, :size]
        below = self._divergence(round)[:, :size] < self.rule.kl_threshold
        calm = (self.calm[round.rows] + 1) * below
        self.calm[round.rows] = calm
        ready = masked & (calm >= self.rule.history) & (confidence > self.rule.conf_threshold)
        quotas = even_shares(size, self.config.steps_per_block)
        # After the schedule one position a round remains, so that the block always ends.
        quota = max(1, quotas[round.index]) if round.index < len(quotas) else 1
        commit = ready.where(ready.any(-1, keepdim=True), top_positions(confidence, quota))
        ahead = round.masked.shape[1] - size
        return Decision(torch.nn.functional.pad(commit, (0, ahead)))

    def _divergence(self, round: Round) -> Tensor:
        """KL from the row's step before (A, W), infinite where there is none; remembers this."""
        logp = round.logits.float().log_softmax(-1)
        if not self.last.numel():
            width = self.config.block_length * (2 if self.scope == "ahead" else 1)
            self.last = logp.new_full((self.batch, width, logp.shape[-1]), -torch.inf)
        place, column = round.scored.nonzero(as_tuple=True)
        place = round.rows[place]
        change = logp.clamp_min(FLOOR) - self.last[place, column].clamp_min(FLOOR)
        self.last[place, column] = logp
        return round.spread((logp.exp() * change).sum(-1), torch.inf)
