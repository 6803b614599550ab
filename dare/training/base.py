"""The base checkpoints of the embedded task, made by pinned recipes.

    dare train base --model tiny-llada

Stage 1 teaches 4x4 Sudoku from correct solutions.  Stage 2 continues for a short time on
demonstrations of which half come from a weak solver (it fills each row with the missing digits
in ascending order and looks at nothing else).  The result is **handicapped on purpose**: it
holds a strong and a weak mode, so that reinforcement learning has something to select.  Gains
measured from this base show that an objective, a sampler and an estimator work together, not
that RL teaches new skills.

Loss: mean cross-entropy over k masked cells of the completion, k uniform in 1..16, prompt
intact: the expectation of the 1/t-weighted bound with less variance.  For a block-causal model
the same in every block, with the blocks in front of it clean, all blocks in one forward.  The
matrices of the blocks are trained by Muon, everything else by AdamW.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from dare.config import flatten, unflatten
from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem
from dare.likelihood.rows import Canvas, row_log_probs
from dare.models import registry
from dare.models.base import DiffusionLM
from dare.models.facts import family_of
from dare.models.tiny import tiny_model, tiny_tokenizer
from dare.models.weights import weights_sha256
from dare.reproductions.families import family_sampler
from dare.reproductions.tiny import STEPS
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import generate
from dare.tasks import sudoku4
from dare.training.balance import LoadBalance
from dare.training.muon import Muon
from dare.training.recipes import BaseRecipe

CELLS = 16
MEASURED_ON = 1000  # validation puzzles
INIT_STD = 0.02
# Names of the projections that write into the residual stream, over the families.
RESIDUAL = ("attn_out", "ff_out", "o_proj", "down_proj", "dense")
# A router's scores are no linear map of a signal: AdamW, as for norms and embeddings.
ROUTER = "mlp.gate.weight"


Progress = Callable[[int, int, dict[str, Any]], None]


def build_model(recipe: BaseRecipe) -> DiffusionLM:
    """The model with keyed initial weights: N(0, .02), embedding N(0, d^-1/2), residual
    projections scaled down by sqrt(2 layers); norms 1, biases 0."""
    model = tiny_model(recipe.model)
    generator = RunKey(recipe.seed).at("init").generator()
    embedding = model.get_input_embeddings().weight
    layers = len(list(model.layers))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(0.0 if name.endswith(".bias") else 1.0)
                continue
            std = INIT_STD
            if parameter is embedding:
                std = parameter.shape[1] ** -0.5
            elif name.removesuffix(".weight").rpartition(".")[2] in RESIDUAL:
                std /= math.sqrt(2 * layers)
            parameter.normal_(0.0, std, generator=generator)
    return model


def demonstrations(recipe: BaseRecipe, step: int, weak_share: float) -> tuple[Tensor, Tensor]:
    """Prompts and completions of one step, each (B, 16) digits 0..4."""
    rng = RunKey(recipe.seed).at("data", step=step).numpy()
    puzzles, solutions = sudoku4.draw_batch(rng, recipe.batch_size, "train")
    completions = solutions.copy()
    for row in range(recipe.batch_size):
        if rng.random() < weak_share:
            puzzle = "".join(map(str, puzzles[row]))
            completions[row] = [int(digit) for digit in sudoku4.weak_solution(puzzle)]
    return torch.from_numpy(puzzles).long(), torch.from_numpy(completions).long()


def masked_cells(recipe: BaseRecipe, step: int, block_length: int = CELLS) -> Tensor:
    """In every block of every row k uniform in 1..``block_length`` cells, (B, 16) bool."""
    generator = RunKey(recipe.seed).at("mask", step=step).generator()
    shape = (recipe.batch_size, CELLS // block_length, block_length)
    rank = torch.rand(shape, generator=generator).argsort(-1).argsort(-1)
    count = torch.randint(1, block_length + 1, (*shape[:2], 1), generator=generator)
    return (rank < count).flatten(1)


def masked_loss(model: DiffusionLM, prompts: Tensor, completions: Tensor, masked: Tensor) -> Tensor:
    """Mean over rows and blocks of the mean cross-entropy of the masked cells; inputs are token
    ids.  A bidirectional model has one block."""
    logp = _log_probs(model, prompts, completions, masked)
    blocks = masked.unflatten(1, (-1, model.block_length or CELLS))
    share = (blocks / blocks.sum(-1, keepdim=True) / blocks.shape[1]).flatten(1)
    return -(logp * share[masked]).sum() / len(prompts)


def _log_probs(model: DiffusionLM, prompts: Tensor, completions: Tensor, masked: Tensor) -> Tensor:
    """log p of the true tokens of the masked cells, (N,)."""
    mask_id = model.config.mask_token_id
    positions = torch.cat((torch.zeros_like(masked), masked), 1)
    if model.block_length is None:
        inputs = torch.cat((prompts, completions.masked_fill(masked, mask_id)), 1)
        return model(inputs, None, positions=positions, targets=completions[masked])
    canvas = Canvas(torch.cat((prompts, completions), 1), None, CELLS)
    return row_log_probs(model, canvas, positions[:, None], masked[:, None], mask_id)[:, 0][masked]


def _optimisers(
    model: DiffusionLM, recipe: BaseRecipe, adam_lr: float
) -> list[torch.optim.Optimizer]:
    matrices = [
        parameter
        for layer in model.layers
        for name, parameter in layer.named_parameters()
        if parameter.ndim >= 2 and not name.endswith(ROUTER)
    ]
    chosen = set(map(id, matrices))
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        Muon(matrices, lr=recipe.muon_lr),
        torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def _lr_factor(step: int, steps: int, recipe: BaseRecipe) -> float:
    """Linear warm-up, then a cosine to ``final_lr_ratio``."""
    warm = min(1.0, (step + 1) / min(recipe.warmup_steps, max(1, steps // 3)))
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return warm * (recipe.final_lr_ratio + (1 - recipe.final_lr_ratio) * cosine)


def _stages(recipe: BaseRecipe) -> Iterator[tuple[str, int, float, float]]:
    yield "clean", recipe.clean_steps, 0.0, recipe.adam_lr
    yield "mixed", recipe.mixed_steps, recipe.weak_share, recipe.mixed_adam_lr


def train_base(
    recipe: BaseRecipe, state_file: Path, progress: Progress
) -> tuple[DiffusionLM, float]:
    """Run the recipe; the model and the validation accuracy of its strong mode.

    ``state_file`` keeps the state every 50 steps and when ``progress`` raises, so an interrupted
    run can be resumed; two runs of one recipe on one machine give identical weights, interrupted
    or not.
    """
    model = build_model(recipe)
    balance = LoadBalance(model, recipe.balance_rate)
    state = _load_state(state_file, recipe)
    total, first, clean_accuracy = recipe.clean_steps + recipe.mixed_steps, 0, 0.0
    for name, steps, weak_share, adam_lr in _stages(recipe):
        optimisers = _optimisers(model, recipe, adam_lr)
        done = 0
        if state is not None and state["stage"] == name:
            done, clean_accuracy = state["done"], state["clean_accuracy"]
            model.load_state_dict(state["model"])
            for optimiser, saved in zip(optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(saved)
        elif state is not None and state["stage"] == "mixed":
            done = steps  # the clean stage is behind us
        for step in range(done, steps):
            factor = _lr_factor(step, steps, recipe)
            loss = _update(model, optimisers, recipe, first + step, weak_share, (factor, adam_lr))
            balance.step(factor)
            keep = (state_file, recipe, name, step + 1, model, optimisers, clean_accuracy)
            if (step + 1) % 50 == 0 and step + 1 < steps:
                _save_state(*keep)
            try:
                progress(first + step + 1, total, {"loss": loss})
            except BaseException:  # how an interruption gets here, between two steps
                if step + 1 < steps:
                    _save_state(*keep)
                raise
        if name == "clean" and done < steps:
            clean_accuracy = held_out_accuracy(model, "validation", MEASURED_ON)
        first += steps
    return model.eval(), clean_accuracy


def _load_state(path: Path, recipe: BaseRecipe) -> dict[str, Any] | None:
    """The state of an interrupted run of this very recipe; another one's is refused."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
        found = state["recipe"]
    except Exception as error:
        raise UsageProblem(
            f"{path} is not the state of an interrupted recipe",
            f"{type(error).__name__}: {error}"[:200],
            "dare train base --out NEW_FOLDER",
        ) from error
    if found != recipe.model_dump_json():
        raise UsageProblem(
            f"{path.parent} holds an interrupted run of another recipe",
            f"it is {found}",
            "dare train base --out NEW_FOLDER, or repeat the options it was started with",
        )
    return state


