"""Where benchmark rows come from: a hub at a pinned revision, or a file with a known hash.

``datasets`` and ``pooch`` are imported when something is fetched, never before.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dare.errors import Missing, UsageProblem
from dare.tasks.base import Split
from dare.tasks.tables import Row

UNPINNED = "unpinned: resolved at run time"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A split of a data set on the Hugging Face hub.  ``revision`` None: not pinned."""

    repo: str
    revision: str | None
    split: str
    rows: int | None
    licence: str
    config: str | None = None

    def describe(self, name: str) -> Split:
        """The record's description of the split."""
        return Split(name, f"hub:{self.repo}", self.revision or UNPINNED, self.licence)

    def is_copy(self, path: Path, rows: int) -> bool:
        """Whether a local file with so many rows is the whole split."""
        return rows == self.rows

    def obtain(self) -> str:
        """The command that gets it."""
        pin = f" --revision {self.revision}" if self.revision else ""
        return f"hf download --repo-type dataset {self.repo}{pin}"

    def read(self, task: str) -> Iterator[Row]:
        """Its rows; ``Missing`` when the hub cannot be reached and nothing is cached."""
        try:
            from datasets import load_dataset

            loaded = load_dataset(self.repo, self.config, split=self.split, revision=self.revision)
        except Exception as error:  # the hub, the cache and the builder raise many kinds
            raise _missing(task, self, str(error)) from error
        if self.rows is not None and len(loaded) != self.rows:
            raise UsageProblem(
                f"{self.repo} is not what was pinned",
                f"split {self.split} has {len(loaded)} rows instead of {self.rows}",
                "clear the cached copy, or give the rows with --data FILE",
            )
        for row in loaded:
            yield dict(row)


@dataclass(frozen=True, slots=True)
class FileSource:
    """A data file of a code repository, pinned by commit and SHA-256 (None: not known)."""

    repo: str
    commit: str
    path: str
    sha256: str | None
    rows: int | None
    licence: str

    @property
    def url(self) -> str:
        return f"https://raw.githubusercontent.com/{self.repo}/{self.commit}/{self.path}"

    def describe(self, name: str) -> Split:
        """The record's description of the split."""
        return Split(name, f"file:{self.repo}/{self.path}", self.commit, self.licence)

    def is_copy(self, path: Path, rows: int) -> bool:
        """Whether a local file is this one."""
        return hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256

    def obtain(self) -> str:
        """How to get it by hand."""
        return f"download {self.url}"

    def read(self, task: str) -> Iterator[Row]:
        """Its rows, fetched once and checked against the hash; ``Missing`` when offline."""
        from dare.tasks.tables import read_rows

        for _, row in read_rows(self._fetched(task)):
            yield row

    def _fetched(self, task: str) -> Path:
        if os.environ.get("HF_HUB_OFFLINE", "") in ("1", "true", "True", "ON"):
            raise _missing(task, self, "HF_HUB_OFFLINE is set")
        import platformdirs
        import pooch

        try:
            known = f"sha256:{self.sha256}" if self.sha256 else None
            folder = Path(platformdirs.user_cache_dir("dare")) / "data" / self.commit
            name = self.path.rsplit("/", 1)[-1]
            return Path(pooch.retrieve(self.url, known, fname=name, path=folder))
        except Exception as error:  # network, disk and hash errors of several libraries
            raise _missing(task, self, str(error)) from error


def _missing(task: str, source: HubSource | FileSource, why: str) -> Missing:
    first = (why.splitlines() or ["no reason given"])[0][:200]
    return Missing(
        f"the data of {task} are not on this machine",
        f"{source.repo} could not be loaded: {first}",
        f"online, run this again; offline, give the rows with --data FILE ({source.obtain()})",
    )
