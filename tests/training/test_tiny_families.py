"""The embedded models beside tiny-llada: recipe, shipped weights, and a few updates of RL."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from dare import reproductions
from dare.models import registry
from dare.models.loading import load_model
from dare.models.tiny import tiny_model
from dare.models.weights import weights_sha256
from dare.training import base
from dare.training.balance import LoadBalance
from dare.training.equivalence import trajectory
from dare.training.muon import Muon, orthogonalise
from dare.training.recipes import RECIPES

CLASSES = {
    "tiny-llada": ("LLaDAModelLM", None),
    "tiny-dream": ("DreamModel", None),
    "tiny-sdar": ("SDARForCausalLM", 4),
    "tiny-llada2": ("LLaDA2MoeModelLM", 8),
}
NEW = tuple(name for name in CLASSES if name != "tiny-llada")
BLOCK_CAUSAL = ("tiny-sdar", "tiny-llada2")


def short(name: str, **changes: Any) -> base.BaseRecipe:
    steps = {"clean_steps": 2, "mixed_steps": 1, "batch_size": 8}
    return RECIPES[name].model_copy(update=steps | changes)


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


# ---- the recipe ----------------------------------------------------------------------------


def test_there_is_a_recipe_for_every_embedded_model() -> None:
    embedded = {entry.name for entry in registry.CHECKPOINTS if entry.repo_id is None}
    assert set(RECIPES) == set(CLASSES) == embedded
    assert all(recipe.model == name for name, recipe in RECIPES.items())


@pytest.mark.parametrize("name", NEW)
def test_a_recipe_gives_the_same_weights_twice_and_others_for_another_seed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MEASURED_ON", 4)
    seed = RECIPES[name].seed
    runs = [
        flat(base.train_base(short(name, seed=each), tmp_path / f"{i}.pt", lambda *_: None)[0])
        for i, each in enumerate((seed, seed, seed + 1))
    ]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert bool(runs[0].isfinite().all())


@pytest.mark.parametrize("name", NEW)
def test_initial_weights_have_the_scales_of_the_recipe(name: str) -> None:
    model = base.build_model(RECIPES[name])
    layers = len(list(model.layers))
    for parameter_name, parameter in model.named_parameters():
        stem = parameter_name.removesuffix(".weight").rpartition(".")[2]
        if parameter.ndim == 1:
            expected = 0.0 if parameter_name.endswith("bias") else 1.0
            assert bool((parameter == expected).all())
            continue
        std = 0.02 / sqrt(2 * layers) if stem in ("o_proj", "dense", "down_proj") else 0.02
        if parameter is model.get_input_embeddings().weight:
            std = 0.125
        assert float(parameter.detach().std()) == pytest.approx(std, rel=0.12), parameter_name


@pytest.mark.parametrize("block", [4, 8])
def test_every_block_has_every_count_of_masks_equally_often(block: int) -> None:
    recipe = short("tiny-sdar", batch_size=4000)
    counts = base.masked_cells(recipe, 0, block).unflatten(1, (-1, block)).sum(-1)
    assert counts.shape == (4000, 16 // block)
    for column in counts.T:
        histogram = torch.bincount(column, minlength=block + 1)
        expected = 4000 / block
        assert int(histogram[0]) == 0
        assert float((histogram[1:] - expected).abs().max()) < 5 * sqrt(expected)


@pytest.mark.parametrize("name", BLOCK_CAUSAL)
def test_the_loss_is_that_of_one_plain_forward_per_block(name: str) -> None:
    """The two streams against the model's own mask on [prompt, clean blocks, noisy block]."""
    recipe = short(name, batch_size=3)
    model = base.build_model(recipe)
    size = CLASSES[name][1]
    assert size is not None
    prompts, completions = (
        part + base.digit_offset() for part in base.demonstrations(recipe, 0, 0)
    )
    masked = base.masked_cells(recipe, 0, size)
    total = 0.0
    for start in range(0, 16, size):
        noisy = completions[:, : start + size].clone()
        hidden = masked[:, start : start + size]
        noisy[:, start:][hidden] = model.config.mask_token_id
        logits = model(torch.cat((prompts, noisy), 1))[:, 16 + start :]
        logp = logits.log_softmax(-1).gather(-1, completions[:, start : start + size, None])
        per_row = -(logp[..., 0] * hidden).sum(1) / hidden.sum(1)
        total += per_row.mean().item() / (16 // size)
    loss = base.masked_loss(model, prompts, completions, masked)
    assert loss.item() == pytest.approx(total, abs=1e-5)


def test_muon_has_the_matrices_of_the_blocks_and_each_expert_by_itself() -> None:
    model = base.build_model(RECIPES["tiny-llada2"])
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    muon, adam = base._optimisers(model, RECIPES["tiny-llada2"], 1e-3)
    by_muon = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    by_adam = {names[id(p)] for group in adam.param_groups for p in group["params"]}
    assert by_muon | by_adam == set(names.values())
    assert not by_muon & by_adam
    assert "model.layers.1.mlp.experts.gate_up_proj" in by_muon
    assert {"model.layers.1.mlp.gate.weight", "lm_head.weight"} <= by_adam
    assert all("norm" not in name and "embed" not in name for name in by_muon)

    stack = torch.nn.Parameter(torch.zeros(3, 6, 4))
    stack.grad = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    Muon([stack], lr=1.0, weight_decay=0.0).step()
    for weight, gradient in zip(stack.detach(), stack.grad, strict=True):
        # The first step's momentum is a multiple of the gradient; the scale is sqrt(rows / cols).
        expected = -(1.5**0.5) * orthogonalise(gradient[None])[0]
        torch.testing.assert_close(weight, expected, atol=1e-4, rtol=1e-4)


def test_biases_move_towards_the_experts_that_miss_tokens() -> None:
    class Router(torch.nn.Module):
        expert_bias: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("expert_bias", torch.zeros(4))
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return chosen, self.weight * torch.ones(chosen.shape)

    router = Router()
    balance = LoadBalance(router, rate=0.5)
    with torch.no_grad():
        router(torch.tensor([[3, 3]]))  # a measurement: not counted
    balance.step()
    assert router.expert_bias.tolist() == [0, 0, 0, 0]
    # Loads 3, 2, 1, 2 of 8: the mean is 2.
    router(torch.tensor([[0, 1], [0, 3]]))
    router(torch.tensor([[0, 1], [2, 3]]))
    balance.step(0.1)
    assert router.expert_bias.tolist() == pytest.approx([-0.05, 0, 0.05, 0])
    balance.step()  # the counts were used up
    assert router.expert_bias.tolist() == pytest.approx([-0.05, 0, 0.05, 0])


# ---- the shipped files ---------------------------------------------------------------------


def recorded(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((registry.require(name) / "recipe.json").read_text())
    return facts


@pytest.mark.parametrize("name", CLASSES)
def test_the_shipped_weights_are_those_of_the_recipe(name: str) -> None:
    facts = recorded(name)
    assert facts["recipe"] == RECIPES[name].model_dump()
    assert facts["weights_sha256"] == weights_sha256(registry.require(name))
    model = load_model(name)
    assert (type(model).__name__, model.block_length) == CLASSES[name]
    assert {p.shape for p in model.parameters()} == {p.shape for p in tiny_model(name).parameters()}


@pytest.mark.parametrize("name", NEW)
def test_the_shipped_base_solves_what_its_recipe_records(name: str) -> None:
    facts = recorded(name)
    found = base.held_out_accuracy(load_model(name), "validation", 200)
    # 200 of the 1000 recorded puzzles: three standard errors of the smaller sample.
    error = sqrt(facts["accuracy"] * (1 - facts["accuracy"]) / 200)
    assert found == pytest.approx(facts["accuracy"], abs=3 * error)
    assert 0.15 <= facts["accuracy"] <= 0.35
    assert facts["clean_accuracy"] > 0.8


@pytest.mark.parametrize("name", NEW)
def test_untrained_weights_solve_nothing(name: str) -> None:
    model = base.build_model(RECIPES[name]).eval()
    assert base.held_out_accuracy(model, "validation", 100) == 0.0


# Attention: q and output 64 x 64, k and v 64 x 32.  MLP of width 168, experts of width 64.
ATTENTION, MLP, EXPERT, NORMS = 2 * 64 * 64 + 2 * 64 * 32, 3 * 64 * 168, 3 * 64 * 64, 2 * 64
ENDS = 2 * 28 * 64 + 64  # embedding, head, last norm
PARAMETERS = {
    "tiny-dream": ENDS + 3 * (ATTENTION + 64 + 2 * 32 + MLP + NORMS),
    "tiny-sdar": ENDS + 4 * (ATTENTION + 2 * 16 + MLP + NORMS),
    # One dense layer; in the others a shared expert, eight routed ones and the router.
    "tiny-llada2": ENDS + 4 * (ATTENTION + 2 * 16 + NORMS) + MLP + 3 * (9 * EXPERT + 8 * 64),
}


@pytest.mark.parametrize("name", NEW)
def test_the_registry_knows_the_shipped_files(name: str) -> None:
    entry, folder = registry.get(name), registry.require(name)
    found = registry.describe(str(folder))
    assert sum(parameter.numel() for parameter in load_model(name).parameters()) == PARAMETERS[name]
    biases = 24 if name == "tiny-llada2" else 0
    assert entry.parameters == PARAMETERS[name] + biases
    assert entry.tensor_bytes == 2 * PARAMETERS[name] + 4 * biases
    for fact in ("family", "shape", "bytes", "dtype", "block_length", "mask_token_id",
                 "eos_token_id", "pad_token_id", "eot_token_id"):  # fmt: skip
        assert getattr(entry, fact) == getattr(found, fact), fact


def test_all_together_are_below_6_mb() -> None:
    files = [path for path in registry.EMBEDDED.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == set(CLASSES)
    assert sum(path.stat().st_size for path in files) < 6_000_000


def test_every_expert_of_the_shipped_mixture_is_used() -> None:
    """Without a balancing term a router may starve experts; here each gets 4 % or more."""
    model = load_model("tiny-llada2")
    counts: dict[str, torch.Tensor] = {}

    def count(name: str) -> Any:
        def hook(_: object, __: object, output: tuple[torch.Tensor, torch.Tensor]) -> None:
            counts[name] = counts.get(name, 0) + torch.bincount(output[0].flatten(), minlength=8)

        return hook

    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(count(name))
    base.held_out_accuracy(model, "validation", 50)
    assert len(counts) == model.config.num_hidden_layers - 1
    for load in counts.values():
        assert float((load / load.sum()).min()) >= 0.04


# ---- reproductions on them -----------------------------------------------------------------


@pytest.mark.parametrize("paper", ["d1", "spg"])
@pytest.mark.parametrize("name", NEW)
def test_a_reproduction_runs_on_the_family_with_its_sampler(
    name: str, paper: str, tmp_path: Path
) -> None:
    values = {
        "training.max_steps": 2,
        "training.per_device_train_batch_size": 16,
        "training.save_steps": 1,
        "task.eval_limit": 20,
    }
    config, origins = reproductions.load(paper).resolve("ci", model=name, layers={"test": values})
    sampler = base.held_out_sampler(load_model(name))
    assert config.evaluation == sampler
    assert config.rollout == sampler.model_copy(update={"temperature": 1.0})
    assert origins["evaluation.selection.rule"].startswith(f"family {registry.get(name).family}:")
    found = trajectory(config, "plain", tmp_path)
    before = flat(load_model(name))
    assert found.weights.isfinite().all()
    assert found.weights.shape == before.shape
    assert not torch.equal(found.weights, before)
