"""The configuration of one run, complete and typed, with the origin of every value.

A run is one seed of one algorithm on one task.  Field names are those of TRL's
``GRPOConfig`` wherever the thing is the same.  Imports no torch.

Reproductions write their values as ``src(3e-6, "Table 7")``; ``resolve`` lays a config
file, ``DARE_*`` variables and flags over them and says where each value came from.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dare.errors import UsageProblem
from dare.sampling.config import SamplerConfig


class Frozen(BaseModel):
    """Immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sourced(NamedTuple):
    """A value and where it was read."""

    value: Any
    source: str


def src(value: Any, source: str) -> Sourced:
    """``value``, read in ``source`` ("Table 7", "code: run_sudoku.sbatch", "ours: not stated")."""
    return Sourced(value, source)


class LoraConfig(Frozen):
    """Low-rank adaptation, in PEFT's names."""

    r: int = Field(gt=0)
    lora_alpha: int = Field(gt=0)
    lora_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    target_modules: tuple[str, ...]


class ModelConfig(Frozen):
    """Which checkpoint, in which precision, adapted how."""

    name: str
    dtype: Literal["float32", "bfloat16"] = "float32"
    lora: LoraConfig | None = None
    load_in_4bit: bool = False


class TaskConfig(Frozen):
    """Data and protocol for training and evaluation.  ``eval_limit`` None means all rows."""

    name: str
    protocol: str
    train_split: str = "train"
    eval_split: str = "test"
    eval_limit: int | None = Field(default=None, gt=0)


class TrainingConfig(Frozen):
    """The optimiser and the shape of a step, in TRL's names.

    ``max_steps`` counts optimiser updates.  One update uses
    ``per_device_train_batch_size * gradient_accumulation_steps * num_processes`` completions,
    in groups of ``num_generations`` per prompt; one rollout batch serves ``num_iterations``
    updates.  ``save_steps`` counts rollout batches, since checkpoints fall on their boundaries.
    ``max_prompt_length`` keeps the last tokens of longer training prompts, as TRL does.
    """

    seed: int = 0
    max_steps: int = Field(gt=0)
    num_generations: int = Field(gt=1)
    num_iterations: int = Field(default=1, gt=0)
    per_device_train_batch_size: int = Field(gt=0)
    gradient_accumulation_steps: int = Field(default=1, gt=0)
    num_processes: int = Field(default=1, gt=0)
    learning_rate: float = Field(gt=0)
    lr_scheduler_type: Literal["linear", "constant", "constant_with_warmup", "cosine"] = "linear"
    min_lr_ratio: float = Field(default=0.0, ge=0.0, le=1.0)
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    max_grad_norm: float = Field(default=1.0, gt=0)
    save_steps: int = Field(default=20, gt=0)
    max_prompt_length: int | None = Field(default=None, gt=0)

    @property
    def completions_per_update(self) -> int:
        return (
            self.per_device_train_batch_size * self.gradient_accumulation_steps * self.num_processes
        )

    @property
    def prompts_per_update(self) -> int:
        return self.completions_per_update // self.num_generations

    @model_validator(mode="after")
    def _whole_groups(self) -> TrainingConfig:
        per_process = self.per_device_train_batch_size * self.gradient_accumulation_steps
        if per_process % self.num_generations:
            raise ValueError(
                f"{per_process} completions per process and update are not whole groups of "
                f"num_generations={self.num_generations}"
            )
        if self.max_steps % self.num_iterations:
            raise ValueError(
                f"max_steps={self.max_steps} is not a multiple of "
                f"num_iterations={self.num_iterations}: a rollout batch serves whole updates"
            )
        return self


