"""What a selection rule sees and says.

A *round* is one denoising step of the rows that still have something to do in a block: A active
rows of a batch of B, a window of W columns.  A selector may remember things between the rounds
of one call; it indexes them by ``round.rows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from dare.sampling.candidates import Noise, SpecialTokens
from dare.sampling.config import SamplerConfig


@dataclass(frozen=True)
class Round:
    """One denoising step.

    index counts the rounds of the block; rows (A,) int64; numbers (A) the step numbers that key
    a row's noise.  masked (A, W) bool; ids (A, W) what stands there now; tokens (A, W)
    candidates where ``scored`` (A, W), else ids; confidence (A, W) float32, -inf where not
    scored; logits (N, V) of the scored positions in row-major order.
    """

    index: int
    rows: Tensor
    numbers: list[int]
    masked: Tensor
    ids: Tensor
    tokens: Tensor
    confidence: Tensor
    scored: Tensor
    logits: Tensor
    noise: Noise | None

    def spread(self, values: Tensor, fill: float) -> Tensor:
        """(N,) values of the scored positions as (A, W), ``fill`` elsewhere."""
        out = values.new_full(self.scored.shape, fill)
        return out.masked_scatter(self.scored, values)

    def uniform(self) -> Tensor:
        """One uniform number per window position, (A, W) float32, keyed for choices."""
        return (-self._exponential()).exp()

    def gumbel(self) -> Tensor:
        """Standard Gumbel noise (A, W) float32: the k largest of x + gumbel are k draws from
        softmax(x) without replacement."""
        return -self._exponential().clamp_min(torch.finfo(torch.float32).tiny).log()

    def _exponential(self) -> Tensor:
        if self.noise is None:
            raise ValueError("this rule is random: it needs one key per row")
        width = self.masked.shape[1]
        counts = [1] * len(self.numbers)
        return self.noise.exponential(self.rows.tolist(), self.numbers, counts, width, kind=2)


@dataclass(frozen=True)
class Decision:
    """commit (A, W): write the candidate there.  remask (A, W) or None: mask again."""

    commit: Tensor
    remask: Tensor | None = None


class Selector:
    """A selection rule at work.  One object serves one call of ``generate``.

    scope: the window is the ``block``; or the ``region`` from the first generated column to the
    block's end; or ``ahead``, the block and the next one.

    allow_mask: whether the mask token may be committed, as fixed schedules of the original codes
    let it; rules that loop until no mask is left do not, so that they end.
    """

    scope: Literal["block", "region", "ahead"] = "block"
    allow_mask: ClassVar[bool] = False

    def __init__(self, config: SamplerConfig, special: SpecialTokens, batch: int) -> None:
        self.config, self.special, self.batch = config, special, batch
        self.rule: Any = config.selection

    def block_lengths(self) -> list[int]:
        """Sizes of the completion's blocks, for blocks counted from the completion."""
        return [self.config.block_length] * self.config.num_blocks

    @property
    def max_rounds(self) -> int:
        """No row takes more rounds in one block."""
        rounds: int = self.rule.rounds(self.config.steps_per_block, self.config.block_length)
        return rounds

    def begin(self, block: int, masked: Tensor) -> None:
        """A new block, whose window is masked (B, W) as it stands."""

    def goes_on(self, masked: Tensor, index: int) -> Tensor:
        """Rows (B,) bool that take round ``index`` of the block."""
        return masked.any(-1) if index < self.max_rounds else torch.zeros_like(masked[:, 0])

    def is_idle(self, masked: Tensor, index: int) -> bool:
        """Whether round ``index`` commits nothing in any row, so that it needs no forward."""
        return False

    def scored(self, masked: Tensor, region: Tensor) -> Tensor:
        """Positions (A, W) that need logits, out of the generated ``region`` (A, W)."""
        return masked

    def adjust(self, logits: Tensor, scored: Tensor, rows: Tensor, index: int) -> Tensor:
        """Logits (N, V) as the candidates and scores shall see them."""
        return logits

    def choose(self, round: Round) -> Decision:
        raise NotImplementedError


def top_positions(confidence: Tensor, count: int | Tensor) -> Tensor:
    """The ``count`` (int, or one per row (A,)) most confident positions of each row, (A, W)
    bool; ties go to the left.  Positions at -inf are never taken."""
    order = confidence.argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order)
    rank.scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    limit = count[:, None] if isinstance(count, Tensor) else count
    return (rank < limit) & (confidence > -torch.inf)


def even_shares(count: int, steps: int) -> list[int]:
    """How many of ``count`` masks each of ``steps`` commits: equal shares, the surplus first.

    LLaDA's ``get_num_transfer_tokens``: 10 masks in 4 steps give [3, 3, 2, 2].
    """
    share, surplus = divmod(count, steps)
    return [share + 1] * surplus + [share] * (steps - surplus)
