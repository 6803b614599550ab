"""The only place that imports TRL.

Its trainer's private hooks change in every release, so none is used here: we take
``GRPOConfig`` as the base of our training arguments, so that field names are the ones users
know, and TRL's reward-function protocol (``f(prompts, completions, **columns)``).
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from trl import GRPOConfig

from dare.config import RunConfig

# Our field -> TRL's, where both mean the same thing.
SAME = (
    "max_steps",
    "num_generations",
    "num_iterations",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "learning_rate",
    "warmup_steps",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "max_grad_norm",
    "save_steps",
    "seed",
)
OLD_CHECKPOINTING = "gradient_checkpointing"


def checkpointing_field(config_class: type = GRPOConfig) -> str:
    """What the switch for recomputing activations is called; TRL turns it on by default.

    Newer releases of transformers renamed it and warn about the old name.
    """
    known = {field.name for field in fields(config_class)}
    return "activation_checkpointing" if "activation_checkpointing" in known else OLD_CHECKPOINTING


def training_arguments(config: RunConfig, output_dir: Path, cpu: bool) -> GRPOConfig:
    """TRL's ``GRPOConfig`` for a run.  The learning-rate schedule is set by our trainer."""
    training = config.training
    if training is None:
        raise ValueError("an evaluation-only run has no training arguments")
    values: dict[str, Any] = {name: getattr(training, name) for name in SAME}
    values[checkpointing_field()] = False
    return GRPOConfig(
        output_dir=str(output_dir),
        use_cpu=cpu,
        bf16=config.model.dtype == "bfloat16" and not cpu,
        temperature=config.rollout.temperature or 1.0,
        max_completion_length=config.rollout.gen_length,
        beta=float(config.algorithm_options.get("beta", 0.0)),
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        ignore_data_skip=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        **values,
    )
