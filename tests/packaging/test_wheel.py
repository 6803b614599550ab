"""The wheel: what is in it, and that it works away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dare import __version__

SOURCES = ("dare", "kernels", "leaderboards", "reproductions")
FILES = ("pyproject.toml", "README.md", "LICENSE")
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout and nothing old is packed."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(root / name, source / name, ignore=IGNORED)
    for name in FILES:
        shutil.copy(root / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
        "--no-compile", "--disable-pip-version-check", "--target", str(target), str(wheel),
    ]  # fmt: skip
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def outside(installed: Path, *words: str) -> str:
    """Run Python from ``/`` with the installed copy first on the path; its output."""
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_everything_that_is_not_ignored_is_packed(root: Path, wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = set()
    for name in SOURCES:
        for path in (root / name).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                inside = path.relative_to(root).as_posix()
                wanted.add(inside if name == "dare" else f"dare/_trees/{inside}")
    assert sorted(wanted - packed) == []


def test_nothing_else_is_packed(wheel: Path) -> None:
    packed = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in packed}
    assert tops == {"dare", f"dare_dllm-{__version__}.dist-info"}
    assert not [name for name in packed if "test" in Path(name).parts]


def test_the_copy_outside_the_checkout_finds_its_trees(installed: Path) -> None:
    code = (
        "import dare, importlib.util as u, dare.kernels, dare.reproductions;"
        "from dare._layout import tree;"
        "print(dare.__file__);"
        "print(*(tree(n) for n in ('kernels', 'reproductions', 'leaderboards')), sep='\\n');"
        "print(u.find_spec('dare.kernels.linear_logp').origin);"
        "print(u.find_spec('dare.reproductions.d1').origin);"
        "print(*dare.reproductions.names())"
    )
    *places, papers = outside(installed, "-c", code).split("\n")[:-1]
    assert len(places) == 6
    assert all(place.startswith(f"{installed}/") for place in places)
    assert {"d1", "spg"} <= set(papers.split())


def test_the_command_works_outside_the_checkout(installed: Path) -> None:
    assert outside(installed, "-m", "dare", "--version") == f"dare {__version__}\n"
    out = outside(installed, "-m", "dare", "leaderboard", "check")
    assert out.splitlines() == ["llada-8b-instruct/v1: ok", "tiny-sudoku/v1: ok"]


def test_the_embedded_model_is_there(installed: Path) -> None:
    folder = installed / "dare" / "models" / "embedded" / "tiny-llada"
    assert (folder / "model.safetensors").stat().st_size > 100_000
    assert (folder / "config.json").is_file()
