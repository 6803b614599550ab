"""What every round of a generation did to the completion, recorded while it runs.

    recorder = Recorder(config.gen_length)
    generate(model, [prompt], config, watch=recorder)
    recorder.catch_up().rounds          # one Changes per round

A round costs one copy of the completion's ids on their device; copies are read and compared only
when somebody looks, or in batches, so that generation hardly waits for it.  Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from dare.sampling.canvas import Canvas

BATCH = 64  # rounds whose copies may wait on the device


class Changes(NamedTuple):
    """The net effect of one round; positions count from the completion's first token.

    committed: position -> token that took the place of a mask.  edited: position -> tokens
    before and after.  remasked: position -> token that was taken away.
    """

    committed: dict[int, int]
    edited: dict[int, tuple[int, int]]
    remasked: dict[int, int]


@dataclass
class Trajectory:
    """A completion on its way from all masks to text.

    tokens: what stands at every position now.  written: the round, from 1, that put it there, 0
    for a mask.  edited: positions whose token has replaced another.  remasked: masks that
    were a token before.
    """

    mask: int
    tokens: list[int]
    written: list[int]
    edited: set[int] = field(default_factory=set)
    remasked: set[int] = field(default_factory=set)
    rounds: list[Changes] = field(default_factory=list)

    @classmethod
    def blank(cls, mask: int, length: int) -> Trajectory:
        return cls(mask, [mask] * length, [0] * length)

    @property
    def filled(self) -> int:
        """Positions that hold a token."""
        return sum(round > 0 for round in self.written)

    def see(self, tokens: list[int]) -> None:
        """One more round, after which the completion is ``tokens``."""
        committed, edited, remasked = {}, {}, {}
        for position, (before, after) in enumerate(zip(self.tokens, tokens, strict=True)):
            if before == after:
                continue
            if before == self.mask:
                committed[position] = after
            elif after == self.mask:
                remasked[position] = before
            else:
                edited[position] = (before, after)
        self.apply(Changes(committed, edited, remasked))

    def apply(self, changes: Changes) -> None:
        """One more round, by what it changed."""
        self.rounds.append(changes)
        for position, token in changes.committed.items():
            self._write(position, token)
            self.edited.discard(position)
        for position, (_, token) in changes.edited.items():
            self._write(position, token)
            self.edited.add(position)
        for position in changes.remasked:
            self.tokens[position], self.written[position] = self.mask, 0
            self.edited.discard(position)
            self.remasked.add(position)

    def _write(self, position: int, token: int) -> None:
        self.tokens[position], self.written[position] = token, len(self.rounds)
        self.remasked.discard(position)


class Recorder:
    """A watcher for ``generate`` that follows one row of ``length`` generated tokens."""

    def __init__(self, length: int, row: int = 0) -> None:
        self.length, self.row = length, row
        self.trajectory = Trajectory.blank(-1, length)
        self._start: int | None = None
        self._copies: list[Tensor] = []

    def __call__(self, canvas: Canvas) -> None:
        if self._start is None:
            self._start = int(canvas.first[self.row])
            self.trajectory = Trajectory.blank(canvas.special.mask, self.length)
        ids = canvas.ids[self.row, self._start : self._start + self.length]
        self._copies.append(ids.clone())
        if len(self._copies) == BATCH:
            self.catch_up()

    def catch_up(self) -> Trajectory:
        """The trajectory up to the last round."""
        copies, self._copies = self._copies, []
        for copy in copies:
            self.trajectory.see(copy.tolist())
        return self.trajectory