def _save_state(
    path: Path,
    recipe: BaseRecipe,
    stage: str,
    done: int,
    model: nn.Module,
    optimisers: list[torch.optim.Optimizer],
    clean_accuracy: float,
) -> None:
    state = {
        "recipe": recipe.model_dump_json(),
        "stage": stage,
        "done": done,
        "clean_accuracy": clean_accuracy,
        "model": model.state_dict(),
        "optimisers": [optimiser.state_dict() for optimiser in optimisers],
    }
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def _update(
    model: DiffusionLM,
    optimisers: list[torch.optim.Optimizer],
    recipe: BaseRecipe,
    step: int,
    weak_share: float,
    rate: tuple[float, float],
) -> float:
    factor, adam_lr = rate
    prompts, completions = demonstrations(recipe, step, weak_share)
    offset = digit_offset()
    masked = masked_cells(recipe, step, model.block_length or CELLS)
    loss = masked_loss(model, prompts + offset, completions + offset, masked)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
    for optimiser, lr in zip(optimisers, (recipe.muon_lr, adam_lr), strict=True):
        for group in optimiser.param_groups:
            group["lr"] = lr * factor
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return loss.item()


def digit_offset() -> int:
    """Token id of the character ``0``; the digits follow it in order."""
    return int(tiny_tokenizer().convert_tokens_to_ids("0"))


