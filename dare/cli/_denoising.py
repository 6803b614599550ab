"""Denoising as it happens: a completion whose masks fill in, on a terminal.

Tokens are coloured by the round that wrote them, from blue (first) to orange (last).  Tokens that
replaced another are underlined; masks are shaded, in red where a token was taken away again; ends
of text are dots.  Drawing is paced by what it costs, so that it takes a small share of the time
whatever the terminal.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from rich.color import Color
from rich.console import Console, Group
from rich.live import Live
from rich.style import Style
from rich.text import Text

from dare.cli._model_text import Decode, pieces, safe
from dare.cli._output import duration
from dare.sampling.config import SamplerConfig
from dare.sampling.trajectory import Recorder, Trajectory

if TYPE_CHECKING:
    from dare.sampling.canvas import Canvas

FRAME = 1 / 12  # seconds between two frames, at least
SHARE = 0.04  # of the time that drawing may take
FIRST, MIDDLE, LAST = (76, 141, 255), (176, 107, 232), (255, 140, 66)
SHADES = 24
MASK, REMASKED, END = "░", "▒", "·"
DIM, RED, UNDERLINED = Style(dim=True), Style(color="red"), Style(underline=True)
REPLAY = 2.0  # seconds: a generation that took less is shown again, and in no more than this


def gradient(share: float) -> Style:
    """The colour of a round, by when it was: 0 the first, 1 the last."""
    return _shade(round(min(1.0, max(0.0, share)) * (SHADES - 1)))


@cache
def _shade(number: int) -> Style:
    place = number / (SHADES - 1)
    low, high, at = (FIRST, MIDDLE, 2 * place) if place < 0.5 else (MIDDLE, LAST, 2 * place - 1)
    red, green, blue = (round(a + (b - a) * at) for a, b in zip(low, high, strict=True))
    return Style(color=Color.from_rgb(red, green, blue))


@dataclass(frozen=True)
class Painter:
    """How tokens look.  ``ends`` are the ids that end or fill a completion."""

    decode: Decode
    ends: Collection[int]
    _alone: dict[int, str] = field(default_factory=dict)  # what a token says by itself

    def whole(self, trajectory: Trajectory, rounds: int | None = None) -> Text:
        """The completion as it stands.

        ``rounds`` are those that there will be, where that is known; else colours are relative
        to the rounds so far.
        """
        rounds = rounds or len(trajectory.rounds)
        cells = [
            self._cell(trajectory, position, rounds) for position in range(len(trajectory.tokens))
        ]
        text = Text()
        for style, run in groupby(cells, key=lambda cell: cell[1]):
            text.append("".join(shown for shown, _ in run), style)
        return text

    def _cell(self, trajectory: Trajectory, position: int, rounds: int) -> tuple[str, Style]:
        token = trajectory.tokens[position]
        if token == trajectory.mask:
            return (REMASKED, RED) if position in trajectory.remasked else (MASK, DIM)
        if token not in self._alone:
            self._alone[token] = END if token in self.ends else safe(self.decode([token]))
        return self._alone[token], self._style(trajectory, position, rounds)

    def answer(self, trajectory: Trajectory, tokens: Sequence[int], decode: Decode) -> Text:
        """``tokens``, the beginning of the completion, as the text that ``decode`` gives."""
        text, rounds = Text(), len(trajectory.rounds)
        for position, piece in pieces(tokens, decode):
            text.append(safe(piece), self._style(trajectory, position, rounds))
        return text

    def _style(self, trajectory: Trajectory, position: int, rounds: int) -> Style:
        written = trajectory.written[position]
        if not written:
            return DIM  # filled in after the completion had ended
        style = gradient((written - 1) / max(1, rounds - 1))
        return style + UNDERLINED if position in trajectory.edited else style


def legend(trajectory: Trajectory) -> Text:
    """What the colours mean."""
    text = Text("written: first ", "dim")
    for step in range(8):
        text.append("━", gradient(step / 7))
    text.append(" last", "dim")
    if trajectory.edited:
        text.append("  ").append("edited", "underline dim")
    if trajectory.remasked:
        text.append("  ").append(f"{REMASKED} masked again", "red")
    return text


class Denoising:
    """A watcher for ``generate`` that shows one row on ``console``.

    with Denoising(console, recorder, painter, config, "sample 1/2") as view:
        out = generate(model, [prompt], config, keys, special, watch=view)
    """

    def __init__(
        self,
        console: Console,
        recorder: Recorder,
        painter: Painter,
        config: SamplerConfig,
        label: str = "",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.console, self.recorder, self.painter, self.config = console, recorder, painter, config
        self.label, self.clock = label, clock
        self.passes = 2 if config.cfg_scale > 0 else 1
        planned = config.selection.spends_steps == "all"
        self.planned = config.nfe // self.passes if planned else None
        self.ends: list[int] = []  # of the blocks, counted from the completion's first token
        self.frames = 0
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._begun = self._due = 0.0

    def __enter__(self) -> Denoising:
        self._live.start()
        blank = Trajectory.blank(-1, self.config.gen_length)
        self._draw(blank, 0.0)
        self._begun = self.clock()
        self._due = self._begun + FRAME
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, canvas: Canvas) -> None:
        """One more round."""
        self.recorder(canvas)
        now = self.clock()
        if now < self._due:
            return
        self._learn_blocks(canvas)
        self._draw(self.recorder.catch_up(), now - self._begun)
        after = self.clock()
        self._due = after + max(FRAME, (after - now) / SHARE)

    def replay(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Show a generation that took ``seconds`` again, slowly, if it was too short to see."""
        seen = self.recorder.catch_up()
        if seconds > REPLAY or not seen.rounds:
            return
        count = len(seen.rounds)
        every = math.ceil(count * FRAME / REPLAY)  # rounds in a frame
        again = Trajectory.blank(seen.mask, len(seen.tokens))
        for number, changes in enumerate(seen.rounds, 1):
            again.apply(changes)
            if number % every == 0 or number == count:
                self._draw(again, seconds, slowed=True)
                sleep(FRAME)

    def _learn_blocks(self, canvas: Canvas) -> None:
        if not self.ends:
            start = int(canvas.first[self.recorder.row])
            self.ends = [block.stop - start for block in canvas.blocks if block.stop > start]

    def _draw(self, trajectory: Trajectory, seconds: float, slowed: bool = False) -> None:
        self.frames += 1
        width, height = self.console.size
        rounds = self.planned or (len(self.recorder.trajectory.rounds) if slowed else None)
        text = self.painter.whole(trajectory, rounds)
        lines = text.wrap(self.console, width)
        shown = visible([line.plain for line in lines], max(1, height - 4))
        status = Text(self.status(trajectory, seconds, slowed), "bold", no_wrap=True)
        body = Group(*lines[shown], Text(""), status, legend(trajectory))
        self._live.update(body, refresh=True)

    def status(self, trajectory: Trajectory, seconds: float, slowed: bool = False) -> str:
        """The line below the text."""
        total, filled, rounds = len(trajectory.tokens), trajectory.filled, len(trajectory.rounds)
        first = next((i for i, round in enumerate(trajectory.written) if not round), total - 1)
        parts = [self.label] if self.label else []
        if len(self.ends) > 1:
            done = sum(end <= first for end in self.ends)
            parts.append(f"block {min(done + 1, len(self.ends))}/{len(self.ends)}")
        parts += [f"{rounds * self.passes} forwards", f"{filled}/{total} tokens"]
        if slowed:
            return "  ".join([*parts, f"shown slowly: it took {seconds:.2f} s"])
        if filled and seconds > 0:
            parts.append(f"{filled / seconds:.1f} tokens/s")
            share = rounds / self.planned if self.planned else filled / total
            if share < 1:
                parts.append(f"{duration(seconds * (1 - share) / share)} left")
        return "  ".join(parts)


def visible(lines: Sequence[str], height: int) -> slice:
    """Which of ``lines`` a window of ``height`` shows: the first mask, or else the end."""
    if len(lines) <= height:
        return slice(0, len(lines))
    masks = (i for i, line in enumerate(lines) if MASK in line or REMASKED in line)
    first = next(masks, len(lines))
    start = max(0, min(first - height // 3, len(lines) - height))
    return slice(start, start + height)
