"""The builders of synthetic records as fixtures."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BUILDING = runpy.run_path(str(Path(__file__).with_name("building.py")))


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Any]:
    return BUILDING["make_record"]


@pytest.fixture(scope="session")
def make_outcomes() -> Callable[..., Any]:
    return BUILDING["make_outcomes"]
