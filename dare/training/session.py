"""What a worker holds while it runs one unit: model, tokenizer, task, algorithm.

Turns a config into objects, and what they did into a record.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

from dare import algorithms, tasks
from dare.algorithms.base import Algorithm
from dare.config import RunConfig
from dare.diffusion.keys import RunKey
from dare.evaluation.engine import evaluate
from dare.evaluation.metrics import task_metrics
from dare.evaluation.outcomes import content_sha
from dare.models import registry
from dare.models.loading import checkpoint_folder, load_model, load_tokenizer
from dare.models.special import SpecialTokens
from dare.models.tokens import special_ids
from dare.models.weights import file_sha256, weights_sha256
from dare.results.record import Budget, Metric, Outcome, Record
from dare.results.rundir import code_identity, environment, read_events, write_run
from dare.tasks import protocols
from dare.tasks.base import Item, Task
from dare.tasks.protocols import EvalProtocol
from dare.training.data import TrainingStream
from dare.training.ranks import Ranks, summed
from dare.training.rollout import RolloutSource
from dare.training.trainer import DiffusionTrainer


@dataclass
class Session:
    """One unit, opened."""

    config: RunConfig
    folder: Path
    model: Any
    tokenizer: PreTrainedTokenizerFast
    special: SpecialTokens
    task: Task
    items: list[Item]
    device: str
    ranks: Ranks

    @classmethod
    def open(cls, config: RunConfig, folder: Path, ranks: Ranks) -> Session:
        """Load everything the run needs; raises the loaders' own errors."""
        device = f"cuda:{ranks.local}" if torch.cuda.is_available() else "cpu"
        model = load_model(config.model.name, config.model.dtype, device, config.model.load_in_4bit)
        if config.model.lora is not None:
            model = _with_lora(model, config)
        task = tasks.get(config.task.name)
        tokenizer = load_tokenizer(config.model.name)
        family = registry.describe(config.model.name).family
        return cls(
            config=config,
            folder=folder,
            model=model,
            tokenizer=tokenizer,
            special=special_ids(model.config, tokenizer, family, config.model.name),
            task=task,
            items=task.load(config.task.eval_split, config.task.eval_limit),
            device=device,
            ranks=ranks,
        )

    @property
    def run_key(self) -> RunKey:
        training = self.config.training
        return RunKey(training.seed if training is not None else 0)

    def trainer(self, on_event: Callable[[dict[str, Any]], None]) -> DiffusionTrainer:
        """The trainer core around this run's algorithm and task."""
        algorithm = algorithms.make(self.config.algorithm, self.config.algorithm_options)
        source = RolloutSource(
            config=self.config,
            task=self.task,
            tokenizer=self.tokenizer,
            stream=TrainingStream(self.task, self.config.task, self.run_key),
            run_key=self.run_key,
            special=self.special,
            eos_policy=algorithm.config.eos_policy,
            rank=self.ranks.rank,
            world_size=self.ranks.size,
        )
        return DiffusionTrainer(
            model=self.model,
            config=self.config,
            algorithm=algorithm,
            source=source,
            output_dir=self.folder,
            on_event=on_event,
            reference=self._reference(algorithm),
            cpu=not self.device.startswith("cuda"),
        )

    def _reference(self, algorithm: Algorithm) -> Any | None:
        """The frozen starting point, only when the objective needs it."""
        if not algorithm.needs_reference:
            return None
        if self.config.model.lora is not None:
            return AdaptersOff(self.model)
        reference = load_model(self.config.model.name, self.config.model.dtype, self.device)
        return reference.requires_grad_(False)

    def save_model(self, folder: Path) -> None:
        """The trained model with its tokenizer, as a checkpoint that ``--model`` accepts.

        With LoRA only the adapters are written, as PEFT does.
        """
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def evaluate(
        self, progress: Callable[[int, int], None]
    ) -> tuple[list[Outcome], list[Metric], tuple[float, float]]:
        """Outcomes and metrics on the evaluation split, and the CPU and wall seconds they took."""
        started, began = time.process_time(), time.monotonic()
        self.model.eval()
        mine = range(self.ranks.rank, len(self.items), self.ranks.size)
        part = evaluate(
            self.model, self.tokenizer, self.task, self.items, self.config, self.run_key,
            rows=mine, progress=progress, special=self.special,
        )  # fmt: skip
        outcomes = self.ranks.interleave(part)
        metrics = task_metrics(self.task, self.items, outcomes, self.config.task.protocol)
        seconds = summed([time.process_time() - started])[0]
        return outcomes, metrics, (seconds, time.monotonic() - began)

    def budget(
        self, outcomes: Sequence[Outcome], evaluation: tuple[float, float], memory: int
    ) -> Budget:
        """What the run spent, summed over every session that contributed to it.

        ``evaluation``: CPU and wall seconds.  Loading is in neither; work that a killed session
        did after its last checkpoint was done again and counts once.
        """
        events = read_events(self.folder) if self.config.training is not None else []

        def total(name: str) -> int:
            return sum(int(event[name]) for event in events)

        training = self.config.training
        return Budget(
            updates=training.max_steps if training is not None else 0,
            prompts=total("completions") // training.num_generations if training else 0,
            completions=total("completions"),
            generated_tokens=total("tokens"),
            nfe_train=total("nfe"),
            nfe_eval=sum(outcome.nfe for outcome in outcomes),
            learner_forwards=total("learner_forwards"),
            cpu_seconds=round(sum(e["cpu_seconds"] for e in events) + evaluation[0], 3),
            wall_seconds=round(sum(e["wall_seconds"] for e in events) + evaluation[1], 3),
            peak_memory_bytes=memory,
        )

    def write_record(
        self,
        outcomes: Sequence[Outcome],
        metrics: list[Metric],
        budget: Budget,
        origins: dict[str, str],
        key: str,
    ) -> Record:
        """Seal the run."""
        config = self.config
        record = Record(
            kind="train" if config.training is not None else "eval",
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            host={"node": platform.node()},
            status="complete",
            code=code_identity() | {"run_key": key},
            config=config.model_dump(mode="json"),
            config_hash=config.digest(),
            origins=origins,
            paper={"id": config.paper},
            model=self._model_block(),
            data=self._data_block(),
            prompt=self._protocol.describe()
            | {"rendered_sha256": content_sha([outcome.prompt_sha for outcome in outcomes])},
            decode=config.evaluation.model_dump(mode="json"),
            scoring={
                "grader": self._protocol.grader,
                "extraction": self._protocol.extraction,
                "version": self._protocol.version,
            },
            seeds={"run": self.run_key.seed} if config.training is not None else {},
            budget=budget,
            selection={"rule": "final step", "candidates": 1},
            env=environment(),
            metrics=metrics,
            outcomes={},
        )
        return write_run(self.folder, record, outcomes)

    @property
    def _protocol(self) -> EvalProtocol:
        return protocols.get(self.config.task.name, self.config.task.protocol)

    def _model_block(self) -> dict[str, Any]:
        folder = checkpoint_folder(self.config.model.name)
        tokenizer = folder / "tokenizer.json"
        return {
            "name": self.config.model.name,
            "family": registry.describe(self.config.model.name).family,
            "revision": registry.snapshot_revision(folder),
            "weights_sha256": weights_sha256(folder),
            "tokenizer_sha256": file_sha256(tokenizer) if tokenizer.exists() else None,
            "dtype": self.config.model.dtype,
            "mask_token_id": self.special.mask,
            "eos_token_id": self.special.eos,
        }

    def _data_block(self) -> dict[str, Any]:
        task = self.config.task
        return {
            "task": task.name,
            "split": task.eval_split,
            "n": len(self.items),
            "item_ids_sha256": content_sha([item.id for item in self.items]),
        }


@dataclass(frozen=True)
class AdaptersOff:
    """The policy with its LoRA adapters disabled: the reference model without a second copy."""

    model: Any

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        with self.model.disable_adapter():
            return self.model(*inputs, **named)

    @property
    def config(self) -> Any:
        return self.model.config


def _with_lora(model: nn.Module, config: RunConfig) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = config.model.lora
    assert lora is not None
    return get_peft_model(model, LoraConfig(**lora.model_dump()))
