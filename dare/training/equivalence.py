"""One short training trajectory in variants that must not matter.

    plain        the reference
    accumulated  the same batch in four micro-batches
    reordered    the groups of every rollout batch in another order
    padded       extra padding to the left of every prompt
    resumed      stopped half way, started again from the checkpoint

Every variant must give the same losses and final weights up to float32 rounding (resuming:
exactly).  Returned as numbers; ``dare check`` and the tests judge them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dare.algorithms.base import RolloutBatch
from dare.config import RunConfig
from dare.training.ranks import Ranks
from dare.training.rollout import RolloutFacts, RolloutSource
from dare.training.session import Session
from dare.training.trainer import DiffusionTrainer, latest_checkpoint

Transform = Callable[[RolloutBatch], RolloutBatch]
VARIANTS = ("plain", "accumulated", "reordered", "padded", "resumed")


@dataclass(frozen=True)
class Trajectory:
    """losses: one per rollout step; weights: all parameters, flattened."""

    losses: list[float]
    weights: Tensor

    def distance(self, other: Trajectory) -> tuple[float, float]:
        """Largest difference of a loss, and of a weight relative to the largest weight."""
        loss = max(abs(a - b) for a, b in zip(self.losses, other.losses, strict=True))
        scale = float(self.weights.abs().max())
        return loss, float((self.weights - other.weights).abs().max()) / scale


@dataclass(frozen=True)
class _Transformed:
    """A rollout source whose batches are changed on the way to the algorithm."""

    source: RolloutSource
    transform: Transform

    @property
    def run_key(self) -> Any:
        return self.source.run_key

    def collect(self, model: nn.Module, step: int) -> tuple[RolloutBatch, RolloutFacts]:
        batch, facts = self.source.collect(model, step)
        return self.transform(batch), facts


def reorder_groups(batch: RolloutBatch) -> RolloutBatch:
    """The same groups, last first."""
    rows = torch.arange(len(batch.rewards)).view(-1, batch.group_size).flip(0).reshape(-1)
    return batch.select(rows)


def pad_prompts(batch: RolloutBatch, extra: int = 5) -> RolloutBatch:
    """Every prompt with ``extra`` more padding tokens on its left."""
    rows = len(batch.rewards)
    filler = batch.prompt_ids.new_full((rows, extra), int(batch.prompt_ids[0, 0]))
    hidden = batch.prompt_mask.new_zeros((rows, extra))
    return replace(
        batch,
        prompt_ids=torch.cat((filler, batch.prompt_ids), 1),
        prompt_mask=torch.cat((hidden, batch.prompt_mask), 1),
    )


def trajectory(config: RunConfig, variant: str, folder: Path) -> Trajectory:
    """Train ``config`` in ``folder`` under one of ``VARIANTS``."""
    if variant == "resumed":
        _partly(config, folder)
        return _train(config, folder, resume=True)
    if variant == "accumulated":
        return _train(_split(config, 4), folder)
    transforms = {"reordered": reorder_groups, "padded": pad_prompts}
    return _train(config, folder, transform=transforms.get(variant))


def _split(config: RunConfig, parts: int) -> RunConfig:
    training = config.training
    assert training is not None
    size = training.per_device_train_batch_size // parts
    update = {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": training.gradient_accumulation_steps * parts,
    }
    return config.model_copy(update={"training": training.model_copy(update=update)})


def _train(
    config: RunConfig, folder: Path, resume: bool = False, transform: Transform | None = None
) -> Trajectory:
    losses: dict[int, float] = {}
    trainer = _trainer(config, folder, losses)
    if transform is not None:
        trainer.source = _Transformed(trainer.source, transform)  # type: ignore[assignment]
    last = latest_checkpoint(folder) if resume else None
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    return Trajectory(_in_order(losses), _weights(trainer.model))


def _partly(config: RunConfig, folder: Path) -> None:
    """Train half way, with a stop at a rollout boundary as Ctrl-C would make it."""
    training = config.training
    assert training is not None
    half = training.max_steps // training.num_iterations // 2
    losses: dict[int, float] = {}
    trainer = _trainer(config, folder, losses, stop_after=half)
    trainer.train()


def _trainer(
    config: RunConfig, folder: Path, losses: dict[int, float], stop_after: int | None = None
) -> DiffusionTrainer:
    session = Session.open(config, folder, Ranks())

    def on_event(event: dict[str, Any]) -> None:
        losses[event["step"]] = event["loss"]
        if stop_after is not None and event["step"] + 1 >= stop_after:
            trainer.stop_requested = True

    trainer = session.trainer(on_event)
    return trainer


def _in_order(losses: dict[int, float]) -> list[float]:
    return [losses[step] for step in sorted(losses)]


def _weights(model: nn.Module) -> Tensor:
    parts: Iterable[Tensor] = (p.detach().float().reshape(-1) for p in model.parameters())
    return torch.cat(list(parts))
