"""Where a run happened and which code decided its numbers.  Imports none of the packages.

``environment()`` is the record's ``env`` block, ``code_identity()`` its ``code`` block.
Two runs with the same config, base checkpoint and ``numerics_sha256`` are the same run.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from dare import __version__
from dare._layout import in_checkout, tree
from dare.config import canonical_json

PACKAGES = (
    "accelerate", "datasets", "huggingface-hub", "math-verify", "numpy", "pandas", "peft",
    "pydantic", "safetensors", "tokenizers", "torch", "transformers", "triton", "trl",
)  # fmt: skip

# What can change a score.  The command, the records and the boards cannot.
NUMERICS = (
    "models", "diffusion", "sampling", "likelihood", "algorithms", "training", "tasks",
    "grading", "evaluation", "_compat", "config.py", "results/summary.py",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Python, system, processor, threads, package versions, commit and accelerator."""
    return {
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "threads": _threads(),
        "packages": _versions(),
        "git": git_state(),
        "accelerator": _accelerator(),
    }


def code_identity() -> dict[str, str]:
    """The version of dare and the SHA-256 over the sources that decide numbers."""
    return {"dare": __version__, "numerics_sha256": numerics_sha256()}


def run_key(config_digest: str, numerics: str, base_sha256: str) -> str:
    """The identity of a run: equal keys give equal numbers, so a finished run is reused."""
    parts = {"config": config_digest, "numerics": numerics, "base": base_sha256}
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def numerics_sha256() -> str:
    """SHA-256 over names and contents, the same in a checkout and in a wheel."""
    digest = hashlib.sha256()
    for name, path in _sources():
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()


def _sources() -> Iterator[tuple[str, Path]]:
    package = Path(__file__).resolve().parent.parent
    roots = [(f"dare/{name}", package / name) for name in NUMERICS]
    roots.append(("kernels", tree("kernels")))
    for name, root in roots:
        if root.is_file():
            yield name, root
            continue
        for path in sorted(root.rglob("*.py")):
            yield f"{name}/{path.relative_to(root).as_posix()}", path


def git_state() -> dict[str, Any] | None:
    """Commit of the checkout, whether it has changes, and their SHA-256; None in a wheel."""
    if not in_checkout():
        return None
    root = tree("kernels").parent
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(root, "--no-optional-locks", "status", "--porcelain")
    state: dict[str, Any] = {"commit": commit.strip(), "dirty": bool(status)}
    if status:
        diff = _git(root, "--no-optional-locks", "diff", "HEAD") or ""
        state["diff_sha256"] = hashlib.sha256((status + diff).encode()).hexdigest()
    return state


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as handle:
            for line in handle:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _threads() -> int | None:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    named = os.environ.get("OMP_NUM_THREADS", "")
    return int(named) if named.isdigit() else os.cpu_count()


def _accelerator() -> str:
    """Only a torch that is loaded already is asked: importing it would take seconds."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available():
        return "none"
    count = torch.cuda.device_count()
    return f"{count} x {torch.cuda.get_device_name(0)}"
