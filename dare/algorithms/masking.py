"""What the masked policy-gradient objectives share: advantages as configured, the mask draws of
a rollout batch, and the passes without gradient that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dare._lazy import lazy
from dare.algorithms.base import AlgorithmConfig, Prepared, RolloutBatch
from dare.algorithms.parts import (
    Scale,
    constant_groups,
    group_advantages,
    isolated_samples,
    token_weights,
)
from dare.diffusion.keys import RunKey
from dare.diffusion.masks import MaskingRule, draw_masks
from dare.likelihood.rows import block_length_of, distinct_inputs

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy("torch")


def configured_advantages(config: AlgorithmConfig, rewards: Tensor, group_size: int) -> Tensor:
    """Rewards minus the group mean, (B,), scaled as ``config`` says."""
    scale: Scale = "sample" if config.scale_rewards else "none"
    return group_advantages(rewards, group_size, scale=scale, eps=config.std_eps)


def draw_index(config: AlgorithmConfig, sample_id: int, iteration: int, num_iterations: int) -> int:
    """Which of the num_iterations draws of a sample an iteration uses.

    ``as_coded`` follows d1's counter, which is read after its increment and runs over
    micro-batches: micro-batch g of the GA of an update uses (g + 1 + GA * iteration) modulo
    num_iterations, so with GA = 2 and an even number half of the draws are used, each twice.
    """
    if config.mask_order == "sequential":
        return iteration
    accumulation = config.coded_accumulation
    g = sample_id // config.coded_micro_batch % accumulation
    return (g + 1 + accumulation * iteration) % num_iterations


def batch_masks(
    config: AlgorithmConfig,
    rule: MaskingRule,
    rollout: RolloutBatch,
    run_key: RunKey,
    num_iterations: int,
) -> Tensor:
    """Masks of all iterations, (J, B, K, P + C) bool, on the rollout's device.

    A draw is keyed by (seed, "mask", rollout step, sample, draw index); in a group that shares
    its masks every member uses the key of the first.
    """
    group, canvas = rollout.group_size, rollout.completion_ids.shape[1]
    samples = rollout.sample_ids.tolist()
    masks = []
    for iteration in range(num_iterations):
        keys = [
            run_key.at(
                "mask",
                rollout.step,
                sample // group * group if config.share_mask_in_group else sample,
                draw_index(config, sample, iteration, num_iterations),
            )
            for sample in samples
        ]
        masks.append(draw_masks(keys, rollout.prompt_mask, rollout.counted, canvas, rule))
    return torch.stack(masks).to(rollout.completion_ids.device)


def prepare_masked(
    config: AlgorithmConfig,
    advantages: Tensor,
    masks: Tensor,
    rollout: RolloutBatch,
    model: Any,
) -> Prepared:
    """The parts of ``prepare`` that every masked objective shares."""
    weights = token_weights(
        rollout.completion_mask, rollout.rewards, rollout.group_size, config.loss_normaliser
    )
    return Prepared(
        rollout=rollout,
        advantages=advantages,
        weights=weights,
        masks=masks,
        mask_token_id=model.config.mask_token_id,
        block_length=block_length_of(model),
        isolated=isolated_samples(rollout.rewards),
        constant=constant_groups(rollout.rewards, rollout.group_size),
    )


def frozen_log_probs(
    score: Callable[[Any, Prepared, int], Tensor],
    model: Any,
    prepared: Prepared,
    iterations: Sequence[int],
    micro_batch: int | None,
) -> tuple[Tensor, list[int]]:
    """``score`` (B, C) of the given iterations without gradient: (J, B, C), zero elsewhere.

    Iterations under the same masks are computed once; the second value lists the ones that were.
    """
    shape = (prepared.num_iterations, *prepared.weights.shape)
    results: dict[int, Tensor] = {}
    computed: list[int] = []
    with torch.no_grad():
        for iteration in iterations:
            masks = prepared.masks[iteration]
            twin = next((j for j in computed if torch.equal(prepared.masks[j], masks)), None)
            if twin is None:
                parts = [score(model, micro, iteration) for micro in prepared.slices(micro_batch)]
                results[iteration] = torch.cat(parts)
                computed.append(iteration)
            else:
                results[iteration] = results[twin]
    empty = next(iter(results.values())).new_zeros(shape)
    for iteration, values in results.items():
        empty[iteration] = values
    return empty, computed


def forwards(prepared: Prepared, iterations: Sequence[int]) -> int:
    """Sequences that go through the model in one pass over the batch for each iteration."""
    canvas, total = prepared.rollout.canvas(), 0
    for iteration in iterations:
        masks = prepared.masks[iteration]
        runs = distinct_inputs(canvas, masks, prepared.mask_token_id, prepared.block_length)
        total += int(runs[-1]) + 1 if len(runs) else 0
    return total


def sample_metrics(micro: Prepared) -> dict[str, Tensor]:
    """What every objective reports: sums over the slice's samples."""
    return {
        "isolated": micro.isolated.sum().float(),
        "constant_reward": (micro.constant & ~micro.isolated).sum().float(),
        "completion_tokens": micro.rollout.counted.sum().float(),
    }
