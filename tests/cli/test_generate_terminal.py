"""``dare generate`` on a terminal, and what it says about one completion."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from dare.cli import generate as module
from dare.cli import main
from dare.cli._denoising import Denoising
from dare.cli._generation import Sample
from dare.cli._generation_report import measures, next_commands, print_text
from dare.cli._generation_setup import Sampler
from dare.sampling.presets import preset

PUZZLE = "1030040201434001"


# ---- a terminal ----------------------------------------------------------------------------


def on_a_terminal(*words: str, interrupt_at: bytes = b"") -> tuple[int, bytes]:
    """Run in a pseudo-terminal; Ctrl-C is typed when ``interrupt_at`` is seen."""
    parent, child = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    running = subprocess.Popen(
        [sys.executable, "-m", "dare", "generate", *words], stdin=child, stdout=child,
        stderr=child, env=environment | {"TERM": "xterm-256color"}, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(child)
    seen, typed = b"", not interrupt_at
    while select.select([parent], [], [], 120)[0]:
        try:
            seen += os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not typed and interrupt_at in seen:
            os.write(parent, b"\x03")
            typed = True
    os.close(parent)
    return running.wait(), seen


def test_ctrl_c_in_the_middle_gives_the_terminal_back() -> None:
    words = ("tiny-llada", PUZZLE, "--gen-length", "96", "-n", "900", "--temperature", "1")
    status, seen = on_a_terminal(*words, interrupt_at=b"tokens/s")
    assert status == 130
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") > 0
    assert b"\x1b[2m\xe2\x96\x91" in seen  # masks
    assert b"interrupted" in seen[seen.rindex(b"\x1b[?25h") :]
    assert b"dare generate tiny-llada" in seen


@pytest.mark.parametrize(
    ("variables", "as_json", "terminals", "live"),
    [
        ({}, False, (True, True), True),
        ({}, True, (True, True), False),
        ({}, False, (False, True), False),
        ({}, False, (True, False), False),
        ({"NO_COLOR": "1"}, False, (True, True), False),
        ({"NO_COLOR": ""}, False, (True, True), True),
        ({"TERM": "dumb"}, False, (True, True), False),
    ],
)
def test_when_there_is_a_view(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    as_json: bool,
    terminals: tuple[bool, bool],
    live: bool,
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for stream, terminal in zip((sys.stdout, sys.stderr), terminals, strict=True):
        monkeypatch.setattr(stream, "isatty", lambda terminal=terminal: terminal)
    assert module.is_live(as_json) is live


def test_the_view_changes_nothing_about_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["generate", "tiny-llada", PUZZLE]
    plain = CliRunner().invoke(main, words)
    replayed: list[float] = []
    monkeypatch.setattr(module, "is_live", lambda _: True)
    monkeypatch.setattr(Denoising, "replay", lambda _, seconds: replayed.append(seconds))
    shown = CliRunner().invoke(main, [*words, "-n", "2"])
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout == 2 * plain.stdout
    assert shown.stderr.count("written: first") >= 2
    assert len(replayed) == 1  # the first sample alone


# ---- what is said about one completion -----------------------------------------------------


def completion(answer: int, length: int = 8, masks: int = 0) -> Sample:
    nothing: Any = SimpleNamespace()
    return Sample(0, nothing, [0] * length, answer, 6, masks, 2.0, None)


def test_tokens_are_counted_up_to_the_stop_token() -> None:
    assert measures(completion(4), chat=True) == [
        "4 tokens (up to the stop token) in 2.00 s of generation: 2.0 tokens/s",
        "6 forwards, 1.50 per token",
    ]
    assert measures(completion(0), chat=True)[1] == "6 forwards"


def test_an_answer_without_an_end_may_be_cut_off_where_ends_are_trained() -> None:
    assert measures(completion(8), chat=True)[2] == (
        "it may be cut off: --gen-length 16 leaves more room"
    )
    assert len(measures(completion(8), chat=False)) == 2


def test_left_over_masks_are_told() -> None:
    one = completion(8, masks=3)
    assert not one.finished
    assert measures(one, chat=True)[2] == (
        "NOT FINISHED: 3 of 8 positions still hold a mask; give it more --steps"
    )


def test_text_is_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    print_text("word " * 100)
    assert capsys.readouterr().out == "word " * 100 + "\n"


def test_the_next_command_can_be_copied_or_is_left_out() -> None:
    exact = Sampler("llada", preset("llada", 8), preset("llada", 8), "")
    rough = Sampler("saber", preset("saber", 8), preset("llada", 8), "is not the same")
    assert next_commands(["generate", "m", "a b"], exact, False)[0] == (
        "dare generate m 'a b' --json"
    )
    assert next_commands(["generate", "m", "x"], rough, False)[0].endswith(" --agreement")
    assert next_commands(["generate", "m", "x"], rough, True)[0].endswith(" --json")
    assert next_commands(["generate", "m", "x" * 500], exact, False) == ["dare list samplers"]
