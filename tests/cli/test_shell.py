"""The command shell: laziness, three-part errors, exit statuses, output helpers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from dare import __version__
from dare.cli import COMMANDS, main
from dare.cli._output import Progress, duration, print_json
from dare.cli._problems import printable, render
from dare.cli._shell import LazyGroup
from dare.errors import DareError, Interrupted, UsageProblem

SHOP = """
import errno, sys
import click
from dare.errors import Interrupted, Missing, NotComparable, UsageProblem

def _fault(context, kind):
    if kind == "usage": raise UsageProblem("bad name", "it is not known", "dare list")
    if kind == "missing": raise Missing("no weights", "not in the cache", "hf download x")
    if kind == "incomparable": raise NotComparable("not the same set", "", "")
    if kind == "stopped": raise Interrupted("stopped", "at a safe point", "dare again")
    if kind == "bug": raise ValueError("first line\\nsecond line " + "x" * 500)
    if kind == "empty-bug": raise RuntimeError
    if kind == "ctrl-c": raise KeyboardInterrupt
    if kind == "pipe": raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    if kind == "disk": raise OSError(errno.ENOSPC, "No space left on device", "runs/x/record.json")
    if kind == "exit-4": context.exit(4)
    if kind == "return-1": return 1
    if kind == "print": print("result")

@click.command()
@click.argument("kind")
@click.option("--size", type=click.Choice(["small", "large"]))
@click.option("--count", type=int, default=1)
@click.option("--resume", is_flag=True)
@click.pass_context
def command(context, kind, size, count, resume):
    return _fault(context, kind)
"""
BOARD = """
import click

@click.group()
def command(): pass

@command.command("build")
@click.option("--check", is_flag=True)
def build(check): raise ValueError("no")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LazyGroup:
    """A shell with one command that fails on request and one group."""
    (tmp_path / "shop_for_shell_test.py").write_text(SHOP)
    (tmp_path / "board_for_shell_test.py").write_text(BOARD)
    monkeypatch.syspath_prepend(str(tmp_path))
    table = {
        "shop": ("shop_for_shell_test", "Fails on request."),
        "board": ("board_for_shell_test", "A group."),
        "gone": ("no_such_module_at_all", "Its module does not exist."),
    }
    return LazyGroup(commands_table=table, name="dare")


def run(group: LazyGroup, *words: str) -> Result:
    return CliRunner().invoke(group, list(words))


# ---- the table and its laziness ------------------------------------------------------------


def modules_after(*words: str) -> set[str]:
    """Top-level packages from site-packages that a call of ``dare`` imports."""
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from dare.cli import main\n"
        f"main({list(words)!r}, standalone_mode=False)\n"
        "named = {n.split('.')[0] for n, m in sys.modules.items() if n not in before\n"
        "         and 'site-packages' in (getattr(m, '__file__', None) or '')}\n"
        "print('\\n'.join(sorted(named)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_imports_click_and_nothing_else() -> None:
    assert modules_after("--help") == {"click"}


def test_importing_the_package_is_enough_for_help_lines() -> None:
    result = run(main, "--help")
    assert result.exit_code == 0
    for name, (_, line) in COMMANDS.items():
        assert name in result.stdout
        assert line in result.stdout
    assert "dare reproduce d1" in result.stdout


def test_python_dash_m_dare_prints_the_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dare", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"dare {__version__}\n")


def test_a_command_is_imported_only_when_called(shop: LazyGroup) -> None:
    assert run(shop, "--help").exit_code == 0
    assert "shop_for_shell_test" not in sys.modules
    assert run(shop, "shop", "print").stdout == "result\n"
    assert "shop_for_shell_test" in sys.modules


# ---- exit statuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("print", 0),
        ("return-1", 1),
        ("usage", 2),
        ("missing", 3),
        ("disk", 3),
        ("incomparable", 4),
        ("exit-4", 4),
        ("bug", 70),
        ("empty-bug", 70),
        ("stopped", 130),
        ("ctrl-c", 130),
        ("pipe", 141),
    ],
)
def test_exit_status(shop: LazyGroup, kind: str, status: int) -> None:
    assert run(shop, "shop", kind).exit_code == status


def test_an_error_has_three_parts_on_stderr_and_leaves_stdout_empty(shop: LazyGroup) -> None:
    result = run(shop, "shop", "missing")
    assert result.stdout == ""
    assert result.stderr == ("error: no weights\n  why:  not in the cache\n  help: hf download x\n")


def test_a_bug_is_one_line_without_v_and_a_traceback_with_it(shop: LazyGroup) -> None:
    quiet = run(shop, "shop", "bug").stderr
    assert quiet == "internal error: ValueError: first line (run again with -v for the traceback)\n"
    for words in (("-v", "shop", "bug"), ("shop", "bug", "-v"), ("shop", "--verbose", "bug")):
        loud = run(shop, *words).stderr
        assert "Traceback (most recent call last)" in loud
        assert "second line" in loud
        assert loud.splitlines()[-1] == "internal error: ValueError: first line"


def test_v_works_behind_a_command_of_a_group(shop: LazyGroup) -> None:
    assert "Traceback" not in run(shop, "board", "build").stderr
    assert "Traceback" in run(shop, "board", "build", "-v").stderr


def test_a_command_whose_module_is_absent_is_an_internal_error(shop: LazyGroup) -> None:
    result = run(shop, "gone")
    assert result.exit_code == 70
    assert "no_such_module_at_all" in result.stderr


def test_a_traceback_is_shown_for_expected_errors_too(shop: LazyGroup) -> None:
    assert "Traceback" not in run(shop, "shop", "usage").stderr
    assert "Traceback" in run(shop, "-v", "shop", "usage").stderr


