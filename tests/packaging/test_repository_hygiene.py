"""House rules that a reviewer should not have to look for."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 50

# Written in pieces, so that this file does not break its own rule.
MACHINE_PATHS = ("/" + "work/", "/" + "root/", "/" + "opt/", "/" + "home/", "." + "./shared")
INDEX_OPTIONS = ("--extra-" + "index-url", "--index" + "-url", "--find" + "-links")
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
BINARY = {".safetensors", ".png", ".parquet"}


def tracked(root: Path) -> list[Path]:
    """Files that are, or would be, part of the repository."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True,
    )  # fmt: skip
    if listing.returncode:
        pytest.skip("this is not a git checkout")
    names = listing.stdout.decode().rstrip("\0").split("\0")
    return [root / name for name in names if (root / name).is_file()]


def lines_with(path: Path, root: Path, words: tuple[str, ...]) -> list[str]:
    pattern = re.compile("|".join(rf"(?<![\w.]){re.escape(word)}" for word in words))
    text = path.read_text(encoding="utf-8")
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()[:80]}"
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_files_are_short(root: Path) -> None:
    counts = {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for path in tracked(root)
        if path.suffix == ".py"
    }
    assert len(counts) > 50
    assert {name: n for name, n in counts.items() if n >= MAX_FILE_LINES} == {}


def test_functions_are_short(root: Path) -> None:
    long = {}
    for path in tracked(root):
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines >= MAX_FUNCTION_LINES:
                    long[f"{path.relative_to(root)}:{node.name}"] = lines
    assert long == {}


@pytest.mark.parametrize(
    ("words", "exempt"),
    [(MACHINE_PATHS, "tests/"), (INDEX_OPTIONS, ""), (UNFINISHED, "")],
    ids=["machine paths", "package indexes", "unfinished work"],
)
def test_no_file_says(root: Path, words: tuple[str, ...], exempt: str) -> None:
    found = []
    for path in tracked(root):
        name = path.relative_to(root).as_posix()
        if path.suffix in BINARY or (exempt and name.startswith(exempt)):
            continue
        found += lines_with(path, root, words)
    assert found == []


def test_the_rule_finds_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(f"x = 1\ny = '{MACHINE_PATHS[0]}main'\n# {UNFINISHED[0]}: later\n")
    assert len(lines_with(path, tmp_path, MACHINE_PATHS)) == 1
    assert len(lines_with(path, tmp_path, UNFINISHED)) == 1
    path.write_text("https://example.org" + MACHINE_PATHS[3] + "page, a network, framework/\n")
    assert lines_with(path, tmp_path, MACHINE_PATHS) == []


def test_nothing_generated_is_tracked(root: Path) -> None:
    parts = {part for path in tracked(root) for part in path.relative_to(root).parts}
    assert not parts & {"__pycache__", "runs", "build", "dist", ".venv", "dare_dllm.egg-info"}
