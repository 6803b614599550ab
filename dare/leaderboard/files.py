"""Boards on disk and in git, read into one value.

A board is a mapping from file names to bytes, whether it comes from a folder or from a
commit, so that everything else is a function of that mapping.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dare._layout import tree
from dare.errors import UsageProblem, unknown_name
from dare.leaderboard.schema import Entry, Lock, Protocol, Withdrawal, content_sha
from dare.results.files import parse_object, read_plain, write_atomic

PROTOCOL, README, LOCK = "protocol.toml", "README.md", "entries.lock.json"
ENTRIES, WITHDRAWALS = "entries/", "withdrawals/"
FILE_LIMIT = 8 * 2**20

Files = Mapping[str, bytes]
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Board:
    """A board as its files say it, with the hash of each entry as stored."""

    protocol: Protocol
    entries: dict[str, Entry] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    withdrawals: dict[str, Withdrawal] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    readme: str = ""

    def live(self) -> list[Entry]:
        """The entries that count, by id."""
        return [
            entry
            for name, entry in sorted(self.entries.items())
            if name not in self.withdrawals and entry.state != "withdrawn"
        ]


def boards_root(root: Path | str | None = None) -> Path:
    """The folder of all boards: ``root``, or the one that comes with this package."""
    return Path(root) if root is not None else tree("leaderboards")


def find_boards(root: Path | str | None = None, name: str | None = None) -> list[Path]:
    """Folders of boards below ``root``; with ``name`` ("tiny-sudoku", "tiny-sudoku/v1") those.

    Without a version the newest is meant.  Raises ``UsageProblem`` for an unknown name.
    """
    base = boards_root(root)
    found = sorted(path.parent for path in base.glob(f"*/v*/{PROTOCOL}"))
    if name is None:
        return found
    by_name = {f"{path.parent.name}/{path.name}": path for path in found}
    if name in by_name:
        return [by_name[name]]
    versions = [path for path in found if path.parent.name == name]
    if versions:
        return [max(versions, key=_version)]
    known = {path.parent.name for path in found}
    raise unknown_name("board", name, known, "dare leaderboard build")


def _version(path: Path) -> int:
    digits = path.name.removeprefix("v")
    return int(digits) if digits.isdecimal() else -1


def folder_files(folder: Path) -> dict[str, bytes]:
    """The files of the board in ``folder``; links and oversized files are refused."""
    names = [PROTOCOL, README, LOCK]
    paths = [folder / name for name in names]
    paths += sorted(folder.glob(f"{ENTRIES}*")) + sorted(folder.glob(f"{WITHDRAWALS}*"))
    files = {}
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise UsageProblem(f"{path} is a link", "boards hold plain files", "copy the file here")
        if path.exists():
            files[name] = read_plain(path, "board file", limit=FILE_LIMIT)
    return files


def git_files(folder: Path, ref: str) -> dict[str, bytes] | None:
    """The files of the board in ``folder`` as committed at ``ref``; None when it is not there."""
    if ref.startswith("-"):
        return None
    listing = _git(folder, "ls-tree", "-r", "-z", "--name-only", ref, ".")
    if not listing:
        return None
    files = {}
    for name in listing.decode().rstrip("\0").split("\0"):
        content = _git(folder, "show", f"{ref}:./{name}")
        if content is not None:
            files[name] = content
    return files


def is_commit(folder: Path, ref: str) -> bool:
    """True when git knows ``ref`` as a commit of the repository around ``folder``."""
    if ref.startswith("-"):
        return False
    return _git(folder, "rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}") is not None


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def read_board(folder: Path) -> Board:
    """The board in ``folder``; ``UsageProblem`` names the file that cannot be read."""
    return parse(folder_files(folder), folder)


def parse(files: Files, folder: Path = Path()) -> Board:
    """The board that ``files`` describe; ``folder`` is only named in errors."""
    if PROTOCOL not in files:
        raise UsageProblem(f"{folder} is not a board", f"it has no {PROTOCOL}", "")
    protocol = _protocol(files[PROTOCOL], folder / PROTOCOL)
    stored = _objects(files, ENTRIES, folder)
    entries = {name: _valid(Entry, data, folder / path) for name, (path, data) in stored.items()}
    notices = {
        name: _valid(Withdrawal, data, folder / path)
        for name, (path, data) in _objects(files, WITHDRAWALS, folder).items()
    }
    lock = Lock()
    if LOCK in files:
        lock = _valid(Lock, parse_object(files[LOCK], folder / LOCK, "lock"), folder / LOCK)
    return Board(
        protocol,
        entries,
        {name: _hash(data, folder / path) for name, (path, data) in stored.items()},
        notices,
        lock,
        files.get(README, b"").decode(errors="replace"),
    )


def _hash(stored: Mapping[str, Any], path: Path) -> str:
    try:
        return content_sha(stored)
    except ValueError as error:
        raise UsageProblem(f"{path} is not valid", f"a number in it: {error}", "") from error


def _protocol(raw: bytes, path: Path) -> Protocol:
    try:
        data = tomllib.loads(raw.decode())
    except ValueError as error:
        raise UsageProblem(f"cannot read {path}", f"it is not TOML: {error}", "") from error
    return _valid(Protocol, data, path)


def _objects(files: Files, prefix: str, folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """File stem -> (name, JSON object), for the files below ``prefix``."""
    found = {}
    for name in sorted(files):
        if not name.startswith(prefix):
            continue
        stem = name.removeprefix(prefix).removesuffix(".json")
        if not name.endswith(".json"):
            why = "only .json files belong there"
            raise UsageProblem(f"{folder / name} is no part of a board", why, "move it away")
        data = parse_object(files[name], folder / name, "board file")
        named = data.get("id", data.get("entry"))
        if named != stem:
            why = f"it calls itself '{named}'"
            raise UsageProblem(f"{folder / name} has the wrong name", why, "rename the file")
        found[stem] = (name, data)
    return found


def _valid(model: type[M], data: Mapping[str, Any], path: Path) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        why = f"{where}: {first['msg'].removeprefix('Value error, ')}"
        raise UsageProblem(f"{path} is not valid", why, "dare leaderboard check") from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """``value`` as sorted, indented JSON at ``path``, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    write_atomic(path, (text + "\n").encode())
