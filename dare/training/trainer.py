"""The trainer core: transformers' loop around three visible phases.

    rollout -> reward -> update (num_iterations times) -> next rollout

An algorithm sees whole groups and returns a loss that is a *sum* over samples with weights
fixed over the whole rollout batch, so loss and gradient do not depend on how the batch is cut
into micro-batches.  Checkpoints fall on rollout boundaries: a run killed anywhere continues
from the last one and draws exactly what the uninterrupted run would have drawn, because no
state of any random generator matters.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerCallback

from dare._compat.trl import training_arguments
from dare.algorithms.base import Algorithm, Prepared
from dare.config import RunConfig, TrainingConfig
from dare.training.ranks import any_process, rescaled, summed
from dare.training.rollout import RolloutFacts, RolloutSource

Event = dict[str, Any]
COMPLETE = "complete.json"


def lr_factor(training: TrainingConfig) -> Callable[[int], float]:
    """Learning rate over its peak, as a function of the update index."""
    warmup, total, floor = training.warmup_steps, training.max_steps, training.min_lr_ratio

    def factor(update: int) -> float:
        if update < warmup:
            return (update + 1) / warmup
        if training.lr_scheduler_type in ("constant", "constant_with_warmup"):
            return 1.0
        progress = (update - warmup) / max(1, total - warmup)
        if training.lr_scheduler_type == "cosine":
            return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))
        return 1 - (1 - floor) * progress

    return factor


@dataclass
class _Phase:
    """The rollout batch in use and what its updates have reported so far."""

    step: int
    prepared: Prepared
    facts: RolloutFacts
    sums: dict[str, float]
    started: float
    began: float


class DiffusionTrainer(Trainer):
    """Runs one algorithm on one task.  ``on_event`` gets one dict per rollout step."""

    def __init__(
        self,
        model: nn.Module,
        config: RunConfig,
        algorithm: Algorithm,
        source: RolloutSource,
        output_dir: Path,
        on_event: Callable[[Event], None],
        reference: Any | None = None,
        cpu: bool = True,
    ) -> None:
        assert config.training is not None
        self.run_config, self.training = config, config.training
        self.algorithm, self.source, self.reference = algorithm, source, reference
        self.on_event = on_event
        self.stop_requested = False
        self._phase: _Phase | None = None
        self._micro = 0
        super().__init__(
            model=model,
            args=training_arguments(config, output_dir, cpu),
            callbacks=[_Boundaries(self)],
        )
        self.remove_callback(PrinterCallback)  # stdout belongs to the command
        # The algorithm's loss is already the full sum; see compute_loss.
        self.model_accepts_loss_kwargs = False

    # What transformers asks for -------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[dict[str, int]]:
        """One entry per micro-batch; the data itself comes from the rollouts."""
        count = self.training.max_steps * self.training.gradient_accumulation_steps
        slots = [{"slot": index} for index in range(count)]
        return DataLoader(slots, batch_size=None)  # type: ignore[arg-type]

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, lr_factor(self.training))
        return self.lr_scheduler

    def floating_point_ops(self, inputs: Any) -> int:
        return 0

    def _save_rng_state(self, output_dir: str) -> None:
        """Nothing to save: no global generator decides a number, and only one process writes."""

    def _prepare_inputs(self, inputs: Any) -> Prepared:
        """The next micro-batch, after a new rollout where one is due."""
        update = self.state.global_step
        step = update // self.training.num_iterations
        if self._phase is None or self._phase.step != step:
            self._phase = self._roll_out(step)
        size = self.training.per_device_train_batch_size
        start = self._micro * size
        self._micro = (self._micro + 1) % self.training.gradient_accumulation_steps
        return self._phase.prepared.select(slice(start, start + size))

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, **_: Any
    ) -> Tensor:
        """The slice's share of the batch loss.

        transformers divides by the number of accumulation steps; the algorithm has already
        normalised over the whole batch, so that division is undone here.
        """
        assert self._phase is not None
        update = self.state.global_step
        iteration = update % self.training.num_iterations
        with self._dropout_key(update):
            output = self.algorithm.loss(model, inputs, iteration)
        for name, value in output.metrics.items():
            self._phase.sums[name] += float(value)
        self._phase.sums["loss"] += float(output.loss.detach())
        return output.loss * self.current_gradient_accumulation_steps

    # The phases -----------------------------------------------------------------------------

    def _roll_out(self, step: int) -> _Phase:
        started, began = time.process_time(), time.monotonic()
        model = self.accelerator.unwrap_model(self.model)
        training = model.training
        model.eval()
        with torch.no_grad():
            batch, facts = self.source.collect(model, step)
        # Old log-probabilities keep what the updates will have: dropout, where there is any.
        model.train(training)
        with torch.no_grad(), self._dropout_key(self.state.global_step):
            prepared = self.algorithm.prepare(
                model,
                batch,
                self.source.run_key,
                self.training.num_iterations,
                reference=self.reference,
                micro_batch=self.training.per_device_train_batch_size,
            )
            prepared = rescaled(prepared, self.algorithm.config.loss_normaliser)
        return _Phase(step, prepared, facts, defaultdict(float), started, began)

    def _dropout_key(self, update: int) -> Any:
        """Dropout draws from a stream of its own; nothing global is left changed."""
        scope = torch.random.fork_rng(devices=[])
        torch_seed = self.source.run_key.at("dropout", update, self._micro).seed63()
        return _Seeded(scope, torch_seed)

    def report_phase(self) -> None:
        """Emit the event of the rollout batch just used up, all processes taken together."""
        assert self._phase is not None
        phase, iterations = self._phase, self.training.num_iterations
        facts = phase.facts.of_all_processes()
        seconds = time.process_time() - phase.started
        forwards, seconds, loss, *sums = summed(
            [phase.prepared.learner_forwards, seconds, phase.sums.pop("loss"), *phase.sums.values()]
        )
        event: Event = {
            "step": phase.step,
            "update": self.state.global_step,
            "reward": facts.reward_mean,
            "accuracy_sampled": facts.accuracy,
            "missing_rewards": facts.missing_rewards,
            "completions": facts.completions,
            "tokens": facts.tokens,
            "nfe": facts.nfe,
            "learner_forwards": int(forwards),
            "learning_rate": self._get_learning_rate(),
            "cpu_seconds": seconds,
            "wall_seconds": time.monotonic() - phase.began,
        }
        samples = facts.completions * iterations
        event.update({name: s / samples for name, s in zip(phase.sums, sums, strict=True)})
        # Processes average their gradients, so the batch loss is the mean of theirs.
        event["loss"] = loss / (iterations * self.args.world_size)
        self.on_event(event)

    def save_boundary(self) -> None:
        """A complete checkpoint, marked as such only when every file is on disk."""
        self._save_checkpoint(self.model, trial=None)
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self.is_world_process_zero():
            marker = folder / (COMPLETE + ".tmp")
            marker.write_text(json.dumps({"update": self.state.global_step}))
            os.replace(marker, folder / COMPLETE)
            for older in complete_checkpoints(Path(self.args.output_dir))[:-1]:
                shutil.rmtree(older)


class _Seeded:
    """Seed torch inside a forked scope and put the old state back afterwards."""

    def __init__(self, scope: Any, seed: int) -> None:
        self.scope, self.seed = scope, seed

    def __enter__(self) -> None:
        self.scope.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *problem: Any) -> None:
        self.scope.__exit__(*problem)


class _Boundaries(TrainerCallback):
    """Events, checkpoints and requested stops, all at rollout boundaries."""

    def __init__(self, trainer: DiffusionTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        trainer, training = self.trainer, self.trainer.training
        if state.global_step % training.num_iterations:
            return control
        trainer.report_phase()
        last = state.global_step >= training.max_steps
        stop = any_process(trainer.stop_requested)
        if stop and not last:
            control.should_training_stop = True
        due = state.global_step % (training.save_steps * training.num_iterations) == 0
        if due or last or stop:
            trainer.save_boundary()
        return control


def complete_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints that were written to the end, oldest first; others are ignored."""
    found = [path.parent for path in folder.glob(f"checkpoint-*/{COMPLETE}")]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint, if any."""
    found = complete_checkpoints(folder)
    return found[-1] if found else None