def held_out_sampler(model: DiffusionLM) -> SamplerConfig:
    """Greedy, 8 steps, otherwise the sampler of the model's family."""
    settings = {"gen_length": CELLS, "steps": STEPS, "block_length": CELLS}
    family = family_of(model.config.to_dict())
    for path, leaf in flatten(family_sampler(family, model.block_length)).items():
        settings[path] = leaf.value
    return SamplerConfig.model_validate(unflatten(settings))


def held_out_accuracy(model: DiffusionLM, split: str, limit: int) -> float:
    """Share of ``limit`` held-out puzzles that greedy sampling solves exactly."""
    items = sudoku4.load(split, limit)
    offset = digit_offset()
    prompts = [[int(digit) + offset for digit in item.question] for item in items]
    config = held_out_sampler(model)
    solved = 0
    for start in range(0, len(items), 250):
        tokens = generate(model, prompts[start : start + 250], config).tokens - offset
        for item, row in zip(items[start : start + 250], tokens.tolist(), strict=True):
            solved += "".join(str(digit) for digit in row) == item.gold["solution"]
    return solved / len(items)


def make_base(recipe: BaseRecipe, folder: Path, progress: Progress) -> dict[str, Any]:
    """Train, measure on the validation grids, write the checkpoint into ``folder``.

    Returns (and writes as ``recipe.json``) the recipe, the held-out accuracy of both stages,
    the weights' SHA-256, and how they compare with the checkpoint that ships with dare.
    """
    transformers_logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "state.pt"
    model, clean_accuracy = train_base(recipe, state, progress)
    model.half().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    facts: dict[str, Any] = {
        "recipe": recipe.model_dump(),
        "clean_accuracy": clean_accuracy,
        # Measured on the float16 weights as they are shipped and loaded.
        "accuracy": held_out_accuracy(model.float(), "validation", MEASURED_ON),
        "measured_on": f"{MEASURED_ON} validation puzzles, greedy, {STEPS} steps",
        "sampler": held_out_sampler(model).model_dump(mode="json"),
        "weights_sha256": weights_sha256(folder),
    }
    (folder / "recipe.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    state.unlink(missing_ok=True)
    facts["against_shipped"] = _against_shipped(recipe.model, facts["weights_sha256"])
    return facts


def _against_shipped(model: str, digest: str) -> str:
    shipped = registry.locate(model)
    if shipped is None:
        return "no base checkpoint ships with this copy"
    if weights_sha256(shipped) == digest:
        return "identical to the shipped base, byte for byte"
    return (
        "differs from the shipped base: expected with another recipe, processor or torch "
        "version, since float32 sums differ in the last digit"
    )
