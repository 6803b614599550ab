"""Every name, signature and habit of TRL and transformers that the trainer core relies on."""

from __future__ import annotations

import ast
import inspect
import math
import os
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from trl import GRPOConfig, GRPOTrainer

from dare._compat.trl import SAME, checkpointing_field, training_arguments
from dare.models.loading import load_model, load_tokenizer
from dare.tasks import sudoku4
from dare.training.ranks import Ranks
from dare.training.session import Session
from dare.training.trainer import DiffusionTrainer

# ---- the training arguments ----------------------------------------------------------------


def test_grpo_config_has_every_field_that_is_handed_to_it() -> None:
    known = {field.name for field in fields(GRPOConfig)}
    ours = {
        "output_dir", "use_cpu", "bf16", "temperature", "max_completion_length", "beta",
        "save_strategy", "logging_strategy", "report_to", "disable_tqdm", "ignore_data_skip",
        "remove_unused_columns", "dataloader_pin_memory",
    }  # fmt: skip
    assert (ours | set(SAME)) - known == set()
    assert checkpointing_field() in known


def test_the_arguments_hold_what_the_run_says(small_run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = small_run("d1", training__gradient_accumulation_steps=2)
    arguments = training_arguments(config, tmp_path, cpu=True)
    for name in SAME:
        assert getattr(arguments, name) == getattr(config.training, name), name
    assert arguments.beta == config.algorithm_options["beta"]
    assert arguments.temperature == config.rollout.temperature
    assert arguments.max_completion_length == config.rollout.gen_length
    assert (arguments.use_cpu, arguments.bf16, arguments.world_size) == (True, False, 1)
    assert arguments.report_to in ([], "none")
    # Not set by us, but part of every published setting.
    assert arguments.optim in ("adamw_torch", "adamw_torch_fused")
    assert arguments.adam_epsilon == 1e-8


def test_the_arguments_are_made_without_a_deprecation_warning(small_run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.simplefilter("error", DeprecationWarning)
        arguments = training_arguments(small_run("d1"), tmp_path, cpu=True)
    assert getattr(arguments, checkpointing_field()) is False
    assert arguments.gradient_checkpointing is False


def test_trl_turns_activation_recomputation_on_by_default(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The reason why it is set at all; with this gone the compatibility code can go too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert GRPOConfig(str(tmp_path), use_cpu=True, bf16=False).gradient_checkpointing is True


def test_the_old_name_is_used_where_only_it_exists() -> None:
    @dataclass
    class Older:
        gradient_checkpointing: bool = True

    @dataclass
    class Newer(Older):
        activation_checkpointing: bool | None = None

    assert checkpointing_field(Older) == "gradient_checkpointing"
    assert checkpointing_field(Newer) == "activation_checkpointing"


def test_trl_does_not_phone_home() -> None:
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_only_the_compatibility_module_imports_trl(root: Path) -> None:
    found = {
        path.relative_to(root).as_posix()
        for folder in ("dare", "kernels", "reproductions")
        for path in (root / folder).rglob("*.py")
        if "trl" in imported_packages(path)
    }
    assert found == {"dare/_compat/trl.py"}


# ---- transformers.Trainer: what is overridden and called -----------------------------------

OVERRIDDEN = {
    "get_train_dataloader": ["self"],
    "create_scheduler": ["self", "num_training_steps", "optimizer"],
    "floating_point_ops": ["self", "inputs"],
    "_prepare_inputs": ["self", "inputs"],
    "_save_rng_state": ["self", "output_dir"],
}


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_overridden_hooks_keep_their_signature(name: str) -> None:
    base = list(inspect.signature(getattr(Trainer, name)).parameters)
    ours = list(inspect.signature(getattr(DiffusionTrainer, name)).parameters)
    assert base == OVERRIDDEN[name]
    assert ours == base


def test_called_hooks_keep_their_signature() -> None:
    def names(function: Any) -> list[str]:
        return list(inspect.signature(function).parameters)

    assert names(Trainer._save_checkpoint) == ["self", "model", "trial"]
    assert names(Trainer._get_learning_rate) == ["self"]
    assert names(Trainer.is_world_process_zero) == ["self"]
    assert names(Trainer.compute_loss)[:3] == ["self", "model", "inputs"]
    assert names(Trainer.training_step) == ["self", "model", "inputs", "num_items_in_batch"]
    assert names(TrainerCallback.on_step_end) == ["self", "args", "state", "control", "kwargs"]
    assert "resume_from_checkpoint" in names(Trainer.train)
    assert {"model", "args", "callbacks"} <= set(names(Trainer.__init__))
    assert hasattr(TrainerControl(), "should_training_stop")
    assert hasattr(TrainerState(), "global_step")


class _Square(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight.square() * x


class _SquareTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **_):  # type: ignore[no-untyped-def]
        return model(inputs["x"])


def test_a_training_step_divides_by_the_accumulation_steps(small_run, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """``compute_loss`` undoes this division; without it every update would be too large."""
    trainer = _SquareTrainer(_Square(), training_arguments(small_run("d1"), tmp_path, cpu=True))
    trainer.model_accepts_loss_kwargs = False
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = 4
    loss = trainer.training_step(trainer.model, {"x": torch.tensor(2.0)})
    assert float(loss) == 3.0**2 * 2 / 4
    assert float(trainer.model.weight.grad) == 2 * 3.0 * 2 / 4


# ---- the loop around our trainer -----------------------------------------------------------


class _Watched(TrainerCallback):
    """What the loop has done when a step ends."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        gradient = sum(
            float(p.grad.abs().sum()) for p in named["model"].parameters() if p.grad is not None
        )
        self.seen.append((state.global_step, gradient))


@pytest.fixture(scope="module")
def trained(small_run, tmp_path_factory):  # type: ignore[no-untyped-def]
    """Two rollout batches of two updates in four micro-batches; what happened on the way."""
    config = small_run(
        "d1",
        rollouts=2,
        training__per_device_train_batch_size=4,
        training__gradient_accumulation_steps=4,
        training__warmup_steps=1,
        training__lr_scheduler_type="linear",
        training__min_lr_ratio=0.1,
    )
    folder = tmp_path_factory.mktemp("contract")
    session = Session.open(config, folder, Ranks())
    events: list[dict[str, Any]] = []
    trainer = session.trainer(events.append)
    watched = _Watched()
    trainer.add_callback(watched)
    rates: list[float] = []
    micro: list[int] = []
    accumulation: list[int] = []
    step, prepare = trainer.training_step, trainer._prepare_inputs

    def training_step(*inputs: Any, **named: Any) -> Any:
        rates.append(trainer._get_learning_rate())
        accumulation.append(trainer.current_gradient_accumulation_steps)
        return step(*inputs, **named)

    def prepare_inputs(slot: Any) -> Any:
        micro.append(slot["slot"])
        return prepare(slot)

    trainer.training_step, trainer._prepare_inputs = training_step, prepare_inputs
    trainer.train()
    return SimpleNamespace(
        config=config, folder=folder, trainer=trainer, events=events, watched=watched,
        rates=rates, micro=micro, accumulation=accumulation,
    )  # fmt: skip


def test_one_prepared_slice_per_micro_batch(trained) -> None:  # type: ignore[no-untyped-def]
    assert trained.micro == list(range(4 * 4))
    assert trained.accumulation == [4] * 16


def test_our_schedule_is_the_one_that_is_used(trained) -> None:  # type: ignore[no-untyped-def]
    """Warm-up of one update at the peak, then linear from there: 1, 1, .7, .4 of it."""
    peak = trained.config.training.learning_rate
    expected = [peak * factor for factor in (1.0, 1.0, 0.7, 0.4) for _ in range(4)]
    assert trained.rates == pytest.approx(expected, rel=1e-12)


def test_a_step_ends_after_update_and_count_with_the_gradient_gone(trained) -> None:  # type: ignore[no-untyped-def]
    assert trained.watched.seen == [(1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0)]
    assert [event["update"] for event in trained.events] == [2, 4]
    assert [event["step"] for event in trained.events] == [0, 1]


def test_a_checkpoint_has_what_resuming_needs_and_no_generator_state(trained) -> None:  # type: ignore[no-untyped-def]
    (checkpoint,) = trained.folder.glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-4"
    names = {path.name for path in checkpoint.iterdir()}
    needed = {
        "complete.json", "config.json", "model.safetensors", "optimizer.pt", "scheduler.pt",
        "trainer_state.json",
    }  # fmt: skip
    assert names >= needed
    assert not any(name.startswith("rng_state") for name in names)


def test_the_loss_keeps_its_own_normalisation(trained) -> None:  # type: ignore[no-untyped-def]
    assert trained.trainer.model_accepts_loss_kwargs is False
    assert trained.trainer.compute_loss_func is None
    assert trained.trainer.loss_is_scaled_for_ga is None


# ---- rewards -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trl_trainer(tmp_path_factory):  # type: ignore[no-untyped-def]
    """TRL's own trainer around the rewards of our task, and one that gives no answer."""
    model = load_model("tiny-llada")
    model.generation_config = SimpleNamespace(pad_token_id=None, eos_token_id=None)

    def silent(completions: list[str], **_: Any) -> list[float | None]:
        return [None] * len(completions)

    arguments = GRPOConfig(
        str(tmp_path_factory.mktemp("trl")),
        use_cpu=True,
        bf16=False,
        **{checkpointing_field(): False},
        per_device_train_batch_size=2,
        num_generations=2,
        report_to="none",
    )
    return GRPOTrainer(
        model,
        reward_funcs=[*sudoku4.TASK.rewards("tiny"), silent],
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["0"] * 2}),
        processing_class=load_tokenizer("tiny-llada"),
    )


def test_our_reward_functions_are_trls(trl_trainer) -> None:  # type: ignore[no-untyped-def]
    """Called by TRL with a data set's columns: the share of blanks, and NaN for None."""
    puzzle, solution = "1234341221434300", "1234341221434321"
    rows = [{"prompt": puzzle, "solution": solution}] * 2
    completions = [solution, "1234341221434323"]  # both blanks right; one of two
    ids = [[8] * 16] * 2
    rewards = trl_trainer._calculate_rewards(rows, [puzzle] * 2, completions, ids)
    assert rewards.shape == (2, 2)
    assert rewards[:, 0].tolist() == [1.0, 0.5]
    assert all(math.isnan(value) for value in rewards[:, 1].tolist())


def test_our_rollouts_call_a_reward_function_as_trl_does(small_run, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Keyword arguments only, one list entry per completion in every column."""
    calls: list[dict[str, Any]] = []

    def watched(**arguments: Any) -> list[float | None]:
        calls.append(arguments)
        return [0.0] * len(arguments["completions"])

    monkeypatch.setattr(sudoku4.TASK, "rewards", lambda protocol: (watched,), raising=False)
    session = Session.open(small_run("d1"), tmp_path, Ranks())
    session.trainer(lambda event: None).source.collect(session.model, 0)
    (arguments,) = calls
    assert {"prompts", "completions", "solution"} <= arguments.keys()
    assert {len(column) for column in arguments.values()} == {32}
    assert all(isinstance(text, str) for text in arguments["completions"])
    assert all(set(puzzle) <= set("01234") for puzzle in arguments["prompts"])
