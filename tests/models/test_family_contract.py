"""What every family promises to whoever calls it, on small models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dare.errors import UsageProblem
from dare.models.base import DiffusionLM
from dare.models.cache import KeyValueCache
from dare.models.families import FAMILIES

BLOCK_CAUSAL = ("sdar", "sdar_moe", "llada2_moe")
BIDIRECTIONAL = ("llada", "llada_moe", "dream")
Build = Callable[..., Any]

every_family = pytest.mark.parametrize("family", list(FAMILIES))


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("llada", [-0.4135, 0.7956, -1.0466, 1.1250]),
        ("llada_moe", [-0.7747, 0.9347, -0.9407, 0.7916]),
        ("dream", [-0.3995, 0.6329, -0.7620, 0.7655]),
        ("sdar", [-0.8564, 0.7373, -0.4967, 0.1741]),
        ("sdar_moe", [-0.8148, 0.6951, -0.4609, 0.1506]),
        ("llada2_moe", [-0.5261, 0.8256, -0.9890, 0.9893]),
    ],
)
def test_logits_stay_what_they_were(
    small: Build, ids: Tensor, family: str, expected: list[float]
) -> None:
    """Recorded in float64 from code that matched the official numbers of every family."""
    logits = small(family)(ids)[1, 7, :4]
    assert logits.tolist() == pytest.approx(expected, abs=2e-4)


def padded(ids: Tensor, side: str) -> tuple[Tensor, Tensor]:
    """Rows of 13, 8 and 5 tokens with arbitrary tokens at the pads; and their mask."""
    mask = torch.ones_like(ids)
    out = ids.clone()
    for row, length in enumerate((13, 8, 5)):
        pads = slice(0, 13 - length) if side == "left" else slice(length, 13)
        mask[row, pads] = 0
        real = slice(13 - length, 13) if side == "left" else slice(0, length)
        out[row, real] = ids[row, :length]
    return out, mask


@every_family
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_alone_equals_the_row_in_a_padded_batch(
    small: Build, ids: Tensor, family: str, side: str
) -> None:
    model = small(family)
    batch, mask = padded(ids, side)
    together = model(batch, mask)
    assert torch.isfinite(together).all()
    for row, length in enumerate((13, 8, 5)):
        alone = model(ids[row : row + 1, :length])
        torch.testing.assert_close(together[row][mask[row].bool()], alone[0], atol=1e-5, rtol=0)


@every_family
def test_what_stands_at_a_pad_changes_nothing(small: Build, ids: Tensor, family: str) -> None:
    model = small(family)
    batch, mask = padded(ids, "left")
    other = torch.where(mask.bool(), batch, (batch + 11) % 40)
    real = mask.bool()
    torch.testing.assert_close(
        model(batch, mask)[real], model(other, mask)[real], atol=1e-6, rtol=0
    )


@every_family
def test_no_query_is_blind(small: Build, ids: Tensor, family: str) -> None:
    """Whatever is asked for, the kernels get a key for every query: here a window of a cache
    that shows nothing real yet, and an explicit mask with empty rows."""
    seen: list[Tensor] = []
    model = small(family)
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, given: seen.append(given[2]))
    batch, mask = padded(ids, "left")
    cache = KeyValueCache(length=13, batch=3)
    cache.aim(0, 4)
    model(batch[:, :4], mask, cache=cache)
    real = mask.bool()
    model(batch, position_ids=mask.cumsum(-1) - mask, attend=real[:, None] & real[:, :, None])
    assert len(seen) == 4
    assert all(bool(given.any(-1).all()) for given in seen)


@every_family
def test_rows_of_nothing_but_padding_stay_finite(small: Build, ids: Tensor, family: str) -> None:
    mask = torch.ones_like(ids)
    mask[1] = 0
    assert torch.isfinite(small(family)(ids, mask)).all()


@every_family
def test_blocks_decide_what_a_later_token_reaches(small: Build, ids: Tensor, family: str) -> None:
    """Changing token 9 moves rows 8.. of a model with blocks of 4, and every row of the others.

    Where the head lags (Dream) the row of the first token is its own, as everywhere.
    """
    model = small(family)
    changed = ids.clone()
    changed[:, 9] = 3
    moved = (model(ids) - model(changed)).abs().amax(dim=(0, 2)) > 1e-6
    expected = [family in BIDIRECTIONAL or index >= 8 for index in range(13)]
    assert moved.tolist() == expected


def test_dream_s_row_i_is_the_raw_row_before_it(
    small: Build, ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small("dream")
    batch, mask = padded(ids, "left")
    aligned = model(batch, mask)
    monkeypatch.setattr(type(model), "aligned", DiffusionLM.aligned)
    raw = model(batch, mask)
    for row, length in enumerate((13, 8, 5)):
        first = 13 - length
        assert torch.equal(aligned[row, first], raw[row, first])
        assert torch.equal(aligned[row, first + 1 :], raw[row, first:-1])


@every_family
def test_needed_rows_and_targets(small: Build, ids: Tensor, family: str) -> None:
    model = small(family)
    needed = (ids % 3) == 0
    logits = model(ids)[needed]
    torch.testing.assert_close(model(ids, positions=needed), logits, atol=1e-5, rtol=0)
    expected = logits.float().log_softmax(-1)
    targets = ids[needed]
    ours = model(ids, positions=needed, targets=targets)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, expected.gather(1, targets[:, None])[:, 0], atol=1e-5, rtol=0)


@every_family
def test_a_sequence_longer_than_the_context_is_an_error(small: Build, family: str) -> None:
    with pytest.raises(UsageProblem, match="a sequence of 65 tokens"):
        small(family)(torch.ones(1, 65, dtype=torch.long))


# ---- cache -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", BLOCK_CAUSAL)
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_blocks_on_a_cache_equal_one_forward(
    small: Build, ids: Tensor, family: str, side: str | None
) -> None:
    """With padding at the left a piece need not end where a block of a row ends, so whole
    columns are fed in pieces and the last piece again."""
    model = small(family)
    batch, mask = (ids, None) if side is None else padded(ids, side)
    full = model(batch, mask)
    cache = KeyValueCache(length=13, batch=3)
    pieces = []
    for start, stop in ((0, 4), (4, 12), (12, 13)):
        cache.aim(start, stop)
        pieces.append(model(batch[:, start:stop], mask, cache=cache))
    ours = torch.cat(pieces, dim=1)
    assert torch.isfinite(ours).all()
    for row, length in enumerate((13, 8, 5) if side else (13, 13, 13)):
        # Left padding of a whole number of blocks keeps the pieces whole for that row.
        if side == "left" and (13 - length) % 4:
            continue
        real = slice(13 - length, 13) if side == "left" else slice(0, length)
        torch.testing.assert_close(ours[row, real], full[row, real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", BIDIRECTIONAL)
def test_a_cache_aimed_at_everything_equals_no_cache(
    small: Build, ids: Tensor, family: str
) -> None:
    model = small(family)
    batch, mask = padded(ids, "left")
    cache = KeyValueCache(length=13, batch=3)
    cache.aim(0, 13)
    torch.testing.assert_close(
        model(batch, mask, cache=cache), model(batch, mask), atol=1e-6, rtol=0
    )


@every_family
def test_a_window_on_fresh_keys_equals_the_full_forward(
    small: Build, ids: Tensor, family: str
) -> None:
    """Nothing changed since the cache was filled, so a window of the canvas repeats its rows;
    where the head lags, the window's first row has no row before it."""
    model = small(family)
    batch, mask = padded(ids, "left")
    cache = KeyValueCache(length=13, batch=3)
    cache.aim(0, 13)
    full = model(batch, mask, cache=cache)
    cache.aim(8, 12, visible=13)
    window = model(batch[:, 8:12], mask, cache=cache)
    first = 1 if family == "dream" else 0
    torch.testing.assert_close(window[:, first:], full[:, 8 + first : 12], atol=1e-5, rtol=0)


