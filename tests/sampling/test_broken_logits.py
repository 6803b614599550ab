"""Logits that are not finite, and ties between ends: an error, and an order that makes sense."""

from __future__ import annotations

import pytest
import torch

from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem
from dare.models.loading import load_model
from dare.models.special import SpecialTokens
from dare.sampling import presets
from dare.sampling.candidates import filtered
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import generate

CASES = [("tiny-llada", name) for name in presets.names("bidirectional")]
CASES += [("tiny-sdar", name) for name in presets.names("block-causal")]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("model_name", "sampler"), CASES)
def test_every_rule_ends_with_an_error(model_name: str, sampler: str, value: float) -> None:
    model = load_model(model_name)
    with torch.no_grad():
        model.get_output_embeddings().weight[20] = value
    found = presets.get(sampler)
    blocks = {} if model.block_length is None else {"block_length": model.block_length}
    keys = [RunKey(0).at("eval")]
    with pytest.raises(UsageProblem, match="not finite"):
        generate(model, [[8, 9, 10, 11]], found.config(8, **blocks), keys)


def test_equal_ends_are_taken_from_the_right() -> None:
    model = load_model("tiny-llada")
    special = SpecialTokens(mask=2, eos=1, eot=5)
    with torch.no_grad():  # all logits are equal, and the likeliest token is the first
        model.final_norm.weight.zero_()
    config = SamplerConfig(gen_length=4, steps=4, block_length=4, confidence_eos_eot_inf=True)
    out = generate(model, [[8, 9]], config, special=special)
    assert out.tokens.tolist() == [[0, 0, 0, 0]]
    assert out.commit_step.tolist() == [[0, 1, 2, 3]]
    special = SpecialTokens(mask=2, eos=0, eot=5)
    out = generate(model, [[8, 9]], config, special=special)
    assert out.tokens.tolist() == [[0, 0, 0, 0]]
    assert out.commit_step.tolist() == [[3, 2, 1, 0]]


def test_the_token_that_reaches_top_p_exactly_does_not_exceed_it() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    kept = filtered(logits, None, 0.5).isfinite()
    assert kept.tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("temperature", [1e-40, 9e-5])
def test_almost_zero_is_no_temperature(temperature: float) -> None:
    with pytest.raises(ValueError, match="0 is greedy"):
        SamplerConfig(gen_length=4, steps=4, block_length=4, temperature=temperature)
