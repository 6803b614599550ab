"""Expert load without an auxiliary loss (Wang et al., 2024, arXiv 2408.15664).

A router chooses by score plus bias and weighs by the score alone, so a bias that rises for
experts with less than their share and falls for the others evens the load out and adds nothing
to the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class LoadBalance:
    """Moves the ``expert_bias`` of a model's routers by ``rate`` per step; none: does nothing."""

    def __init__(self, model: nn.Module, rate: float) -> None:
        self.rate = rate
        self.loads: dict[nn.Module, Tensor] = {}
        for module in model.modules():
            if rate and hasattr(module, "expert_bias"):
                module.register_forward_hook(self._count)

    def _count(self, router: Any, _: object, output: tuple[Tensor, Tensor]) -> None:
        """Count who was chosen, in forwards that are trained on."""
        if torch.is_grad_enabled():
            load = torch.bincount(output[0].flatten(), minlength=len(router.expert_bias))
            self.loads[router] = self.loads.get(router, torch.zeros_like(load)) + load

    def step(self, factor: float = 1.0) -> None:
        """Towards equal loads by ``factor * rate``, whatever the distance."""
        for router, load in self.loads.items():
            missing = (load.float().mean() - load).sign()
            router.expert_bias.add_(missing, alpha=self.rate * factor)  # type: ignore[operator]
        self.loads.clear()
