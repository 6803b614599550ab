"""Reading and writing the files of a run: atomic writes, named refusals.

A reader may meet anything under a run's name: a truncated file, a symlink to itself, a
pipe, ten megabytes of brackets.  Everything here either returns the bytes of a plain file
or raises an error that says which file, why, and what to do.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dare.errors import Missing, UsageProblem

JSON_LIMIT = 64 * 2**20


def read_plain(
    path: Path, noun: str, help: str = "", limit: int = JSON_LIMIT, links: bool = True
) -> bytes:
    """The bytes of the plain file ``path``; ``UsageProblem`` calls it by ``noun`` otherwise.

    ``links`` False: a symbolic link is refused too, whatever it leads to.
    """
    try:
        if not links and path.is_symlink():
            why = "it is a link, and a run holds its files itself"
            raise UsageProblem(f"cannot read the {noun} {path}", why, "copy the file here")
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise UsageProblem(f"cannot read the {noun} {path}", "it is not a plain file", help)
        if about.st_size > limit:
            why = f"it has {about.st_size} bytes, more than the {limit} allowed"
            raise UsageProblem(f"cannot read the {noun} {path}", why, help)
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, noun, error, help) from error


def unreadable(path: Path, noun: str, error: OSError, help: str = "") -> UsageProblem:
    """The error for a file the system would not give us."""
    return UsageProblem(f"cannot read the {noun} {path}", error.strerror or str(error), help)


def parse_object(raw: bytes, path: Path, noun: str, help: str = "") -> dict[str, Any]:
    """The JSON object in ``raw``; truncated, nested without end or not an object: refused."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        kind = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"
        why = f"it is truncated or damaged ({kind})"
        raise UsageProblem(f"cannot read the {noun} {path}", why, help) from error
    if not isinstance(value, dict):
        raise UsageProblem(f"cannot read the {noun} {path}", "it is not a JSON object", help)
    return value


def write_atomic(path: Path, chunks: bytes | Iterable[bytes]) -> None:
    """Put ``chunks`` at ``path`` whole or not at all; ``Missing`` when the disk refuses."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as handle:
            for chunk in (chunks,) if isinstance(chunks, bytes) else chunks:
                handle.write(chunk)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        why = error.strerror or str(error)
        raise Missing(
            f"cannot write {path}", why, "make room or choose another folder, then run it again"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def pretty_json(value: Any) -> bytes:
    """Indented JSON with a final newline; NaN and infinity raise ValueError."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
