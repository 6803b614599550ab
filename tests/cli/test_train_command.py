"""``dare train base`` as a user meets it; the recipe itself is tested with the training code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dare.cli import main
from dare.training.recipes import RECIPES

SAID = "SHA-256 over the weight files' names and contents:"


def dare(*words: object) -> Result:
    return CliRunner().invoke(main, ["train", "base", *map(str, words)])


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("--steps", -1, 5), "-1 5"),
        (("--steps", 5, -1), "5 -1"),
        (("--steps", 0, 0), "0 0"),
        (("--steps", 5), "5"),
        (("--steps=5",), "5"),
    ],
)
def test_steps_that_make_no_base_are_refused(
    tmp_path: Path, words: tuple[object, ...], given: str
) -> None:
    found = dare("--out", tmp_path / "base", *words)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(f"error: '--steps' cannot be '{given}'\n  why:  it takes two")
    assert found.stderr.endswith("  help: dare train base --steps 1000 150\n")
    assert not (tmp_path / "base").exists()


def test_steps_that_are_no_numbers_are_refused() -> None:
    found = dare("--steps", "five", 5)
    assert found.exit_code == 2
    assert "'five' is not a valid integer" in found.stderr
    assert "help: dare train base --help" in found.stderr


@pytest.mark.parametrize(
    ("given", "nearest"), [("tiny-lada", "tiny-llada"), ("tiny-sda", "tiny-sdar")]
)
def test_an_unknown_embedded_model_is_answered_with_the_nearest(given: str, nearest: str) -> None:
    found = dare("--model", given)
    assert found.exit_code == 2
    assert found.stderr.startswith(f"error: no embedded model is called '{given}'\n")
    assert "known: tiny-dream, tiny-llada, tiny-llada2, tiny-sdar" in found.stderr
    assert f"did you mean '{nearest}'?" in found.stderr


@pytest.mark.parametrize("model", ["tiny-llada", "tiny-dream", "tiny-sdar", "tiny-llada2"])
def test_each_embedded_model_is_made_by_its_own_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    made: list[Any] = []

    def make(recipe: Any, *_: object) -> dict[str, Any]:
        made.append(recipe)
        facts = {
            "clean_accuracy": 0.5,
            "accuracy": 0.25,
            "weights_sha256": "",
            "against_shipped": "",
        }
        return {"recipe": recipe.model_dump(), **facts}

    monkeypatch.setattr("dare.training.base.make_base", make)
    assert dare("--model", model.upper(), "--out", tmp_path / "base").exit_code == 0
    assert dare("--model", model, "--out", tmp_path / "b", "--seed", 9).exit_code == 0
    assert made == [RECIPES[model], RECIPES[model].model_copy(update={"seed": 9})]
    assert made[0].model == model


@pytest.mark.parametrize("mixed", [0, 1])
def test_what_is_said_about_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mixed: int
) -> None:
    facts: dict[str, Any] = {
        "recipe": {"clean_steps": 1, "mixed_steps": mixed},
        "clean_accuracy": 0.5,
        "accuracy": 0.25,
        "weights_sha256": "ab" * 32,
        "against_shipped": "differs from the shipped base",
    }
    monkeypatch.setattr("dare.training.base.make_base", lambda *_: facts)
    found = dare("--out", tmp_path / "base", "--steps", 1, mixed)
    assert found.exit_code == 0
    assert f"\n{SAID}\n  {'ab' * 32}\n" in found.stdout
    assert ("half of the last demonstrations were weak" in found.stdout) == bool(mixed)
