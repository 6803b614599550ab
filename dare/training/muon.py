"""Muon: momentum, orthogonalised by Newton-Schulz, for the matrices of the blocks.

``torch.optim.Muon`` runs its iteration in bfloat16, which a CPU without bfloat16 units executes
one to two orders of magnitude more slowly than float32; this one stays in the parameters' dtype
and handles equal shapes in one batched product.  (Jordan et al., 2024.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

# Quintic coefficients of the Newton-Schulz iteration, from the method's description.
A, B, C = 3.4445, -4.7750, 2.0315


def orthogonalise(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Push the singular values of each (rows, cols) matrix of (n, rows, cols) towards 1."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; decoupled weight decay.  Parameters are matrices
    or stacks of them (experts), each orthogonalised by itself."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[tuple(parameter.shape)].append(parameter)
            for same in by_shape.values():
                self._update(same, group["lr"], group["momentum"], group["weight_decay"])

    def _update(self, same: list[Tensor], lr: float, momentum: float, decay: float) -> None:
        directions = []
        for parameter in same:
            assert parameter.grad is not None
            buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
            buffer.lerp_(parameter.grad, 1 - momentum)
            directions.append(parameter.grad.lerp(buffer, momentum))
        rows, cols = same[0].shape[-2:]
        scale = max(1.0, rows / cols) ** 0.5
        updates = orthogonalise(torch.stack(directions).view(-1, rows, cols))
        for parameter, update in zip(same, updates.chunk(len(same)), strict=True):
            parameter.mul_(1 - lr * decay).add_(update.view_as(parameter), alpha=-lr * scale)
