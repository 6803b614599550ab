"""The picture of a completion that fills in: hand-made canvases on a recorded console."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
import torch
from rich.color import Color
from rich.console import Console
from rich.style import Style

from dare.cli._denoising import (
    DIM,
    FIRST,
    FRAME,
    LAST,
    RED,
    SHARE,
    Denoising,
    Painter,
    gradient,
    legend,
    visible,
)  # fmt: skip
from dare.cli._model_text import encodable, pieces, safe
from dare.sampling.candidates import SpecialTokens
from dare.sampling.canvas import Canvas
from dare.sampling.config import SamplerConfig
from dare.sampling.trajectory import Recorder, Trajectory

MASK, EOS = 0, 1
HIDE, SHOW, RESET = "\x1b[?25l", "\x1b[?25h", "\x1b[0m"
WORDS = {1: "<eos>", 2: "ab", 3: "\x1b[2Jcd", 4: "[red]e", 5: "\u202ef"}


def decode(tokens: Sequence[int]) -> str:
    return "".join(WORDS[token] for token in tokens)


def console(width: int = 80, height: int = 12) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", width=width,
        height=height, markup=False, emoji=False, highlight=False, _environ={},
    )  # fmt: skip


def output(place: Console) -> str:
    assert isinstance(place.file, io.StringIO)
    return place.file.getvalue()


class Clock:
    """A clock that stands still unless it is moved, and that every look moves by ``cost``."""

    def __init__(self, cost: float = 0.0) -> None:
        self.now, self.cost = 0.0, cost

    def __call__(self) -> float:
        self.now += self.cost
        return self.now


CONFIG = SamplerConfig(gen_length=4, steps=4, block_length=2)


def canvas(config: SamplerConfig = CONFIG) -> Canvas:
    lengths = [config.block_length] * config.num_blocks
    special = SpecialTokens(mask=MASK, eos=EOS)
    return Canvas.start([[2, 2, 2]], config, special, lengths, torch.device("cpu"))


def trajectory(*states: list[int]) -> Trajectory:
    seen = Trajectory.blank(MASK, len(states[0]))
    for state in states:
        seen.see(state)
    return seen


# ---- the picture ---------------------------------------------------------------------------


def test_tokens_have_the_colour_of_their_round_and_masks_are_blocks() -> None:
    text = Painter(decode, {EOS}).whole(trajectory([2, 0, 0], [2, 0, 2], [2, 0, 2]))
    assert text.plain == "ab░ab"
    assert [(span.start, span.end, span.style) for span in text.spans] == [
        (0, 2, gradient(0.0)),
        (2, 3, DIM),
        (3, 5, gradient(0.5)),
    ]
    assert [gradient(share).color for share in (0.0, 1.0)] == [
        Color.from_rgb(*FIRST),
        Color.from_rgb(*LAST),
    ]


def test_edited_and_removed_tokens_are_seen_as_such() -> None:
    seen = trajectory([2, 2, 0], [4, 0, 0])
    text = Painter(decode, {EOS}).whole(seen)
    assert text.plain == "[red]e▒░"
    edited, removed, mask = (span.style for span in text.spans)
    assert edited == gradient(1.0) + Style(underline=True)
    assert (removed, mask) == (RED, DIM)
    assert legend(seen).plain.endswith("last  edited  ▒ masked again")
    assert legend(trajectory([2])).plain == "written: first ━━━━━━━━ last"


def test_ends_of_text_are_dots_and_hostile_tokens_are_escaped() -> None:
    text = Painter(decode, {EOS}).whole(trajectory([3, 5, 1, 1]))
    assert text.plain == "\\x1b[2Jcd\\u202ef··"


def test_the_answer_is_shown_as_its_own_text() -> None:
    seen = trajectory([4, 0, 1], [4, 3, 1])
    text = Painter(decode, {EOS}).answer(seen, [4, 3], decode)
    assert text.plain == "[red]e\\x1b[2Jcd"
    assert [span.style for span in text.spans] == [gradient(0.0), gradient(1.0)]


def test_a_long_text_is_cut_around_the_first_mask() -> None:
    lines = ["x"] * 20
    assert visible(lines[:5], 5) == slice(0, 5)
    assert visible(lines, 5) == slice(15, 20)
    assert visible([*lines[:9], "x░", *lines[10:]], 6) == slice(7, 13)
    assert visible(["▒", *lines], 6) == slice(0, 6)


# ---- on a terminal -------------------------------------------------------------------------


def test_rounds_are_drawn_with_block_forwards_and_pace() -> None:
    place, clock, state = console(), Clock(), canvas()
    with Denoising(place, Recorder(4), Painter(decode, {EOS}), CONFIG, "sample 1/2", clock) as view:
        state.ids[0, 3] = 2
        clock.now = 2.0
        view(state)
        status = "sample 1/2  block 1/2  1 forwards  1/4 tokens  0.5 tokens/s  6 s left"
        assert status in output(place)
        assert f"ab{RESET}\x1b[2m░░░{RESET}\n" in output(place)
        state.ids[0, 4:6] = 4
        clock.now = 4.0
        view(state)
        assert "block 2/2  2 forwards  3/4 tokens  0.8 tokens/s  4 s left" in output(place)
    assert output(place).index(HIDE) < output(place).index(SHOW)


def test_guidance_counts_both_forwards() -> None:
    config = CONFIG.model_copy(update={"cfg_scale": 1.0})
    view = Denoising(console(), Recorder(4), Painter(decode, {EOS}), config)
    assert view.status(trajectory([2, 0, 0, 0], [2, 2, 0, 0]), 1.0).startswith("4 forwards")


def test_the_terminal_is_given_back_when_interrupted() -> None:
    place, state = console(), canvas()
    view = Denoising(place, Recorder(4), Painter(decode, {EOS}), CONFIG)

    def interrupted() -> None:
        with view:
            view(state)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert output(place).count(HIDE) == output(place).count(SHOW) == 1
    assert output(place).endswith("\x1b[2K")  # what was drawn is gone


def test_frames_are_few_however_many_rounds() -> None:
    clock, state = Clock(), canvas()
    with Denoising(console(), Recorder(4), Painter(decode, {EOS}), CONFIG, "", clock) as view:
        for _ in range(1000):
            clock.now += 0.001
            view(state)
    assert 10 <= view.frames <= 1 + 1 / FRAME  # one second, and the empty frame


def test_a_slow_terminal_is_drawn_on_less_often() -> None:
    """Each look at the clock costs 0.1 s, so a frame does: the next waits 25 times as long."""
    clock, state = Clock(cost=0.1), canvas()
    with Denoising(console(), Recorder(4), Painter(decode, {EOS}), CONFIG, "", clock) as view:
        while clock.now < 30:
            view(state)
    assert SHARE == 0.04
    assert view.frames == 1 + 30 // (0.1 / SHARE)


def test_what_was_too_fast_is_shown_again_slowly() -> None:
    place, state, waits = console(), canvas(), list[float]()
    with Denoising(place, Recorder(4), Painter(decode, {EOS}), CONFIG, "", Clock()) as view:
        for position in range(4):
            state.ids[0, 3 + position] = 2
            view(state)
        assert "4/4 tokens" not in output(place)
        view.replay(0.03, waits.append)
        view.replay(2.5, lambda _: pytest.fail("that was slow enough"))
    assert waits == [FRAME] * 4
    for count in range(1, 5):
        assert f"{count} forwards  {count}/4 tokens  shown slowly: it took 0.03 s" in output(place)


# ---- text of a model -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten\b", "over\\rwritten\\x08"),
        ("\u202egnp.exe\u2066\u200f", "\\u202egnp.exe\\u2066\\u200f"),
        ("\x00\u2028\ufeff", "\\x00\\u2028\\ufeff"),
        ("[bold]\\x1b[/]", "[bold]\\x1b[/]"),
        (
            "line\n\tcode  \u3000שלום ❤\ufe0f 👩\u200d💻",
            "line\n\tcode  \u3000שלום ❤\ufe0f 👩\u200d💻",
        ),
    ],
)
def test_only_what_cannot_drive_a_terminal_is_left(hostile: str, shown: str) -> None:
    assert safe(hostile) == shown


def test_what_an_encoding_lacks_is_escaped() -> None:
    assert encodable("a─é", "latin-1") == "a\\u2500é"
    assert encodable("a─é", None) == "a─é"


def test_a_character_of_several_tokens_is_one_piece() -> None:
    parts = {1: b"a", 2: b"\xe2", 3: b"\x94", 4: b"\x80", 5: b"\xff"}

    def of_bytes(tokens: Sequence[int]) -> str:
        return b"".join(parts[token] for token in tokens).decode(errors="replace")

    assert list(pieces([1, 2, 3, 4, 1], of_bytes)) == [(0, "a"), (3, "─"), (4, "a")]
    assert "".join(text for _, text in pieces([5, 1], of_bytes)) == "\ufffda"
    assert list(pieces([2, 3], of_bytes)) == [(1, "\ufffd")]
