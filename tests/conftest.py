"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Reference material beside the checkout (fixtures, real generations); skips without it."""
    folder = Path(os.environ.get("DARE_SHARED", ROOT.parent / "shared"))
    if not (folder / "DESIGN.md").is_file():
        pytest.skip("reference material is not beside this checkout")
    return folder
