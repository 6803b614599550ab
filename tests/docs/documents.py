"""The documentation as data, and a place in which to follow it.

Read by the tests with ``runpy``.  In a document

    ```console            lines that start with "$ " are executed; "# exit 3" asks for that status
    ```... title="FILE"   is written to FILE
    ```diff               is applied

in the order in which they stand.  ``sh`` blocks are not executed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

COPIED = ("dare", "kernels", "leaderboards", "reproductions")
FILES = ("pyproject.toml", "README.md", "LICENSE", ".gitignore")
_FENCE = re.compile(r"^```(\w*)[ \t]*(.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_STATUS = re.compile(r"# exit (\d+)\s*$")
_CELL = re.compile(r"(?<!\\)\|")


class Block(NamedTuple):
    """A fenced block; ``line`` is that of its fence."""

    line: int
    language: str
    title: str
    text: str


class Step(NamedTuple):
    """Something to do; ``what`` is a command, a file's content or a patch."""

    line: int
    kind: Literal["run", "write", "patch"]
    what: str
    title: str = ""
    status: int = 0


class Done(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a document."""
    start, language, title, body = 0, "", "", []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and not start:
            found = _TITLE.search(fence[2])
            start, language, title, body = number, fence[1], found[1] if found else "", []
        elif fence:
            yield Block(start, language, title, "".join(body))
            start = 0
        elif start:
            body.append(line + "\n")
    assert not start, f"the block in line {start} is not closed"


def prose(text: str) -> str:
    """A document without its fenced blocks."""
    lines = text.splitlines()
    for block in reversed(list(blocks(text))):
        del lines[block.line - 1 : block.line + block.text.count("\n") + 1]
    return "\n".join(lines)


def steps(text: str) -> list[Step]:
    """What a reader who follows the document does, in order."""
    found = []
    for block in blocks(text):
        if block.title:
            found.append(Step(block.line, "write", block.text, block.title))
        elif block.language == "diff":
            found.append(Step(block.line, "patch", block.text))
        elif block.language == "console":
            for offset, line in enumerate(block.text.splitlines(), 1):
                if line.startswith("$ "):
                    status = _STATUS.search(line)
                    asked = int(status[1]) if status else 0
                    found.append(Step(block.line + offset, "run", line[2:], status=asked))
    return found


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a document: rows of cells, the header first, the ruler left out."""
    found: list[list[list[str]]] = []
    previous = False
    for line in prose(text).splitlines():
        if line.startswith("|"):
            if not previous:
                found.append([])
            cells = [cell.strip() for cell in _CELL.split(line.strip())[1:-1]]
            if not all(set(cell) <= {"-", ":"} and cell for cell in cells):
                found[-1].append(cells)
        previous = line.startswith("|")
    return found


def table(text: str, *header: str) -> list[list[str]]:
    """The rows of the one table whose header begins with ``header``."""
    (rows,) = [rows[1:] for rows in tables(text) if tuple(rows[0][: len(header)]) == header]
    return rows


def codes(text: str) -> list[str]:
    """What stands in back quotes."""
    return re.findall(r"`([^`]+)`", text)


class Sandbox:
    """A copy of the checkout, under git, in which commands run as a reader would run them.

    A command line that has been run is not run again: documents repeat each other.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self._done: dict[str, Done] = {}
        for name in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.folder / name, ignore=ignored)
        for name in FILES:
            shutil.copy(ROOT / name, self.folder / name)
        command = folder / "bin" / "dare"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dare "$@"\n')
        command.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DARE_")}
        self.environment = kept | {
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder / "no-weights"),
        }
        for words in ("init -q", "add -A", "commit -q -m start"):
            self.shell(f"git -c user.name=reader -c user.email=reader@example.org {words}")

    def shell(self, command: str, given: str = "") -> Done:
        """Run one command line."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, input=given,
            capture_output=True, text=True, timeout=3600,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def run(self, command: str) -> Done:
        """Run one command line, or give back how it ended before."""
        if command not in self._done:
            self._done[command] = self.shell(command)
        return self._done[command]

    def follow(self, step: Step) -> str:
        """Do one step; what is wrong with how it ended, or nothing."""
        if step.kind == "write":
            path = self.folder / step.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.what)
            return ""
        if step.kind == "patch":
            done = self.shell("git apply --recount -", step.what)
        else:
            done = self.run(step.what)
        if done.status == step.status:
            return ""
        end = "\n".join((done.out + done.err).splitlines()[-12:])
        return f"line {step.line}: {step.what}\nstatus {done.status}, not {step.status}\n{end}"
