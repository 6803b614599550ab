"""Which tokens the forward process hides: keyed draws, as bool tensors, True = masked.

A draw depends on its key, on the prompt's own length and on how many completion tokens count;
never on padding, on the batch it sits in, or on another draw.

    rule = MaskingRule("block_random", mc_samples=2, block_length=32, p_mask_prompt=0.15)
    masks = draw_masks(keys, prompt_mask, counted, canvas=256, rule=rule)   # (B, K, P + C)

B samples, K draws a sample, P prompt columns (left padded), C completion columns (the canvas),
n of which count.  Sources: d1 (arXiv 2504.12216, section 3.2) for the full mask with a lightly
masked prompt, SPG (arXiv 2510.09541, section 4 and its code) for the other kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dare._lazy import lazy
from dare.diffusion.keys import Key
from dare.errors import UsageProblem

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy("torch")

MaskingKind = Literal["full", "random", "block_all", "block_random"]


@dataclass(frozen=True)
class MaskingRule:
    """How a completion and its prompt are masked, ``mc_samples`` times.

    full          every completion token
    random        k tokens of the n that count, k uniform in 1..n
    block_random  one block b: k of its tokens, k uniform in 1..len(b); earlier blocks are
                  clean, later ones masked
    block_all     one block b and everything after it
    Completion tokens that do not count are always masked.  Prompt tokens, and the clean blocks
    before b, are masked besides with probability ``p_mask_prompt``.
    """

    kind: MaskingKind = "full"
    mc_samples: int = 1
    block_length: int = 32
    p_mask_prompt: float = 0.15

    def check(self, canvas: int) -> None:
        """Raise ``UsageProblem`` when the rule cannot mask a completion of ``canvas`` tokens."""
        if self.kind == "full" and self.mc_samples != 1:
            raise UsageProblem(
                f"masking 'full' with mc_samples {self.mc_samples}",
                "every draw would hide the same completion tokens",
                "set mc_samples to 1, or choose masking 'random' or 'block_random'",
            )
        if not self.kind.startswith("block_"):
            return
        if canvas % self.block_length:
            raise UsageProblem(
                f"a completion of {canvas} tokens is not whole blocks of {self.block_length}",
                f"masking '{self.kind}' works block by block",
                "choose a block_length that divides the completion length",
            )
        if self.mc_samples > canvas // self.block_length:
            raise UsageProblem(
                f"mc_samples {self.mc_samples} with {canvas // self.block_length} block(s)",
                "each draw takes another block of the completion",
                "lower mc_samples or block_length, or choose masking 'random'",
            )


@dataclass(frozen=True)
class CompletionDraws:
    """The random numbers behind completion masks; no masking decision is taken yet.

    order (B, N) a permutation of the N blocks; level (B, K) in [0, 1) decides how many tokens;
    rank (B, K, C) decides which, smallest first; light (B, K, C) bool, the light mask.
    """

    order: Tensor
    level: Tensor
    rank: Tensor
    light: Tensor


def bernoulli_mask(key: Key, length: int, p: float) -> Tensor:
    """Each of ``length`` tokens masked with probability ``p``: (length,) bool."""
    return torch.rand(length, generator=key.generator()) < p


def k_uniform_mask(key: Key, length: int) -> Tensor:
    """k of ``length`` tokens, k uniform in 1..length, every k-subset equally likely: (length,)."""
    generator = key.generator()
    level = torch.rand(1, 1, generator=generator, dtype=torch.float64)
    rank = torch.rand(1, 1, length, generator=generator)
    return k_smallest(rank, torch.ones_like(rank, dtype=torch.bool), level)[0, 0]


def k_smallest(rank: Tensor, eligible: Tensor, level: Tensor) -> Tensor:
    """The k eligible positions of smallest rank, k = 1 + floor(level * eligible count).

    rank and eligible (B, K, C), level (B, K) in [0, 1) -> (B, K, C) bool.
    """
    available = eligible.sum(-1)
    k = (1 + (level * available).floor().long()).minimum(available)
    place = rank.masked_fill(~eligible, float("inf")).argsort(-1).argsort(-1)
    return eligible & (place < k[..., None])


def draw_masks(
    keys: Sequence[Key], prompt_mask: Tensor, counted: Tensor, canvas: int, rule: MaskingRule
) -> Tensor:
    """Masks for a batch, (B, K, P + C) bool on the CPU.

    keys: one per sample; prompt_mask (B, P) True at prompt tokens; counted (B,) the number n of
    completion tokens that count.  Padding is never masked.  Raises ``UsageProblem`` when the
    rule does not fit ``canvas``.
    """
    rule.check(canvas)
    prompt_mask, counted = prompt_mask.cpu(), counted.cpu()
    masks = torch.zeros(len(keys), rule.mc_samples, prompt_mask.shape[1] + canvas, dtype=torch.bool)
    draws: list[CompletionDraws] = []
    for row, (key, real) in enumerate(zip(keys, prompt_mask, strict=True)):
        generator = key.generator()
        length = int(real.sum())
        light = torch.rand(rule.mc_samples, length, generator=generator) < rule.p_mask_prompt
        masks[row, :, : len(real)][:, real] = light
        if rule.kind != "full":
            draws.append(_completion_draws(generator, canvas, rule))
    masks[:, :, prompt_mask.shape[1] :] = (
        completion_masks(_stack(draws), counted, rule) if draws else rule.kind == "full"
    )
    return masks


def _completion_draws(
    generator: torch.Generator, canvas: int, rule: MaskingRule
) -> CompletionDraws:
    """A fixed amount of randomness, whatever n is, so that a shared key means shared draws."""
    shape = (rule.mc_samples, canvas)
    return CompletionDraws(
        order=torch.randperm(max(1, canvas // rule.block_length), generator=generator),
        level=torch.rand(rule.mc_samples, generator=generator, dtype=torch.float64),
        rank=torch.rand(shape, generator=generator),
        light=torch.rand(shape, generator=generator) < rule.p_mask_prompt,
    )


def _stack(draws: list[CompletionDraws]) -> CompletionDraws:
    return CompletionDraws(
        order=torch.stack([draw.order for draw in draws]),
        level=torch.stack([draw.level for draw in draws]),
        rank=torch.stack([draw.rank for draw in draws]),
        light=torch.stack([draw.light for draw in draws]),
    )


def chosen_blocks(order: Tensor, counted: Tensor, mc_samples: int, block_length: int) -> Tensor:
    """The block of each draw, (B, K): the first K of a permutation of *all* blocks, modulo the
    number of blocks that hold counted tokens.

    As SPG's code does.  With completions shorter than the canvas one block can come twice, and
    low block indices are favoured.
    """
    blocks = (counted - 1).div(block_length, rounding_mode="floor") + 1
    return order[:, :mc_samples] % blocks[:, None]


def completion_masks(draws: CompletionDraws, counted: Tensor, rule: MaskingRule) -> Tensor:
    """The completion part of the masks, (B, K, C) bool; for every kind but ``full``."""
    position = torch.arange(draws.rank.shape[-1])
    counts = position < counted[:, None, None]
    if rule.kind == "random":
        return k_smallest(draws.rank, counts.expand_as(draws.rank), draws.level) | ~counts
    block = chosen_blocks(draws.order, counted, rule.mc_samples, rule.block_length)[..., None]
    here = position.div(rule.block_length, rounding_mode="floor")
    inside = (here == block) & counts
    hidden = inside if rule.kind == "block_all" else k_smallest(draws.rank, inside, draws.level)
    return hidden | (here > block) | ~counts | ((here < block) & draws.light)
