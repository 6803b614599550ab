"""``dare train base`` as a user meets it; the recipe itself is tested with the training code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dare.cli import main

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
