"""The math-verify process: limits hold, and it comes back."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from dare.grading.math_worker import MathWorker

SLOW = "30^{100^{93}}"


def test_comparisons(worker: MathWorker) -> None:
    assert worker.compare(r"\frac{1}{2}", "0.5") == "equal"
    assert worker.compare("p-q", "-q+p") == "equal"
    assert worker.compare("2", "3") == "different"
    assert worker.compare("", "") == "unparsable"
    assert worker.compare(r"\text{", r"\text{") == "unparsable"


def test_a_slow_answer_is_a_timeout_and_the_next_one_is_answered(
    worker: MathWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "cpu_seconds", 0.2)
    assert worker.compare("5", SLOW) == "timeout"
    assert worker.compare("5", "5.0") == "equal"


def test_real_time_is_limited_too(worker: MathWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "cpu_seconds", 60.0)
    monkeypatch.setattr(worker, "wall_seconds", 0.2)
    start = time.monotonic()
    assert worker.compare("5", SLOW) == "timeout"
    assert time.monotonic() - start < 5
    monkeypatch.setattr(worker, "wall_seconds", 8.0)
    assert worker.compare("5", "5.0") == "equal"


def test_threads_share_one_process(worker: MathWorker) -> None:
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        found[number] = worker.compare(str(number), f"{number}.0")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(8), "equal")


def test_a_killed_process_is_started_again_and_a_closed_one_leaves_nothing() -> None:
    with MathWorker() as worker:
        assert worker.compare("1", "1") == "equal"
        killed = worker._process
        assert killed is not None
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        assert worker.compare("1", "1") == "equal"
        process = worker._process
        assert process is not None
        assert process.pid != killed.pid
    assert process.poll() == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
