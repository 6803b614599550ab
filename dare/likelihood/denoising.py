"""The denoising loss of supervised fine-tuning, in d1's form.

    t ~ U(0, 1),  t' = (1 - eps) t + eps,  every response token masked with probability t'
    loss = sum over masked response tokens of CE / t'   /   number of response tokens

Source: d1 (arXiv 2504.12216), section 3.1, after LLaDA (arXiv 2502.09992), equation 3.  For one
sequence, loss times the number of response tokens has minus the exact any-order ELBO as its
mean (:func:`dare.likelihood.exact.exact_elbo`) up to eps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dare._lazy import lazy
from dare.diffusion.keys import Key

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy("torch")

EPS = 1e-3


def noise_level(t: Tensor, eps: float = EPS) -> Tensor:
    """t' = (1 - eps) t + eps: keeps the weight 1 / t' bounded."""
    return (1 - eps) * t + eps


def denoising_loss(log_probs: Tensor, masked: Tensor, level: Tensor, response: Tensor) -> Tensor:
    """The loss, a scalar; log_probs, masked, response (B, L), level (B,) = t'.

    Raises ``ValueError`` when there is no response token to divide by.
    """
    if not bool(response.any()):
        raise ValueError("the batch has no response token")
    weighted = -log_probs.where(masked & response, 0.0) / level[:, None]
    return weighted.sum() / response.sum()


def response_noise(
    keys: Sequence[Key], response: Tensor, eps: float = EPS
) -> tuple[Tensor, Tensor]:
    """Noise levels t' (B,) and masks (B, L); the draws do not see padding or the prompt."""
    levels = torch.zeros(len(keys))
    masks = torch.zeros(response.shape, dtype=torch.bool)
    for row, (key, trained) in enumerate(zip(keys, response.cpu(), strict=True)):
        generator = key.generator()
        levels[row] = noise_level(torch.rand(1, generator=generator), eps)
        masks[row, trained] = torch.rand(int(trained.sum()), generator=generator) < levels[row]
    return levels.to(response.device), masks.to(response.device)


def masked_sft_loss(
    model: Any,
    input_ids: Tensor,
    response: Tensor,
    keys: Sequence[Key],
    attention_mask: Tensor | None = None,
    eps: float = EPS,
) -> Tensor:
    """One keyed draw of the loss.  input_ids (B, L); response (B, L) bool, what is trained."""
    level, masked = response_noise(keys, response, eps)
    inputs = input_ids.masked_fill(masked, model.config.mask_token_id)
    values = model(inputs, attention_mask, positions=masked, targets=input_ids[masked])
    log_probs = values.new_zeros(masked.shape).masked_scatter(masked, values)
    return denoising_loss(log_probs, masked, level.to(values.dtype), response)
