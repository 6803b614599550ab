"""Fixed schedules: the number of positions per step is known beforehand."""

from __future__ import annotations

import torch
from torch import Tensor

from dare.sampling.rules import EosRejection
from dare.sampling.selection.base import Decision, Round, Selector, even_shares, top_positions


class _FixedSelector(Selector):
    """``quotas`` positions per step of the present block; the mask token may be committed."""

    allow_mask = True
    quotas: list[int]

    def goes_on(self, masked: Tensor, index: int) -> Tensor:
        return masked.any(-1) if index < len(self.quotas) else torch.zeros_like(masked[:, 0])

    def is_idle(self, masked: Tensor, index: int) -> bool:
        return self.quotas[index] == 0

    def choose(self, round: Round) -> Decision:
        return Decision(top_positions(round.confidence, self.quotas[round.index]))

    def eos_rejected(self, round: Round, progress: float) -> Tensor:
        """The confidence (A, W), lower where the candidate is EOS."""
        rejection: EosRejection | None = self.rule.eos_rejection
        if rejection is None or self.special.eos is None:
            return round.confidence
        lower = round.confidence * rejection.factor(progress)
        return lower.where(round.scored & (round.tokens == self.special.eos), round.confidence)


class ScheduleSelector(_FixedSelector):
    """LLaDA: the block's length in equal shares over its steps, the surplus first.

    With EOSER the progress is the step *inside the block* over the *total* steps, as in the
    authors' release, which they use with a single block.
    """

    def begin(self, block: int, masked: Tensor) -> None:
        self.quotas = even_shares(self.config.block_length, self.config.steps_per_block)

    def choose(self, round: Round) -> Decision:
        last = self.config.steps - 1
        confidence = self.eos_rejected(round, round.index / last if last else 1.0)
        return Decision(top_positions(confidence, self.quotas[round.index]))


class AscendingSelector(_FixedSelector):
    """ASS: 1, 2, 4, ... positions, in blocks that follow from the schedule."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.schedule: list[list[int]] = self.rule.quotas(self.config.gen_length)

    def block_lengths(self) -> list[int]:
        return [sum(quotas) for quotas in self.schedule]

    def begin(self, block: int, masked: Tensor) -> None:
        self.quotas = self.schedule[block]
        self.taken = sum(len(quotas) for quotas in self.schedule[:block])

    def choose(self, round: Round) -> Decision:
        step, steps = self.taken + round.index, self.config.steps
        progress = (2 ** (step + 1) - 1) / 2**steps if steps > 1 else 1.0
        confidence = self.eos_rejected(round, progress)
        return Decision(top_positions(confidence, self.quotas[round.index]))


class MaskGitSelector(_FixedSelector):
    """MaskGIT's schedules."""

    def begin(self, block: int, masked: Tensor) -> None:
        self.quotas = self.rule.quotas(self.config.steps_per_block, self.config.block_length)


class RunningConfidenceSelector(MaskGitSelector):
    """RCR: fill every mask, then mask what was committed with the lowest confidence.

    The memory (B, gen_length) lives through all blocks and survives being masked again; a
    position that was never committed is never chosen.
    """

    scope = "region"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.memory = torch.empty(0)

    def begin(self, block: int, masked: Tensor) -> None:
        super().begin(block, masked)
        if block == 0:
            shape = (self.batch, self.config.gen_length)
            self.memory = torch.full(shape, torch.inf, device=masked.device)

    def is_idle(self, masked: Tensor, index: int) -> bool:
        return False

    def choose(self, round: Round) -> Decision:
        left = self.quotas[round.index :]
        commit = top_positions(round.confidence, sum(left))
        width = round.masked.shape[1]
        memory = round.confidence.where(commit, self.memory[round.rows, :width])
        self.memory[round.rows, :width] = memory
        return Decision(commit, top_positions(-memory, sum(left[1:])))
