"""The README's commands, continuous integration and the citation say the same things."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dare import __version__


@pytest.fixture(scope="module")
def commands(root: Path) -> list[str]:
    """The README's stand-alone commands: each makes its environment first."""
    lines = (root / "README.md").read_text().splitlines()
    return [line for line in lines if line.startswith("python3 -m venv ")]


@pytest.fixture(scope="module")
def steps(root: Path) -> list[str]:
    done = subprocess.run(
        ["bash", ".ci/run", "--show"], cwd=root, capture_output=True, text=True, check=True
    )
    return [line.removeprefix("== ") for line in done.stdout.splitlines()]


def test_the_readme_has_two_commands_that_stand_alone(commands: list[str]) -> None:
    assert commands == [
        "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/dare reproduce d1",
        'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && .venv/bin/python -m pytest',
    ]


def test_ci_runs_the_readmes_test_command(commands: list[str], steps: list[str]) -> None:
    run = f"{steps[0]} && {steps[-1]}"
    as_in_readme = re.sub(r"^\S*python3?(\.\d+)?", "python3", run).replace("venv/", ".venv/")
    as_in_readme = as_in_readme.replace("-m venv venv", "-m venv .venv")
    assert as_in_readme == commands[1]


def test_ci_checks_style_types_boards_and_reproductions(steps: list[str]) -> None:
    between = [step.removeprefix("venv/bin/").split(" -")[0] for step in steps[1:-1]]
    assert between == ["ruff check", "ruff format", "mypy", "dare leaderboard check", "dare check"]


def test_ci_leaves_nothing_behind(root: Path) -> None:
    text = (root / ".ci" / "run").read_text()
    assert "set -euo pipefail" in text
    assert "trap 'rm -rf \"$work\"' EXIT" in text
    assert subprocess.run(["bash", "-n", root / ".ci" / "run"]).returncode == 0


@pytest.fixture(scope="module")
def citation(root: Path) -> dict[str, object]:
    value = yaml.safe_load((root / "CITATION.cff").read_text())
    assert isinstance(value, dict)
    return value


def test_the_citation_is_of_this_version(citation: dict[str, object]) -> None:
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert citation["license"] == "Apache-2.0"
    assert {"message", "title", "authors"} <= set(citation)


def test_the_citation_names_its_sources(citation: dict[str, object]) -> None:
    references = citation["references"]
    assert isinstance(references, list)
    for reference in references:
        assert {"type", "title", "authors"} <= set(reference)
        assert all("name" in a or "family-names" in a for a in reference["authors"])
    papers = {i["value"] for r in references for i in r.get("identifiers", [])}
    assert papers == {
        "arXiv:2504.12216", "arXiv:2510.09541", "arXiv:2502.09992", "arXiv:2604.04215",
        "arXiv:2402.03300",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["d1", "spg"])
def test_the_citation_agrees_with_the_reproduction(citation: dict[str, object], name: str) -> None:
    from dare.reproductions import load

    paper = load(name).paper
    references = citation["references"]
    assert isinstance(references, list)
    (entry,) = [
        r for r in references
        if {"type": "other", "value": f"arXiv:{paper.arxiv}"} in r.get("identifiers", [])
    ]  # fmt: skip
    assert entry["title"] == paper.title
    names = tuple(f"{a['given-names']} {a['family-names']}" for a in entry["authors"])
    assert names == paper.authors
    assert entry["year"] == int(paper.date[:4])