@every_family
def test_some_rows_of_a_cache(small: Build, ids: Tensor, family: str) -> None:
    """Rows 2 and 0 alone, in that order; row 1 keeps what it had."""
    model = small(family)
    cache = KeyValueCache(length=13, batch=3)
    cache.aim(0, 13)
    full = model(ids, cache=cache)
    chosen = torch.tensor([2, 0])
    cache.aim(4, 12, visible=13, rows=chosen)
    part = model(ids[chosen, 4:12], cache=cache)
    first = 1 if family == "dream" else 0
    torch.testing.assert_close(part[:, first:], full[chosen, 4 + first : 12], atol=1e-5, rtol=0)
    cache.aim(4, 12, visible=13)
    again = model(ids[:, 4:12], cache=cache)
    torch.testing.assert_close(again[:, first:], full[:, 4 + first : 12], atol=1e-5, rtol=0)


# ---- training --------------------------------------------------------------------------------


def gradients(model: Any, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    with torch.enable_grad():
        logits = model(ids, mask).float().log_softmax(-1)
        logits.gather(-1, ids[..., None])[mask.bool()].mean().backward()
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


@every_family
def test_every_weight_gets_a_gradient_with_and_without_checkpointing(
    small: Build, ids: Tensor, family: str
) -> None:
    model = small(family).train()
    batch, mask = padded(ids, "left")
    plain = gradients(model, batch, mask)
    assert plain.keys() == dict(model.named_parameters()).keys()
    assert all(bool(grad.abs().max() > 0) for grad in plain.values())
    model.gradient_checkpointing_enable()
    checkpointed = gradients(model, batch, mask)
    assert all(torch.equal(checkpointed[name], plain[name]) for name in plain)


@every_family
def test_adapters_on_the_usual_layers(small: Build, ids: Tensor, family: str) -> None:
    peft = pytest.importorskip("peft")
    model = small(family)
    targets = list(model.lora_targets)
    settings = peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
    before = model(ids)
    adapted = peft.get_peft_model(model, settings).train()
    mask = torch.ones_like(ids)
    plain = gradients(adapted, ids, mask)
    assert {name.split(".lora_")[0].rsplit(".", 1)[1] for name in plain} == set(targets)
    assert all(bool(grad.abs().max() > 0) for grad in plain.values())
    adapted.gradient_checkpointing_enable()
    adapted.enable_input_require_grads()
    checkpointed = gradients(adapted, ids, mask)
    assert all(torch.equal(checkpointed[name], plain[name]) for name in plain)
    after = adapted.eval()(ids)
    assert (after - before).abs().max() > 1e-3
    merged = adapted.merge_and_unload()
    assert type(merged) is FAMILIES[family]
    torch.testing.assert_close(merged(ids), after, atol=1e-5, rtol=0)


@every_family
def test_adapters_on_the_head_are_refused(small: Build, ids: Tensor, family: str) -> None:
    """The head's weight is read past them, so they would never learn."""
    peft = pytest.importorskip("peft")
    head = "transformer.ff_out" if family == "llada" else "lm_head"
    model = peft.get_peft_model(small(family), peft.LoraConfig(target_modules=[head]))
    with pytest.raises(UsageProblem, match="adapters on the output head"):
        model(ids)


@pytest.mark.parametrize("family", ["sdar", "sdar_moe", "llada2_moe"])
@pytest.mark.parametrize("length", range(1, 10))
def test_blocks_of_every_length_of_input(
    small: Build, ids: Tensor, family: str, length: int
) -> None:
    model = small(family)
    places = torch.arange(length)
    seen = (places[:, None] // 4 >= places[None, :] // 4)[None]
    given = model(ids[:, :length], position_ids=places[None], attend=seen)
    torch.testing.assert_close(model(ids[:, :length]), given, rtol=0, atol=1e-5)
