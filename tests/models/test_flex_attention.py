"""FlexAttention gives what SDPA gives; on a CPU it cannot train, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dare.errors import UsageProblem
from dare.models.cache import KeyValueCache
from dare.models.loading import load_model

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture(params=["dream", "llada2_moe"])
def pair(
    request: pytest.FixtureRequest, small: Callable[..., Any], tmp_path: Path
) -> tuple[Any, Any]:
    """The same model with SDPA and with FlexAttention."""
    small(request.param).save_pretrained(tmp_path)
    return (
        load_model(str(tmp_path)),
        load_model(str(tmp_path), attention="flex_attention"),
    )


def test_padded_rows_and_a_window_of_a_cache(pair: tuple[Any, Any], ids: Tensor) -> None:
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    mask[2, 9:] = 0
    used: set[str] = set()
    pair[1].layers[0].register_forward_pre_hook(lambda _, given: used.add(type(given[2]).__name__))
    caches = [KeyValueCache(length=13, batch=3) for _ in pair]
    with torch.no_grad():
        for start, stop in ((0, 13), (8, 12)):
            for cache in caches:
                cache.aim(start, stop, visible=13)
            expected, ours = (
                model(ids[:, start:stop], mask, cache=cache)
                for model, cache in zip(pair, caches, strict=True)
            )
            torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    assert used == {"BlockMask"}


def test_other_kernels_are_not_known() -> None:
    with pytest.raises(UsageProblem) as caught:
        load_model("tiny-llada", attention="flex")
    assert "flex_attention" in caught.value.help


def test_training_on_a_cpu_is_refused(pair: tuple[Any, Any], ids: Tensor) -> None:
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    with pytest.raises(UsageProblem, match="cannot train on a CPU"):
        pair[1](ids, mask)
