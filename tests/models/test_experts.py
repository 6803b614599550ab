"""Stacked experts against one expert after the other; the routers against their rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dare.models import experts
from dare.models.experts import Experts, one_by_one

TOKENS, WIDTH, HIDDEN, COUNT, CHOSEN = 11, 16, 8, 6, 3


@pytest.fixture
def layer() -> Experts:
    torch.manual_seed(0)
    made = Experts(WIDTH, HIDDEN, COUNT, sum_in_float32=False)
    torch.nn.init.normal_(made.gate_up_proj, std=0.3)
    torch.nn.init.normal_(made.down_proj, std=0.3)
    return made


@pytest.fixture
def routed() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, their experts (number 4 gets none) and weights."""
    torch.manual_seed(1)
    allowed = torch.tensor([0, 1, 2, 3, 5])
    chosen = torch.stack([allowed[torch.randperm(5)[:CHOSEN]] for _ in range(TOKENS)])
    return torch.randn(TOKENS, WIDTH), chosen, torch.rand(TOKENS, CHOSEN)


def token_by_token(layer: Experts, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """The definition, in float64."""
    rows = []
    for token in range(len(x)):
        total = torch.zeros(WIDTH, dtype=torch.float64)
        for slot in range(chosen.shape[1]):
            expert = int(chosen[token, slot])
            gate, up = (layer.gate_up_proj[expert].double() @ x[token].double()).chunk(2)
            output = layer.down_proj[expert].double() @ (F.silu(gate) * up)
            total = total + weights[token, slot].double() * output
        rows.append(total)
    return torch.stack(rows)


@pytest.mark.parametrize("grouped", [True, False])
def test_outputs_and_gradients_follow_the_definition(
    layer: Experts, routed: tuple[Tensor, ...], grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "_has_grouped_mm", lambda device, dtype: grouped)
    x, chosen, weights = routed
    inputs = (x.requires_grad_(), weights.requires_grad_(), *layer.parameters())
    ours = layer(x, chosen, weights)
    expected = token_by_token(layer, x, chosen, weights)
    torch.testing.assert_close(ours.double(), expected, atol=1e-5, rtol=0)
    found = torch.autograd.grad(ours.square().sum(), inputs)
    right = torch.autograd.grad(expected.square().sum(), inputs)
    for one, other in zip(found, right, strict=True):
        assert other.abs().max() > 0
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_this_torch_has_grouped_products_on_the_cpu_or_says_so() -> None:
    """The probe agrees with what happens: a product that it promises can be made."""
    if not experts._has_grouped_mm(torch.device("cpu"), torch.float32):
        pytest.skip("this torch multiplies no groups on a CPU")
    x, weight = torch.randn(7, 16), torch.randn(3, 20, 16)
    grouped = experts._grouped_mm(x, weight, torch.tensor([4, 4, 7]))
    expected = torch.cat([x[:4] @ weight[0].T, x[4:] @ weight[2].T])
    torch.testing.assert_close(grouped, expected)


def test_widths_that_the_grouped_kernels_refuse(routed: tuple[Tensor, ...]) -> None:
    """A width of 6 float32 numbers is no multiple of 16 bytes."""
    torch.manual_seed(2)
    layer = Experts(WIDTH, 6, COUNT, sum_in_float32=True)
    torch.nn.init.normal_(layer.gate_up_proj)
    torch.nn.init.normal_(layer.down_proj)
    assert not experts._aligned(layer.down_proj)
    x, chosen, weights = routed
    expected = token_by_token(layer, x, chosen, weights)
    torch.testing.assert_close(layer(x, chosen, weights).double(), expected, atol=1e-4, rtol=1e-5)


def test_a_token_does_not_depend_on_its_company(layer: Experts, routed: tuple[Tensor, ...]) -> None:
    x, chosen, weights = routed
    together = layer(x, chosen, weights)
    for token in range(TOKENS):
        one = slice(token, token + 1)
        alone = layer(x[one], chosen[one], weights[one])
        torch.testing.assert_close(alone, together[one], atol=1e-6, rtol=0)


def test_the_order_of_the_choices_does_not_matter(
    layer: Experts, routed: tuple[Tensor, ...]
) -> None:
    x, chosen, weights = (part.bfloat16() if part.is_floating_point() else part for part in routed)
    rounded = layer.bfloat16()
    order = torch.tensor([2, 0, 1])
    expected = rounded(x, chosen, weights)
    assert torch.equal(rounded(x, chosen[:, order], weights[:, order]), expected)


@pytest.mark.parametrize("grouped", [True, False])
def test_no_tokens(layer: Experts, grouped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "_has_grouped_mm", lambda device, dtype: grouped)
    none = layer(torch.zeros(0, WIDTH), torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, 3))
    assert none.shape == (0, WIDTH)


