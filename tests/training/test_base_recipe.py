"""The recipe of the embedded base: determinism, resuming, and the shipped file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dare.errors import UsageProblem
from dare.models import registry
from dare.models.weights import weights_sha256
from dare.tasks import sudoku4
from dare.training import base
from dare.training.muon import orthogonalise

SHORT = base.BaseRecipe(clean_steps=60, mixed_steps=10, batch_size=16)


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


class Stopped(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("stop_at", [30, 55, 65])
def test_an_interrupted_recipe_ends_as_the_uninterrupted_one(
    tmp_path: Path, stop_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MEASURED_ON", 10)
    whole, _ = base.train_base(SHORT, tmp_path / "whole.pt", lambda *_: None)

    def stop(done: int, total: int, facts: object) -> None:
        if done == stop_at:
            raise Stopped

    with pytest.raises(Stopped):
        base.train_base(SHORT, tmp_path / "parts.pt", stop)
    again, _ = base.train_base(SHORT, tmp_path / "parts.pt", lambda *_: None)
    assert torch.equal(weights(again), weights(whole))


def test_demonstrations_are_correct_or_weak_and_coherent() -> None:
    recipe = base.BaseRecipe()
    prompts, completions = base.demonstrations(recipe, 900, weak_share=0.5)
    strong = weak = 0
    for prompt, completion in zip(prompts.tolist(), completions.tolist(), strict=True):
        puzzle, answer = ("".join(map(str, cells)) for cells in (prompt, completion))
        assert sudoku4.keeps_givens(puzzle, answer)
        is_strong, is_weak = sudoku4.is_legal(answer), answer == sudoku4.weak_solution(puzzle)
        assert is_strong or is_weak
        strong += is_strong and not is_weak
        weak += is_weak and not is_strong
    assert 40 < strong < 90
    assert 40 < weak < 90


def test_training_never_shows_a_held_out_solution() -> None:
    held_out = {*sudoku4.grids("test"), *sudoku4.grids("validation")}
    for step in range(5):
        _, completions = base.demonstrations(base.BaseRecipe(), step, weak_share=0.0)
        shown = {"".join(map(str, cells)) for cells in completions.tolist()}
        assert not shown & held_out


def test_masks_have_every_count_equally_often() -> None:
    recipe = base.BaseRecipe(batch_size=1600)
    counts = base.masked_cells(recipe, 0).sum(1)
    histogram = torch.bincount(counts, minlength=17)[1:]
    assert int(histogram.sum()) == 1600
    assert int(histogram.min()) > 60  # 100 expected, four standard deviations are 39


def test_orthogonalise_brings_singular_values_near_one() -> None:
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(2, 24, 10, generator=generator)
    values = torch.linalg.svdvals(orthogonalise(matrices, iterations=8))
    assert 0.6 < float(values.min()) <= float(values.max()) < 1.3


def test_the_shipped_base_is_the_recorded_one_and_small() -> None:
    folder = registry.locate("tiny-llada")
    assert folder is not None
    facts = json.loads((folder / "recipe.json").read_text())
    assert facts["weights_sha256"] == weights_sha256(folder)
    assert facts["recipe"] == base.BaseRecipe().model_dump()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_000_000
    from dare.models.loading import load_model

    assert base.held_out_accuracy(load_model("tiny-llada"), "validation", 1000) == pytest.approx(
        facts["accuracy"], abs=0.01
    )
    assert facts["clean_accuracy"] > 0.9


def test_the_state_of_another_recipe_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MEASURED_ON", 10)
    base.train_base(SHORT, tmp_path / "state.pt", lambda *_: None)
    other = SHORT.model_copy(update={"seed": 7})
    with pytest.raises(UsageProblem, match="another recipe"):
        base.train_base(other, tmp_path / "state.pt", lambda *_: None)
    (tmp_path / "junk.pt").write_bytes(b"junk")
    with pytest.raises(UsageProblem, match="not the state"):
        base.train_base(SHORT, tmp_path / "junk.pt", lambda *_: None)
