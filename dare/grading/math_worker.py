"""math-verify in a process of its own, with limits that the answer cannot talk its way out of.

    with MathWorker() as worker:
        worker.compare("16 \\\\sqrt{3}", "16\\\\sqrt3")      # "equal"

math-verify parses LaTeX into sympy and compares; hostile or unlucky input can make that take
hours or all memory, and its own timeouts need signals in the main thread.  Here a supervisor
process imports math-verify once and forks a child that answers requests.  The child lives
until an answer takes more than ``cpu_seconds`` of its processor time (the kernel ends it), more
than ``wall_seconds`` of real time (the supervisor kills it) or too much memory; the next
request gets a fresh fork.  Processor time is the usual limit so that the same answer meets
the same fate on a busy machine.

Only LaTeX is parsed: math-verify's plain-expression path evaluates text and is not used.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

from dare.errors import Missing

Comparison = Literal["equal", "different", "unparsable", "timeout", "error"]

CPU_SECONDS = 0.7
WALL_SECONDS = 8.0
START_SECONDS = 120.0
MEMORY_BYTES = 2 * 2**30

_READY = "ready"
# What the supervisor compares before it forks, so that children start with warm parsers.
_WARM = (("\\frac{1}{2}", "0.5"), ("(1,\\pi)", "\\left(1, \\pi\\right)"), ("x^2+1", "\\sqrt{x}"))


class MathWorker:
    """A math-verify process.  Usable from any thread, one comparison at a time."""

    def __init__(
        self, cpu_seconds: float = CPU_SECONDS, wall_seconds: float = WALL_SECONDS
    ) -> None:
        self.cpu_seconds, self.wall_seconds = cpu_seconds, wall_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""

    def compare(self, gold: str, candidate: str) -> Comparison:
        """Whether two LaTeX answers are equal; ``gold`` decides the form.

        ``unparsable`` when either cannot be read: never equal to anything.  ``Missing`` when
        math-verify cannot be started.
        """
        request = json.dumps([gold, candidate, self.cpu_seconds, self.wall_seconds]) + "\n"
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            try:
                process.stdin.write(request.encode())
                process.stdin.flush()
                reply = self._line(self.wall_seconds + 5)
            except OSError:
                reply = None
            if reply not in get_args(Comparison):
                self._stop()
                return "error" if reply is None else "timeout"
            return reply

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        package_parent = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (package_parent, os.environ.get("PYTHONPATH"))))
        self._received = b""
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from dare.grading.math_worker import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the command, not for its helpers
        )
        if self._line(START_SECONDS) != _READY:
            self._stop()
            raise Missing(
                "math-verify does not start",
                "the strict grader compares mathematical answers with it",
                "pip install 'math-verify>=0.9,<0.10'",
            )
        return self._process

    def _line(self, seconds: float) -> Any:
        """The next line of the supervisor; None when it ended, "" when it took too long."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return ""
            chunk = os.read(self._process.stdout.fileno(), 4096)
            if not chunk:
                return None
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait()

    def close(self) -> None:
        """End the processes; a later comparison starts them again."""
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                # The supervisor ends with its input and takes its child along.
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    self._process.stdin.close()
                    self._process.wait(timeout=1.0)
            self._stop()

    def __enter__(self) -> MathWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def shared_worker() -> MathWorker:
    """This process's worker: started at the first comparison, ended at exit."""
    return _worker_of(os.getpid())


@functools.cache
def _worker_of(pid: int) -> MathWorker:
    # Keyed by process: a fork must not talk through its parent's pipes.
    worker = MathWorker()
    atexit.register(lambda: worker.close() if os.getpid() == pid else None)
    return worker


# ---- the supervisor process ----------------------------------------------------------------


def serve() -> None:
    """Read requests on stdin, answer on stdout, one line each; ends with its stdin."""
    for pair in _WARM:
        _equal(*pair)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may pass for an answer
    out.write(_READY + "\n")
    out.flush()
    child = None
    for line in sys.stdin:
        child = child or _Child()
        reply = child.ask(line, json.loads(line)[3])
        if reply in ("timeout", "error"):
            child.end()
            child = None
        out.write(reply + "\n")
        out.flush()
    if child is not None:
        child.end()


class _Child:
    """A fork of the supervisor that compares."""

    def __init__(self) -> None:
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._requests)
            os.close(self._replies)
            _compare_until_end(request_read, reply_write)
        os.close(request_read)
        os.close(reply_write)

    def ask(self, line: str, wall_seconds: float) -> str:
        """The child's reply; "timeout" or "error" mean that it must be ended."""
        os.write(self._requests, line.encode())
        if not select.select([self._replies], [], [], wall_seconds)[0]:
            return "timeout"
        reply = os.read(self._replies, 64).decode()
        if reply:
            return reply
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        spent = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
        return "timeout" if spent else "error"

    def end(self) -> None:
        """Kill the child and free its pipes."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._requests)
        os.close(self._replies)


def _compare_until_end(requests: int, replies: int) -> None:
    """The child's life.  Never returns."""
    import resource

    for what, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with os.fdopen(requests) as lines:
        for line in lines:
            gold, candidate, cpu_seconds, _ = json.loads(line)
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            try:
                reply = _equal(gold, candidate)
            except BaseException:
                reply = "error"
            signal.setitimer(signal.ITIMER_PROF, 0)
            os.write(replies, reply.encode())
    os._exit(0)


def _equal(gold: str, candidate: str) -> Comparison:
    from math_verify import LatexExtractionConfig, parse, verify

    parsed = []
    for text in (gold, candidate):
        found = parse(
            f"${text}$",
            extraction_config=[LatexExtractionConfig()],
            fallback_mode="no_fallback",
            extraction_mode="first_match",
            parsing_timeout=None,
            raise_on_error=True,
        )
        if not found:
            return "unparsable"
        parsed.append(found)
    equal = verify(*parsed, timeout_seconds=None, raise_on_error=True)
    return "equal" if equal else "different"
