"""Corner cases of block diffusion on a model whose every answer is known beforehand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import Generation, generate

MASK, EOS = 9, 8
RULES: list[dict[str, Any]] = [
    {"rule": "dynamic", "threshold": 0.9},
    {"rule": "sequential"},
    {"rule": "edit", "max_post_steps": 2},
    {"rule": "threshold"},
    {"rule": "entropy_bound", "form": "prefix"},
]


class Parrot(nn.Module):
    """Says ``token`` everywhere with probability 1, and ``second`` where that is not allowed."""

    def __init__(self, token: int, second: int = 1, block_length: int | None = 4) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(
            block_length=block_length, mask_token_id=MASK, eos_token_id=EOS, pad_token_id=None,
            max_position_embeddings=32,
        )  # fmt: skip
        self.token, self.second = token, second
        self.head_lags = False

    def forward(
        self, ids: Tensor, mask: Tensor | None = None, *, positions: Tensor, **_: Any
    ) -> Tensor:
        assert mask is None or mask.any(-1).all()
        logits = torch.zeros(int(positions.sum()), 10)
        logits[:, self.second] = 30.0
        logits[:, self.token] = 60.0
        return logits


def sampler(length: int = 10, **settings: Any) -> SamplerConfig:
    block = settings.pop("block_length", 4)
    base = {"steps": 4 * -(-length // block), "block_length": block, "block_origin": "sequence"}
    return SamplerConfig(gen_length=length, **{**base, **settings})


def run(model: nn.Module, prompts: list[list[int]], config: SamplerConfig) -> Generation:
    keys = [RunKey(0).at("eval", 0, row) for row in range(len(prompts))]
    return generate(model, prompts, config, keys)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("cache", ["none", "block"])
@pytest.mark.parametrize("rule", RULES, ids=[rule["rule"] for rule in RULES])
def test_a_model_that_only_says_mask_still_ends(
    rule: dict[str, Any], cache: str, temperature: float
) -> None:
    config = sampler(selection=rule, cache=cache, temperature=temperature, top_k=1)
    out = run(Parrot(MASK), [[1, 2, 3], [1]], config)
    assert out.tokens.tolist() == [[1] * 10] * 2
    assert out.finished.all()
    # Four blocks (one is half prompt) of 4 rounds, and two looks of the editor at each.
    assert int(out.nfe.max()) <= 4 * (4 + 2)


@pytest.mark.parametrize("rule", ["schedule", "dream", "origin"])
def test_fixed_grids_end_with_masks_left_as_in_the_original_codes(rule: str) -> None:
    config = SamplerConfig(gen_length=8, steps=4, block_length=8, selection={"rule": rule})
    out = run(Parrot(MASK, block_length=None), [[1, 2]], config)
    assert not out.finished.any()
    assert out.commit_step.tolist() == [[-1] * 8]
    assert int(out.nfe[0]) <= 4


@pytest.mark.parametrize("mode", ["block", "token"])
@pytest.mark.parametrize("cache", ["none", "block"])
def test_eos_at_once(cache: str, mode: str) -> None:
    config = sampler(eos_stop=mode, cache=cache, selection={"rule": "sequential"})
    out = run(Parrot(EOS), [[1, 2, 3], [1, 2, 3, 4]], config)
    assert out.tokens.tolist() == [[EOS] * 10] * 2
    assert out.finished.all()
    # One token completes the first row's first block; "token" ends the second after one, too.
    assert out.nfe.tolist() == [1, 4 if mode == "block" else 1]
    assert (out.commit_step >= 0).sum(-1).tolist() == [1, 4 if mode == "block" else 1]


@pytest.mark.parametrize("mode", ["block", "token"])
def test_eos_in_the_prompt_stops_nothing(mode: str) -> None:
    config = sampler(eos_stop=mode, selection={"rule": "dynamic"})
    out = run(Parrot(1), [[EOS] * 7, [EOS] * 8, [EOS]], config)
    assert out.tokens.tolist() == [[1] * 10] * 3
    assert out.nfe.tolist() == [4, 3, 3]  # a whole block a round


def test_mask_tokens_in_a_prompt_stay() -> None:
    seen: list[Tensor] = []
    config = sampler(4, selection={"rule": "edit"})
    keys = [RunKey(0).at("eval")]
    generate(Parrot(1), [[MASK, 2]], config, keys, watch=lambda canvas: seen.append(canvas.ids[0]))
    assert seen[-1].tolist() == [MASK, 2, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("prompt", "length", "rounds"),
    [
        ([], 1, 4),  # a block of its own, whatever was asked for
        ([1, 2, 3], 1, 1),
        ([1, 2, 3, 4], 1, 4),
        ([1, 2, 3, 4], 4, 4),
        ([1, 2, 3, 4, 5], 4, 3 + 4),
    ],
)
@pytest.mark.parametrize("cache", ["none", "block"])
def test_lengths_that_do_not_divide(
    prompt: list[int], length: int, rounds: int, cache: str
) -> None:
    out = run(Parrot(1), [prompt], sampler(length, selection={"rule": "sequential"}, cache=cache))
    assert out.tokens.tolist() == [[1] * length]
    assert out.nfe.tolist() == [rounds]


def test_the_trajectory_numbers_a_rows_own_blocks() -> None:
    # The second row has a block of prompt more, and the first two blocks of padding less.
    config = sampler(6, steps=4, selection={"rule": "sequential"})  # 2 a round
    prompts = [[1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]]
    out = run(Parrot(1), prompts, config)
    assert out.commit_step.tolist() == [[0, 4, 4, 5, 5, 8], [0, 0, 1, 4, 4, 5]]


def test_no_prompts() -> None:
    assert run(Parrot(1), [], sampler(6)).tokens.shape == (0, 6)


def test_what_does_not_fit_the_context_is_refused_before_any_forward() -> None:
    model, calls = Parrot(1), []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    with pytest.raises(UsageProblem) as caught:
        run(model, [[1], [1] * 23], sampler(10))
    assert caught.value.what == "a sequence of 36 tokens does not fit the model"
    assert "32 tokens" in caught.value.why
    assert "longest has 23" in caught.value.why
    assert not calls
    assert run(model, [[1] * 22], sampler(10)).finished.all()


@pytest.mark.parametrize(
    ("own", "settings", "what"),
    [
        (4, {"block_origin": "completion", "gen_length": 8}, "this model is block-causal"),
        (None, {}, "this model is bidirectional"),
    ],
)
def test_samplers_of_another_kind_of_model_are_refused(
    own: int | None, settings: dict[str, Any], what: str
) -> None:
    length = settings.pop("gen_length", 10)
    with pytest.raises(UsageProblem, match=what):
        run(Parrot(1, block_length=own), [[1]], sampler(length, **settings))


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_a_lagging_head_and_a_fixed_schedule_do_not_go_through_a_cache(cache: str) -> None:
    model = Parrot(1, block_length=None)
    model.head_lags = True
    config = SamplerConfig(gen_length=8, steps=4, block_length=4, cache=cache)
    with pytest.raises(UsageProblem, match="'schedule' cannot run through the cache"):
        run(model, [[1]], config)


@pytest.mark.parametrize("rule", ["dream", "threshold"])
def test_a_lagging_head_spends_a_cached_blocks_first_step_on_its_first_token(rule: str) -> None:
    model = Parrot(1, block_length=None)
    model.head_lags = True
    config = SamplerConfig(
        gen_length=8, steps=2, block_length=4, cache="dual", selection={"rule": rule}
    )
    out = run(model, [[1, 2]], config)
    assert out.nfe.tolist() == [4]
    first = out.commit_step[0, 0]
    assert (out.commit_step[0, 1:4] == first + 1).all()
    assert (out.commit_step[0, 4:] > first + 1).all()
