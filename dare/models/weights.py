"""The identity of a checkpoint: hashes of its files.  Imports no torch."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def file_sha256(path: Path) -> str:
    """SHA-256 of one file, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def weights_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of a checkpoint's weight files."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {file_sha256(path.resolve())}\n".encode())
    return digest.hexdigest()