def test_where_the_sum_is_rounded() -> None:
    """Three experts give 256, 1 and 1 at weight 1.  bfloat16 has steps of 2 there: adding one
    after the other in it stays at 256; in float32 the sum is 258."""
    chosen, x = torch.tensor([[0, 1, 2]]), torch.ones(1, 8, dtype=torch.bfloat16)
    for in_float32, expected in ((False, 256.0), (True, 258.0)):
        layer = Experts(8, 8, 3, sum_in_float32=in_float32).bfloat16()
        with torch.no_grad():
            # Gate 64 leaves silu(64) = 64; up 1/64; so one hidden channel holds 1.
            layer.gate_up_proj.zero_()
            layer.gate_up_proj[:, 0, 0] = 64.0
            layer.gate_up_proj[:, 8, 0] = 1 / 64
            layer.down_proj.zero_()
            layer.down_proj[:, :, 0] = torch.tensor([256.0, 1.0, 1.0])[:, None]
            out = layer(x, chosen, torch.ones(1, 3))
        assert out.dtype == torch.bfloat16
        assert out.tolist() == [[expected] * 8]


def test_official_parts_are_views_of_the_stacks(layer: Experts) -> None:
    state = {f"mlp.experts.{name}": weight for name, weight in layer.state_dict().items()}
    parts = one_by_one(state | {"norm.weight": torch.ones(2)})
    assert len(parts) == 3 * COUNT + 1
    up = parts["mlp.experts.4.up_proj.weight"]
    assert up.shape == (HIDDEN, WIDTH)
    assert torch.equal(up, layer.gate_up_proj[4, HIDDEN:])
    assert up.untyped_storage().data_ptr() == layer.gate_up_proj.untyped_storage().data_ptr()


# ---- routers ---------------------------------------------------------------------------------


def test_llada2_chooses_by_groups_and_weighs_without_the_bias(small: Callable[..., Any]) -> None:
    """Six experts in three groups of which two are kept; sigmoid scores by hand."""
    router = small("llada2_moe").model.layers[1].mlp.gate
    scores = torch.tensor([0.6, 0.5, 0.9, 0.1, 0.5, 0.4])
    bias = torch.tensor([0.0, 0.0, 0.0, -0.2, 0.3, 0.0])
    # Biased: .6 .5 | .9 -.1 | .8 .4.  Groups 1.1, 0.8, 1.2: the second, with the best expert, goes.
    # Of .6 .5 .8 .4 the best two are experts 4 and 0, which weigh .5 and .6 of 1.1, times 2.5.
    with torch.no_grad():
        router.weight.zero_()
        router.weight[:, 0] = torch.logit(scores)
        router.expert_bias.copy_(bias)
        x = torch.zeros(1, 32)
        x[0, 0] = 1.0
        chosen, weights = router(x)
    assert chosen.tolist() == [[4, 0]]
    assert weights[0].tolist() == pytest.approx([2.5 * 0.5 / 1.1, 2.5 * 0.6 / 1.1], rel=1e-5)


@pytest.mark.parametrize(
    ("family", "total"),
    # Softmax over logits log(1..6): probabilities 1/21 .. 6/21; the best two are 6 and 5.
    [("sdar_moe", 1.0), ("llada_moe", 11 / 21)],
)
def test_softmax_routers_weigh_the_best(
    small: Callable[..., Any], family: str, total: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlp = small(family).model.layers[1].mlp
    asked: list[tuple[Tensor, Tensor]] = []
    monkeypatch.setattr(
        mlp.experts, "forward", lambda x, chosen, weights: asked.append((chosen, weights)) or x
    )
    with torch.no_grad():
        mlp.gate.weight.zero_()
        mlp.gate.weight[:, 0] = torch.arange(1.0, 7.0).log()
        x = torch.zeros(1, 1, 32)
        x[..., 0] = 1.0
        mlp(x)
    ((chosen, weights),) = asked
    assert chosen.tolist() == [[5, 4]]
    assert weights[0].tolist() == pytest.approx([total * 6 / 11, total * 5 / 11], rel=1e-5)


def test_an_expert_bias_of_llada_moe_chooses_and_weighs(
    small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlp = small("llada_moe", moe_router_enable_expert_bias=True).model.layers[1].mlp
    asked: list[tuple[Tensor, Tensor]] = []
    monkeypatch.setattr(
        mlp.experts, "forward", lambda x, chosen, weights: asked.append((chosen, weights)) or x
    )
    with torch.no_grad():
        mlp.gate.weight.zero_()
        mlp.expert_bias.copy_(torch.tensor([0.0, 0.5, 0.0, 0.25, 0.0, 0.0]))
        mlp(torch.ones(1, 1, 32))
    ((chosen, weights),) = asked
    assert chosen.tolist() == [[1, 3]]
    assert weights[0].tolist() == pytest.approx([1 / 6 + 0.5, 1 / 6 + 0.25])


def test_a_change_of_dtype_never_rounds_the_router_bias(small: Callable[..., Any]) -> None:
    model = small("llada2_moe")
    bias = model.model.layers[1].mlp.gate.expert_bias
    exact = torch.full_like(bias, 0.1234567)
    bias.copy_(exact)
    for convert in (model.bfloat16, model.half, lambda: model.to(torch.bfloat16)):
        convert()
        gate = model.model.layers[1].mlp.gate
        assert gate.weight.dtype != torch.float32
        assert torch.equal(gate.expert_bias, exact)
    assert model.to("meta").model.layers[1].mlp.gate.expert_bias.device.type == "meta"


def test_routing_is_float32_under_autocast(small: Callable[..., Any]) -> None:
    router = small("llada2_moe").model.layers[1].mlp.gate
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(3))
    expected = router(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        chosen, weights = router(x)
    assert weights.dtype == torch.float32
    assert torch.equal(chosen, expected[0])
    assert torch.equal(weights, expected[1])
