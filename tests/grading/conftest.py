"""One math-verify process for all grader tests: starting it takes a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dare.grading.math_worker import MathWorker


@pytest.fixture(scope="session")
def worker() -> Iterator[MathWorker]:
    with MathWorker() as worker:
        worker.compare("1", "1")
        yield worker