def test_ctrl_c_says_how_to_continue(shop: LazyGroup) -> None:
    stderr = run(shop, "shop", "ctrl-c", "--count", "3").stderr
    assert "interrupted" in stderr
    assert "continue with: dare shop ctrl-c --count 3 --resume" in stderr
    again = run(shop, "shop", "ctrl-c", "--resume").stderr
    assert "dare shop ctrl-c --resume\n" in again


def test_a_full_disk_names_the_file(shop: LazyGroup) -> None:
    assert "runs/x/record.json" in run(shop, "shop", "disk").stderr


def test_a_closed_pipe_is_silent(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "dare", "list", "papers"], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


# ---- usage errors --------------------------------------------------------------------------


def test_unknown_command_suggests_the_nearest() -> None:
    result = run(main, "reprduce", "d1")
    assert result.exit_code == 2
    assert "no command is called 'reprduce'" in result.stderr
    assert "did you mean 'reproduce'?" in result.stderr


def test_unknown_flag_of_the_shell() -> None:
    result = run(main, "--versoin")
    assert result.exit_code == 2
    assert "'dare' has no option '--versoin'" in result.stderr
    assert "did you mean '--version'? dare --help" in result.stderr


def test_unknown_flag_of_a_command(shop: LazyGroup) -> None:
    result = run(shop, "shop", "print", "--siez", "small")
    assert result.exit_code == 2
    assert "'dare shop' has no option '--siez'" in result.stderr
    assert "did you mean '--size'? dare shop --help" in result.stderr


def test_unknown_choice(shop: LazyGroup) -> None:
    result = run(shop, "shop", "print", "--size", "smal")
    assert result.exit_code == 2
    assert "'--size' cannot be 'smal'" in result.stderr
    assert "known: large, small" in result.stderr
    assert "did you mean 'small'?" in result.stderr


def test_wrong_type(shop: LazyGroup) -> None:
    result = run(shop, "shop", "print", "--count", "many")
    assert result.exit_code == 2
    assert "bad value for '--count'" in result.stderr
    assert "'many' is not a valid integer" in result.stderr


def test_missing_argument_shows_the_usage(shop: LazyGroup) -> None:
    result = run(shop, "shop")
    assert result.exit_code == 2
    assert "Missing argument 'KIND'" in result.stderr
    assert "Usage: dare shop" in result.stderr


def test_unknown_command_of_a_group(shop: LazyGroup) -> None:
    result = run(shop, "board", "biuld")
    assert result.exit_code == 2
    assert "did you mean 'build'?" in result.stderr


def test_no_command_shows_the_help_with_status_2(shop: LazyGroup) -> None:
    result = run(shop)
    assert result.exit_code == 2
    assert "Fails on request." in result.stderr
    assert result.stdout == ""


# ---- rendering -----------------------------------------------------------------------------


def test_a_name_cannot_drive_the_terminal() -> None:
    result = run(main, "\x1b[31mred\x07")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "\x07" not in result.stderr
    assert "\\x1b[31mred\\x07" in result.stderr


def test_printable_keeps_letters_of_every_script() -> None:
    assert printable("grün 数独\n\x00\x1b\u202e") == "grün 数独\n\\x00\\x1b\\u202e"


def test_reasons_are_wrapped_and_commands_are_not() -> None:
    command = "torchrun --standalone --nproc_per_node 8 " + "--option value " * 8
    text = render(UsageProblem("what " * 40, "why " * 60, f"{command}\n        second"))
    *told, first, second = text.splitlines()
    assert max(len(line) for line in told) <= 80
    assert first == f"  help: {command.strip()}"
    assert second == "        second"


def test_only_errors_are_called_errors() -> None:
    assert render(DareError("broken")) == "error: broken"
    assert render(Interrupted("stopped")) == "stopped"


# ---- output helpers ------------------------------------------------------------------------


def test_json_output_is_one_strict_document(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"nan": float("nan"), "inf": float("-inf"), "path": Path("a/b"), "t": (1, 2.5, None)}
    print_json(value)
    out = capsys.readouterr().out
    assert json.loads(out) == {"nan": None, "inf": None, "path": "a/b", "t": [1, 2.5, None]}
    assert "NaN" not in out


def test_json_output_refuses_what_it_cannot_say() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        print_json({"x": object()})


def test_progress_without_a_terminal_speaks_every_ten_seconds() -> None:
    now, stream = [0.0], io.StringIO()
    row = Progress(stream, clock=lambda: now[0]).add("seed 0", total=60)
    for done, moment in ((1, 1.0), (15, 10.0), (20, 15.0), (30, 20.0), (60, 21.0)):
        now[0] = moment
        row.update(done, f"reward 0.{done}")
    assert stream.getvalue().splitlines() == [
        "seed 0: 15/60, 30 s left, reward 0.15",
        "seed 0: 30/60, 20 s left, reward 0.30",
        "seed 0: 60/60, 0 s left, reward 0.60",
    ]


def test_progress_of_unknown_length_has_no_estimate() -> None:
    now, stream = [0.0], io.StringIO()
    row = Progress(stream, clock=lambda: now[0]).add("reading")
    now[0] = 11.0
    row.advance(7)
    assert stream.getvalue() == "reading: 7\n"
    assert row.seconds_left() is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (95, "1 min 35 s"), (3600, "1 h"), (176_400, "2 d 1 h")],
)
def test_duration_shows_the_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_every_table_entry_is_a_click_command() -> None:
    context = click.Context(main)
    for name in COMMANDS:
        assert isinstance(main.get_command(context, name), click.Command), name
