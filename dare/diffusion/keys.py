"""Keyed randomness: every draw comes from (run seed, stream, step, sample, draw).

Nothing in ``dare`` uses a global generator.  A key names a draw by what it is for, so
masks and samples do not depend on the micro-batch split, the batch order, the number of
processes, each other, or on having been interrupted.

    key = RunKey(seed=0).at("mask", step=12, sample=3, draw=1)
    u = torch.rand(16, generator=key.generator())
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import numpy as np
    import torch

Stream = Literal["data", "init", "rollout", "mask", "dropout", "eval", "bootstrap", "control"]


@dataclass(frozen=True, slots=True)
class Key:
    """One named draw.  ``seed63()`` is a 63-bit hash of the five parts."""

    seed: int
    stream: Stream
    step: int = 0
    sample: int = 0
    draw: int = 0

    def seed63(self) -> int:
        """A non-negative 63-bit integer, equal on every platform (BLAKE2b)."""
        text = f"dare/1|{self.seed}|{self.stream}|{self.step}|{self.sample}|{self.draw}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def generator(self, device: str | torch.device = "cpu") -> torch.Generator:
        """A fresh torch generator for this draw on ``device``."""
        import torch

        return torch.Generator(device=device).manual_seed(self.seed63())

    def numpy(self) -> np.random.Generator:
        """A fresh numpy generator (PCG64) for this draw."""
        import numpy as np

        return np.random.Generator(np.random.PCG64(self.seed63()))


@dataclass(frozen=True, slots=True)
class RunKey:
    """The root of a run's randomness."""

    seed: int

    def at(self, stream: Stream, step: int = 0, sample: int = 0, draw: int = 0) -> Key:
        """The key of one draw; an unknown stream is an error, not a new stream."""
        if stream not in get_args(Stream):
            raise ValueError(f"unknown random stream '{stream}'; known: {get_args(Stream)}")
        return Key(self.seed, stream, step, sample, draw)
