"""Mixture of experts: the stacked expert MLPs, run as grouped matrix products.

In memory the experts of a layer are two 3-D weights.  On disk they are the released checkpoints'
one-by-one tensors (``mlp.experts.{e}.gate_proj.weight`` and so on): :func:`stack_experts` tells
transformers how to stack them when it loads a model class and how to split them when it saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter


class Experts(nn.Module):
    """Gated MLPs of which every token uses a few.

    The weighted outputs are multiplied and summed in the model's dtype, in the order of the
    experts' numbers, or in float32 with ``sum_in_float32``.  What a token gets does not depend on
    the other tokens of the batch, up to rounding inside the matrix products.
    """

    def __init__(
        self, hidden_size: int, intermediate_size: int, num_experts: int, sum_in_float32: bool
    ) -> None:
        super().__init__()
        self.sum_in_float32 = sum_in_float32
        width = intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(num_experts, 2 * width, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, width))

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """x (N, D); chosen (N, k) expert numbers with their weights (N, k).  Returns (N, D)."""
        chosen, order = chosen.sort(dim=-1)
        weights = weights.gather(-1, order)
        num_chosen = chosen.shape[1]
        by_expert = chosen.flatten().argsort(stable=True)
        numbers = torch.arange(self.down_proj.shape[0], device=x.device)
        ends = torch.searchsorted(chosen.flatten()[by_expert], numbers, right=True)
        inputs = x[by_expert // num_chosen]
        gate, up = grouped_linear(inputs, self.gate_up_proj, ends).chunk(2, dim=-1)
        outputs = grouped_linear(F.silu(gate) * up, self.down_proj, ends)
        back = by_expert.argsort()
        dtype = torch.float32 if self.sum_in_float32 else x.dtype
        total = torch.zeros_like(x, dtype=dtype)
        for slot in range(num_chosen):
            part = outputs[back[slot::num_chosen]].to(dtype)
            total = total + part * weights[:, slot, None].to(dtype)
        return total.to(x.dtype)


def grouped_linear(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """x (M, D) in groups that end before the rows ``ends`` (E,); group e times weight[e]^T.

    weight (E, H, D).  Returns (M, H).
    """
    if _aligned(weight) and _has_grouped_mm(x.device, x.dtype):
        return _grouped_mm(x, weight, ends)
    return _by_loop(x, weight, ends)


def _grouped_mm(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    product = getattr(F, "grouped_mm", None) or torch._grouped_mm
    out: Tensor = product(x, weight.transpose(1, 2), offs=ends.to(torch.int32))
    return out


def _by_loop(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    groups = x.tensor_split(ends[:-1].cpu())
    parts = [F.linear(rows, weight[e]) for e, rows in enumerate(groups) if len(rows)]
    return torch.cat(parts) if parts else x.new_zeros(0, weight.shape[1])


def _aligned(weight: Tensor) -> bool:
    """Whether every row starts at a multiple of 16 bytes, as the grouped kernels need."""
    unit = 16 // weight.element_size()
    return all(size % unit == 0 for size in weight.shape[1:]) and weight.is_contiguous()


@cache
def _has_grouped_mm(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch multiplies groups on the device in the dtype, both ways, and rightly."""
    if not (hasattr(F, "grouped_mm") or hasattr(torch, "_grouped_mm")):
        return False
    with torch.enable_grad():
        x = torch.linspace(-1, 1, 5 * 16, device=device).view(5, 16).to(dtype).requires_grad_()
        weight = torch.linspace(-1, 1, 3 * 32 * 16, device=device).view(3, 32, 16).to(dtype)
        weight = weight.requires_grad_()
        ends = torch.tensor([2, 2, 5], device=device)
        try:
            out = _grouped_mm(x, weight, ends)
            found = (out, *torch.autograd.grad(out, (x, weight), out.detach()))
        except (RuntimeError, NotImplementedError):
            return False
        out = _by_loop(x, weight, ends)
        expected = (out, *torch.autograd.grad(out, (x, weight), out.detach()))
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(a.float(), b.float(), rtol=0.02, atol=0.02) for a, b in pairs)


def stack_experts(model_class: type[Any]) -> None:
    """Load and save the experts of ``model_class`` under their official one-by-one names."""
    mlp = "mlp.experts"
    mapping = [
        WeightConverter(
            source_patterns=[f"{mlp}.*.gate_proj.weight", f"{mlp}.*.up_proj.weight"],
            target_patterns=f"{mlp}.gate_up_proj",
            operations=[MergeModulelist(dim=0), Concatenate(dim=1)],
        ),
        WeightConverter(
            source_patterns=f"{mlp}.*.down_proj.weight",
            target_patterns=f"{mlp}.down_proj",
            operations=[MergeModulelist(dim=0)],
        ),
    ]
    register_checkpoint_conversion_mapping(model_class.__name__, mapping, overwrite=True)


def one_by_one(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with every stacked expert weight split as on disk; the parts are views."""
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        prefix, _, kind = name.rpartition(".")
        if kind not in ("gate_up_proj", "down_proj"):
            found[name] = tensor
            continue
        for expert, weight in enumerate(tensor):
            names = ("gate_proj", "up_proj") if kind == "gate_up_proj" else ("down_proj",)
            for each, part in zip(names, weight.chunk(len(names)), strict=True):
                found[f"{prefix}.{expert}.{each}.weight"] = part
    return found
