"""dInfer's parallel decoders: threshold, credit, hierarchy."""

from __future__ import annotations

import torch
from torch import Tensor

from dare.sampling.selection.base import Decision, Round, Selector, top_positions

SLACK = 1e-5  # what is this close to the best is committed with it


class DInferThresholdSelector(Selector):
    """c >= min(threshold, best c - 1e-5); with credit where ``credit_alpha`` > 0.

    A position at which the mask token is likeliest is not eligible, unless a row has no other.

    Credit has at most one token per step and position, so it is kept as (B, W, rounds) tokens
    and credits instead of a (B, W, vocabulary) matrix: for 32 positions 12 kB a row.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.earners = self.credit = torch.empty(0)

    def begin(self, block: int, masked: Tensor) -> None:
        shape = (*masked.shape, self.max_rounds)
        self.earners = torch.zeros(shape, dtype=torch.int64, device=masked.device)
        self.credit = torch.zeros(shape, device=masked.device)

    def adjust(self, logits: Tensor, scored: Tensor, rows: Tensor, index: int) -> Tensor:
        if self.rule.credit_alpha == 0:
            return logits
        logits = logits.float()
        place, column = scored.nonzero(as_tuple=True)
        place = rows[place]
        best, token = logits.max(-1)
        gain = (best - logits.logsumexp(-1)).exp() ** self.rule.credit_gamma
        earners = self.earners[place, column]
        credit = self.credit[place, column] * self.rule.credit_decay
        known = (earners == token[:, None]) & (credit > 0)
        slot = torch.zeros_like(known)
        slot[:, index] = True
        slot = known.where(known.any(-1, keepdim=True), slot)
        earners = torch.where(slot, token[:, None], earners)
        credit = credit + slot * gain[:, None]
        self.earners[place, column], self.credit[place, column] = earners, credit
        return logits.scatter_add(-1, earners, self.rule.credit_alpha * credit.log1p())

    def choose(self, round: Round) -> Decision:
        eligible = round.masked & ~round.spread(self._prefers_mask(round.logits), False)
        eligible = eligible.where(eligible.any(-1, keepdim=True), round.masked)
        confidence = round.confidence.masked_fill(~eligible, -torch.inf)
        limit = (confidence.amax(-1, keepdim=True) - SLACK).clamp_max(self.rule.threshold)
        return Decision(eligible & (confidence >= limit))

    def _prefers_mask(self, logits: Tensor) -> Tensor:
        """Rows (N,) whose likeliest token is the mask."""
        return logits.argmax(-1) == self.special.mask


class HierarchySelector(Selector):
    """The best of every run of masks, if it is sure enough, and everything that is surer."""

    def scored(self, masked: Tensor, region: Tensor) -> Tensor:
        return masked if self.rule.remask_below is None else region

    def choose(self, round: Round) -> Decision:
        doubted = torch.zeros_like(round.masked)
        if self.rule.remask_below is not None:
            unsure = round.confidence < self.rule.remask_below
            doubted = round.scored & ~round.masked & unsure
        open_ = round.masked | doubted
        confidence = round.confidence.masked_fill(~open_, -torch.inf)
        best = confidence == self._best_of_run(open_, confidence)
        commit = open_ & best & (confidence > self.rule.low_threshold)
        if self.rule.threshold is not None:
            commit |= confidence > self.rule.threshold
        missing = (doubted.sum(-1) + 1 - commit.sum(-1)).clamp_min(0)
        commit |= top_positions(confidence.masked_fill(commit, -torch.inf), missing)
        if self.rule.remask_below is None:
            return Decision(commit)
        return Decision(commit, doubted & ~commit)

    @staticmethod
    def _best_of_run(open_: Tensor, confidence: Tensor) -> Tensor:
        """The highest confidence in the run of open positions that a position belongs to."""
        before = torch.nn.functional.pad(open_, (1, 0))[:, :-1]
        run = (open_ & ~before).cumsum(-1)
        highest = confidence.new_full((len(run), run.shape[1] + 1), -torch.inf)
        highest.scatter_reduce_(1, run, confidence, "amax")
        return highest.gather(1, run)
