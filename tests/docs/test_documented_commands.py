"""Every command line of the documentation runs, in the order in which it stands.

One sandbox serves all documents.  It holds one real reproduction and one real comparison (a few
minutes), whose runs later commands reuse.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest

from dare.cli import COMMANDS, main
from dare.reproductions import load
from dare.results.plan import torchrun_line

DOCS = runpy.run_path(str(Path(__file__).with_name("documents.py")))
ROOT, PATHS, Sandbox = DOCS["ROOT"], DOCS["DOCUMENTS"], DOCS["Sandbox"]
LONG = ("dare reproduce d1", "dare compare grpo spg")
# It changes papers and code, so it is followed in a copy of its own.
APART = ROOT / "docs" / "add-a-paper.md"


def problems_of(path: Path, place: Any) -> list[str]:
    """Follow a document; what went otherwise than it says."""
    problems = [place.follow(step) for step in DOCS["steps"](path.read_text())]
    return [problem for problem in problems if problem]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[list[str]]]:
    """The other document, followed while one core waits for the last seed of the long runs."""
    place = Sandbox(tmp_path_factory.mktemp("author"))
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(problems_of, APART, place)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, apart: Future[list[str]]) -> Any:
    place = Sandbox(tmp_path_factory.mktemp("reader"))
    for command in LONG:
        place.run(command)
    return place


@pytest.mark.parametrize("path", [path for path in PATHS if path != APART], ids=lambda p: p.name)
def test_the_commands_of_a_document(path: Path, sandbox: Any) -> None:
    assert "\n\n".join(problems_of(path, sandbox)) == ""


def test_a_paper_is_added_as_documented(apart: Future[list[str]]) -> None:
    assert "\n\n".join(apart.result()) == ""


def test_commands_are_found_with_their_status_and_files_in_order() -> None:
    text = (
        '```console\n$ a\noutput\n$ b  # exit 3\n```\n```json title="x/y"\n{}\n```\n```sh\nc\n```\n'
    )
    assert [tuple(step) for step in DOCS["steps"](text)] == [
        (2, "run", "a", "", 0), (4, "run", "b  # exit 3", "", 3), (6, "write", "{}\n", "x/y", 0),
    ]  # fmt: skip


def test_a_step_that_ends_otherwise_is_reported(tmp_path: Path) -> None:
    place = Sandbox(tmp_path)
    wrong = DOCS["Step"](7, "run", "dare show nothing", status=0)
    assert "line 7: dare show nothing\nstatus 2, not 0" in place.follow(wrong)
    assert place.follow(wrong._replace(status=2)) == ""
    assert "status 128" in place.follow(DOCS["Step"](8, "patch", "no patch"))


# ---- what is not executed ------------------------------------------------------------------


def test_plain_shell_blocks_are_the_set_up_and_the_launch_line() -> None:
    """``tests/packaging`` compares the set-up commands with what CI runs."""
    config, _ = load("d1").resolve("paper")
    allowed = {
        "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/dare reproduce d1",
        'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && .venv/bin/python -m pytest',
        torchrun_line(config, "plan.json"),
    }
    shown = [
        line
        for path in PATHS
        for block in DOCS["blocks"](path.read_text())
        if block.language == "sh"
        for line in block.text.splitlines()
    ]
    assert sorted(shown) == sorted(allowed)


def mentioned() -> Iterator[tuple[str, str]]:
    """(document, command) of every ``dare ...`` in back quotes."""
    for path in PATHS:
        for code in DOCS["codes"](DOCS["prose"](path.read_text()).replace("\n", " ")):
            if code.startswith("dare "):
                yield path.name, code


def find(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that ``words`` name, and the rest."""
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command, words


def options_of(command: click.Command) -> set[str]:
    """The long options of a command and, for a group, of its subcommands."""
    own = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    if isinstance(command, click.Group):
        own |= {option for child in command.commands.values() for option in options_of(child)}
    return own - {"--verbose"}


def test_every_command_that_is_mentioned_exists_with_its_options() -> None:
    seen = list(mentioned())
    assert len(seen) > 20
    for document, text in seen:
        command, rest = find(text.split()[1:])
        unknown = {word for word in rest if word.startswith("--")} - options_of(command)
        assert not unknown - {"--help", "--version", "--json"}, (document, text)


# ---- the reference of the commands ---------------------------------------------------------


