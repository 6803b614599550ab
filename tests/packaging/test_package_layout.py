"""The layout that keeps three top-level trees out of other people's import names."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.mark.parametrize("tree", ["kernels", "reproductions", "leaderboards"])
def test_a_tree_is_not_importable_by_its_own_name(root: Path, tree: str) -> None:
    """``kernels`` is also the name of a package that transformers looks for."""
    assert not (root / tree / "__init__.py").exists()


def test_kernels_holds_only_sub_packages(root: Path) -> None:
    assert list((root / "kernels").glob("*.py")) == []


def test_every_package_is_declared(root: Path, project: dict[str, Any]) -> None:
    found = {
        ".".join(path.parent.relative_to(root).parts)
        for path in (root / "dare").rglob("__init__.py")
    }
    found |= {
        ".".join(("dare", "_trees", *path.parent.relative_to(root).parts))
        for path in (root / "kernels").rglob("__init__.py")
    }
    trees = {f"dare._trees.{name}" for name in ("kernels", "leaderboards", "reproductions")}
    assert set(project["tool"]["setuptools"]["packages"]) == found | trees


def test_every_folder_of_modules_is_a_package(root: Path) -> None:
    folders = {path.parent for tree in ("dare", "kernels") for path in (root / tree).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_torch_is_bounded_and_never_a_build_requirement(project: dict[str, Any]) -> None:
    required = {
        Requirement(text).name: Requirement(text) for text in project["project"]["dependencies"]
    }
    torch = required["torch"].specifier
    assert not torch.contains("2.14.0")
    assert torch.contains("2.13.0")
    assert not {"torchvision", "torchaudio"} & set(required)
    build = {Requirement(text).name for text in project["build-system"]["requires"]}
    assert build == {"setuptools"}


def test_transformers_keeps_its_own_kernels_in_the_checkout(root: Path) -> None:
    """It executes a ``kernels`` package that it finds in the working directory."""
    code = (
        "import transformers.integrations.hub_kernels, sys;"
        "found = sys.modules.get('kernels');"
        "print(getattr(found, '__file__', None))"
    )
    environment = os.environ | {"PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert str(root) not in done.stdout
