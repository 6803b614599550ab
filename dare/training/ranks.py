"""The processes that share one run, as ``torchrun`` started them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dare.algorithms.base import LossNormaliser, Prepared

T = TypeVar("T")


def summed(values: Sequence[float]) -> list[float]:
    """Sums over the processes that share the run; in a run of one the values as they are.

    Every process must call this at the same point.
    """
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return list(values)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return [float(value) for value in total]


def any_process(flag: bool) -> bool:
    """Whether ``flag`` is set in any of the processes: what one does, all must do."""
    return summed([float(flag)])[0] > 0


def rescaled(prepared: Prepared, normaliser: LossNormaliser) -> Prepared:
    """The token weights that this process's samples have in the batch of all processes.

    The weights of a process add up to one and gradients are averaged over the processes.  That
    is the batch mean only where all hold equally much of what the normaliser counts.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return prepared
    tokens = prepared.needed.sum(1)
    counts = {
        "batch_tokens": tokens.sum(),
        "sequence": tokens.gt(0).sum(),
        "group_tokens": tokens.view(-1, prepared.rollout.group_size).sum(1).gt(0).sum(),
    }
    mine = float(counts[normaliser])
    factor = mine * dist.get_world_size() / max(1.0, summed([mine])[0])
    return replace(prepared, weights=prepared.weights * factor)


@dataclass(frozen=True)
class Ranks:
    """This process among ``size``; a run of one process is rank 0 of 1."""

    rank: int = 0
    local: int = 0
    size: int = 1

    @classmethod
    def here(cls) -> Ranks:
        """From the environment that ``torchrun`` sets."""
        read = os.environ.get
        return cls(int(read("RANK", 0)), int(read("LOCAL_RANK", 0)), int(read("WORLD_SIZE", 1)))

    @property
    def first(self) -> bool:
        return self.rank == 0

    def join(self) -> None:
        """Connect to the others and wait until the first process has prepared the folder."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        if torch.cuda.is_available():
            torch.cuda.set_device(self.local)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        dist.barrier()

    def interleave(self, part: Sequence[T]) -> list[T]:
        """Every process's part put back in order, where rank r holds rows r, r + size, ..."""
        if self.size == 1:
            return list(part)
        import torch.distributed as dist

        parts: list[Sequence[T]] = [[] for _ in range(self.size)]
        dist.all_gather_object(parts, part)
        total = sum(map(len, parts))
        return [parts[row % self.size][row // self.size] for row in range(total)]