def sections() -> dict[str, str]:
    """Heading -> text, of the command reference."""
    parts = (ROOT / "docs" / "commands.md").read_text().split("\n## ")
    return {part.partition("\n")[0]: part for part in parts[1:]}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented_with_all_its_options(name: str) -> None:
    rows = DOCS["table"](sections()[f"dare {name}"], "argument or option")
    named = {code for row in rows for code in DOCS["codes"](row[0]) if code.startswith("--")}
    command, _ = find([name])
    assert named == options_of(command)


def test_the_readme_names_every_command() -> None:
    rows = DOCS["table"]((ROOT / "README.md").read_text(), "", "today")
    (listed,) = [row[1] for row in rows if row[0] == "commands"]
    assert DOCS["codes"](listed) == list(COMMANDS)


def new_board(root: str) -> str:
    """The command that adds a row to an empty copy of a board."""
    folder = f"{root}/tiny-sudoku/v1"
    return (
        f"mkdir -p {folder} && cp leaderboards/tiny-sudoku/v1/protocol.toml {folder}/ && "
        f"dare leaderboard add tiny-sudoku --root {root} --run runs/*-d1-sudoku4-* --algorithm d1"
    )


WITHDRAW = (
    'dare leaderboard withdraw tiny-sudoku "$(ls other/*/*/entries | cut -d. -f1)" '
    "--root other --reason doubt"
)
IN_FULL = {
    "dare leaderboard add": new_board("another"),
    "dare leaderboard withdraw": f"{new_board('other')} > added && {WITHDRAW}",
}
TAKES_LONG = ("dare check", "dare train base")


def documented_keys() -> list[tuple[str, str]]:
    rows = DOCS["table"](sections()["JSON documents"], "command", "keys")
    return [(DOCS["codes"](command)[0], keys) for command, keys in rows]


@pytest.mark.parametrize(("command", "keys"), documented_keys())
def test_json_documents_have_these_keys(command: str, keys: str, sandbox: Any) -> None:
    if command in TAKES_LONG:
        pytest.skip("another test runs this command; it takes long")
    if keys.startswith("as "):
        keys = dict(documented_keys())[DOCS["codes"](keys)[0]]
    done = sandbox.run(f"{IN_FULL.get(command, command)} --json")
    found = json.loads(done.out)
    if isinstance(found, list):
        assert keys.startswith("array: ")
        found = found[0]
    if keys.startswith("one key per board"):
        assert DOCS["codes"](keys)[0] in found
    else:
        assert list(found) == DOCS["codes"](keys)


# ---- numbers that a run gives --------------------------------------------------------------


def words(text: str) -> list[str]:
    """What a screen says, without its numbers, ids and drawings."""
    return re.findall(r"(?<![\w./-])[A-Za-z]+(?![\w./-])", text)


@pytest.mark.parametrize("command", LONG)
def test_the_transcripts_are_what_is_printed(command: str, sandbox: Any) -> None:
    """The words: another processor has other numbers.  A finding may change with them."""
    shown = [
        block.text
        for block in DOCS["blocks"]((ROOT / "README.md").read_text())
        if block.text.startswith(f"$ {command}\n")
    ]
    out = sandbox.run(command).out
    (printed,) = [text.partition("\n")[2] for text in shown]
    if command == LONG[1]:
        printed, out = (text.partition("\n\n")[0] for text in (printed, out))
    assert words(printed) == words(out)
    assert len(words(printed)) > 10


def test_the_base_is_as_weak_as_documented(sandbox: Any) -> None:
    """Another processor may answer a few puzzles otherwise."""
    from dare.tasks.sudoku4 import weak_solution

    text = (ROOT / "docs" / "tiny.md").read_text()
    (folder,) = sandbox.folder.glob("runs/*-base-sudoku4-*")
    outcomes = [json.loads(line) for line in (folder / "outcomes.jsonl").read_text().splitlines()]
    solved = sum(outcome["correct"] for outcome in outcomes)
    (row,) = [row for row in DOCS["table"](text, "measured greedily, 8 steps") if "test" in row[0]]
    assert float(row[1].split(" %")[0]) == pytest.approx(solved / 10, abs=1.0)
    weak = sum(o["output"] == weak_solution(o["item"].partition("/")[2]) for o in outcomes)
    said = int(text.partition("of the 1000 test puzzles it answers")[0].split()[-1])
    assert weak == pytest.approx(said, abs=15)
    assert f"{float(row[1].split(' %')[0])} % of the 1000 test puzzles" in (
        (ROOT / "README.md").read_text()
    )