class RunConfig(Frozen):
    """Everything that decides the outcome of one run.

    ``training`` None is an evaluation of the checkpoint as it is.
    """

    paper: str
    scale: Literal["tiny", "paper", "ci"]
    algorithm: str
    algorithm_options: dict[str, Any] = Field(default_factory=dict)
    model: ModelConfig
    task: TaskConfig
    rollout: SamplerConfig
    evaluation: SamplerConfig
    training: TrainingConfig | None
    control: Literal["none", "shuffled-rewards"] = "none"

    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the identity of the run's settings."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json")).encode()).hexdigest()

    def with_seed(self, seed: int) -> RunConfig:
        """The same run under another seed; an evaluation-only run has none and stays as it is."""
        if self.training is None:
            return self
        training = self.training.model_copy(update={"seed": seed})
        return self.model_copy(update={"training": training})

    def baseline(self) -> RunConfig:
        """The evaluation of the same checkpoint before any training."""
        update = {
            "paper": "base",
            "algorithm": "none",
            "algorithm_options": {},
            "rollout": self.evaluation,
            "training": None,
            "control": "none",
        }
        return self.model_copy(update=update)


def canonical_json(value: Any) -> str:
    """One spelling per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


Origins = dict[str, str]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``; empty mappings stay as values."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{path}."))
        else:
            flat[path] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`flatten`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise UsageProblem(
                    f"'{path}' is not a setting",
                    f"'{parent}' is a value, nothing stands below it",
                    "dare show PAPER --config SCALE",
                )
        node[leaf] = dict(value) if isinstance(value, Mapping) else value
    return tree


def resolve(
    base: Mapping[str, Any], layers: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[RunConfig, Origins]:
    """The typed config, and for every dotted path the origin of its value.

    ``base`` is a reproduction's nested mapping with ``Sourced`` leaves.  ``layers`` maps an
    origin ("--config file.yaml", "DARE_SEED", "--seed") to ``{dotted path: value}``, weakest
    first.  Values nobody set come from the defaults and say so.  Raises ``UsageProblem``
    naming the bad path.
    """
    values: dict[str, Any] = {}
    origins: Origins = {}
    for path, leaf in flatten(base).items():
        value, origin = leaf if isinstance(leaf, Sourced) else (leaf, "reproduction")
        values[path], origins[path] = value, origin
    for origin, overrides in (layers or {}).items():
        for path, value in overrides.items():
            # A stronger value takes the place of what stood there, parts of it included.
            for old in [known for known in values if f"{known}.".startswith(f"{path}.")]:
                del values[old], origins[old]
            values[path], origins[path] = value, origin
    try:
        config = RunConfig.model_validate(unflatten(values))
    except ValidationError as error:
        raise UsageProblem(
            "the configuration is not valid",
            _explain(error, values),
            f"dare show {values.get('paper', 'PAPER')} --config {values.get('scale', 'SCALE')}",
        ) from error
    for path in flatten(config.model_dump(mode="json")):
        origins.setdefault(path, "default")
    return config, origins


def environment_layer() -> dict[str, Any]:
    """Values from variables such as ``DARE_TRAINING__LEARNING_RATE=1e-4``.

    The part behind ``DARE_`` is the dotted path in capitals, with ``__`` for the dot; values
    are JSON, or text where that fails.  Variables without ``__`` are not settings.
    """
    values: dict[str, Any] = {}
    for name, text in os.environ.items():
        if name.startswith("DARE_") and "__" in name:
            values[name.removeprefix("DARE_").lower().replace("__", ".")] = json_or_text(text)
    return values


def file_layer(path: Path) -> dict[str, Any]:
    """Dotted values from a JSON file of (nested) settings."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageProblem(
            f"cannot read the config file {path}",
            str(error),
            "dare show PAPER --config tiny --json",
        ) from error
    if not isinstance(content, dict):
        raise UsageProblem(f"{path} is not a config file", "it is not a JSON object", "")
    # The document of ``dare reproduce --dry-run --json`` may stand as it is.
    settings = content.get("config", content)
    return flatten(settings if isinstance(settings, dict) else content)


def json_or_text(text: str) -> Any:
    """``"1e-4"`` as a number, ``"true"`` as a truth value, anything else as it stands."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _explain(error: ValidationError, known: Mapping[str, Any]) -> str:
    """What is wrong where; for a name that does not exist, the nearest that does."""
    problems = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"]) or "config"
        text = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            near = get_close_matches(where, [path for path in known if path != where], n=1)
            text = "there is no such setting" + (f"; did you mean {near[0]}?" if near else "")
        problems.append(f"{where}: {text}")
    return "; ".join(problems)
