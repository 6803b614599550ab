"""The identity of a checkpoint: hashes of its files.  Imports no torch."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


def file_sha256(path: Path) -> str:
    """SHA-256 of one file, read in pieces, and once as long as the file does not change."""
    state = path.stat()
    return _file_sha256(path, state.st_mtime_ns, state.st_size)


@cache
def _file_sha256(path: Path, _changed: int, _size: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def checkpoint_sha256(folder: Path) -> str:
    """SHA-256 over everything that decides what a checkpoint computes and reads: the weights,
    ``config.json`` and the tokenizer's files."""
    digest = hashlib.sha256(weights_sha256(folder).encode())
    for path in sorted(folder.glob("*.json")):
        if path.name == "config.json" or path.name.startswith(("tokenizer", "special_tokens")):
            digest.update(f"{path.name} {file_sha256(path.resolve())}\n".encode())
    return digest.hexdigest()


def weights_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of a checkpoint's weight files."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {file_sha256(path.resolve())}\n".encode())
    return digest.hexdigest()
