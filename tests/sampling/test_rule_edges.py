"""All rules: the same tokens in any batch, an end in every case, and clear refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem
from dare.models.loading import encode_prompt, load_model, load_tokenizer
from dare.sampling import presets
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import generate
from dare.sampling.rules import RULES
from dare.tasks import sudoku4

BIDIRECTIONAL = presets.names("bidirectional")


def config_of(name: str, **more: Any) -> SamplerConfig:
    """The preset for 16 tokens, in blocks of 4 where it has blocks."""
    found = presets.get(name)
    return found.config(16, **({"block_length": 4} if found.block_length else {}), **more)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return load_model("tiny-llada")


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Prompts of unequal length, one of them empty."""
    tokenizer = load_tokenizer("tiny-llada")
    items = sudoku4.load("validation", 4)
    encoded = [encode_prompt(tokenizer, item.question) for item in items]
    return [encoded[0], encoded[1][3:], [], encoded[2][7:], encoded[3]]


# ---- the same tokens in any batch ----------------------------------------------------------


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_tokens_do_not_depend_on_the_batch(
    model: torch.nn.Module, prompts: list[list[int]], name: str
) -> None:
    config = config_of(name)
    keys = [RunKey(3).at("eval", sample=sample) for sample in range(len(prompts))]
    together = generate(model, prompts, config, keys)
    assert together.finished.all()
    assert int(together.nfe.max()) <= config.nfe
    backwards = generate(model, prompts[::-1], config, keys[::-1])
    assert torch.equal(backwards.tokens.flip(0), together.tokens)
    alone = generate(model, [prompts[1]], config, [keys[1]])
    assert torch.equal(alone.tokens[0], together.tokens[1])
    assert torch.equal(alone.commit_step[0], together.commit_step[1])
    assert int(alone.nfe[0]) == int(together.nfe[1])


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_drawn_tokens_follow_their_key(
    model: torch.nn.Module, prompts: list[list[int]], name: str
) -> None:
    config = config_of(name, temperature=1.0)
    assert config.is_random
    keys = [RunKey(3).at("rollout", sample=sample) for sample in range(len(prompts))]
    together = generate(model, prompts, config, keys)
    some = generate(model, [prompts[4], prompts[1]], config, [keys[4], keys[1]])
    assert torch.equal(some.tokens, together.tokens[[4, 1]])
    assert together.finished.all()


def test_randomness_is_asked_for_where_it_is_needed() -> None:
    random = {name for name in presets.names() if presets.preset(name, 16).is_random}
    assert random == {"random", "dream-origin", "sdar-sampled"}
    assert config_of("dream", alg_temp=0.1).is_random


@pytest.mark.parametrize(
    ("variant", "name"),
    [("tiny-sdar", name) for name in presets.names("block-causal")]
    + [("tiny-dream", name) for name in BIDIRECTIONAL if "dream" in name],
)
def test_tokens_of_other_families_do_not_depend_on_the_batch(
    prompts: list[list[int]], variant: str, name: str
) -> None:
    other = load_model(variant)
    config = presets.preset(name, 16, block_length=4 if "dream-" not in name else 16)
    keys = [RunKey(3).at("eval", sample=sample) for sample in range(len(prompts))]
    together = generate(other, prompts, config, keys)
    assert together.finished.all()
    alone = generate(other, [prompts[1]], config, [keys[1]])
    assert torch.equal(alone.tokens[0], together.tokens[1])


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_no_prompts(model: torch.nn.Module, name: str) -> None:
    assert generate(model, [], config_of(name), []).tokens.shape == (0, 16)


@pytest.mark.parametrize("name", ["llada", "ass", "fast-dllm-dual", "saber"])
def test_a_prompt_of_nothing_but_eos(model: torch.nn.Module, name: str) -> None:
    out = generate(model, [[model.config.eos_token_id] * 5], config_of(name))
    assert out.finished.all()


def test_a_prompt_of_stop_tokens_does_not_stop_its_row(model: torch.nn.Module) -> None:
    eos = model.config.eos_token_id
    for stop in ("block", "token"):
        plain = generate(model, [[eos] * 5], config_of("llada"))
        config = config_of("llada", eos_stop=stop)
        tokens = generate(model, [[eos] * 5], config).tokens[0].tolist()
        end = tokens.index(eos) + 1 if eos in tokens else 16
        assert tokens[:end] == plain.tokens[0].tolist()[:end]


def test_a_prompt_that_is_too_long_is_refused(model: torch.nn.Module) -> None:
    context = model.config.max_position_embeddings
    for name in ("llada", "fast-dllm-dual"):
        with pytest.raises(UsageProblem, match="does not fit the model"):
            generate(model, [[5] * (context - 15)], config_of(name))


# ---- a model that wants to say nothing -----------------------------------------------------

VOCABULARY, MASK_ID = 12, 11


class Reticent(torch.nn.Module):
    """Whose likeliest token is the mask, unless ``mask_logit`` is low."""

    def __init__(self, mask_logit: float = 9.0) -> None:
        super().__init__()
        self.mask_logit = mask_logit
        self.config = SimpleNamespace(mask_token_id=MASK_ID, eos_token_id=0, pad_token_id=0)
        self.scores = torch.nn.Parameter(
            torch.randn(64, VOCABULARY, generator=torch.Generator().manual_seed(0))
        )

    def forward(
        self, ids: Tensor, mask: Tensor | None, *, positions: Tensor, cache: Any = None
    ) -> Tensor:
        start = 0 if cache is None else cache.start
        logits = self.scores[start : start + ids.shape[1]].expand(len(ids), -1, -1)[positions]
        return torch.cat(
            (logits[:, :MASK_ID], torch.full_like(logits[:, :1], self.mask_logit)), dim=1
        )


LEAVES_MASKS = {"schedule", "ascending", "maskgit", "dream", "origin"}


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_a_model_that_prefers_the_mask_comes_to_an_end(name: str) -> None:
    config = config_of(name)
    out = generate(
        Reticent(), [[1, 2], [3]], config, [RunKey(0).at("eval", sample=i) for i in (0, 1)]
    )
    fixed = config.selection.rule in LEAVES_MASKS
    assert out.finished.tolist() == [not fixed] * 2
    assert bool((out.tokens == MASK_ID).any()) == fixed
    assert int(out.nfe.max()) <= config.nfe


def test_random_remasking_takes_every_position_equally_often() -> None:
    config = SamplerConfig(gen_length=4, steps=4, block_length=4, remasking="random")
    keys = [RunKey(5).at("eval", sample=sample) for sample in range(2000)]
    out = generate(Reticent(mask_logit=-9.0), [[1]] * 2000, config, keys)
    for step in range(4):
        observed = torch.bincount((out.commit_step == step).long().argmax(-1), minlength=4)
        assert float(((observed - 500) ** 2 / 500).sum()) < 16.3  # 99.9 % at 3 degrees of freedom


# ---- refusals ------------------------------------------------------------------------------


def made(rule: dict[str, Any], gen: int = 16, block: int = 16, **more: Any) -> SamplerConfig:
    return SamplerConfig(gen_length=gen, block_length=block, selection=rule, **more)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rule": {"rule": "schedule"}}, "steps"),
        ({"rule": {"rule": "maskgit"}, "block": 8, "steps": 7}, "'maskgit' spends equal steps"),
        ({"rule": {"rule": "klass"}, "block": 8, "steps": 7}, "'klass' spends equal steps"),
        ({"rule": {"rule": "threshold"}, "block": 5}, "multiple of block_length"),
        ({"rule": {"rule": "ascending"}, "block": 8}, "makes its own blocks"),
        ({"rule": {"rule": "ascending"}, "steps": 8}, r"floor\(log2 gen_length\) = 4 steps"),
        ({"rule": {"rule": "ascending", "num_blocks": 5}}, "no more blocks than that"),
        ({"rule": {"rule": "factor"}, "remasking": "entropy"}, "as a probability"),
        ({"rule": {"rule": "schedule", "eos_rejection": {}}, "steps": 16, "remasking": "entropy"},
         "as a probability"),
        ({"rule": {"rule": "saber"}, "cache": "dual"}, "earlier blocks again"),
        ({"rule": {"rule": "maskgit", "running_confidence": True}, "steps": 4,
          "block_origin": "sequence"}, "earlier blocks again"),
        ({"rule": {"rule": "threshold", "threshold": 1.5}}, "less than or equal to 1"),
        ({"rule": {"rule": "treshold"}}, "treshold"),
        ({"rule": {"rule": "threshold"}, "gen": 0}, "greater than 0"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        made(**values)


def test_steps_are_filled_in_where_the_rule_decides() -> None:
    assert made({"rule": "threshold"}).steps == 16
    assert made({"rule": "ascending"}, gen=100, block=100).steps == 6
    assert made({"rule": "dynamic"}, gen=10, block=4, block_origin="sequence").steps == 12
    # What such a rule is given without needing it need not divide either.
    assert made({"rule": "threshold"}, block=8, steps=7).nfe == 16


def test_the_most_forwards_of_every_rule() -> None:
    needed = {name: rule.spends_steps == "all" for name, rule in RULES.items()}
    steps = {name: {"steps": 4} if fixed else {} for name, fixed in needed.items()}
    found = {
        name: made({"rule": name}, block=8 if name != "ascending" else 16, **steps[name]).nfe
        for name in RULES
    }
    fixed = dict.fromkeys(LEAVES_MASKS, 4)
    assert found == dict.fromkeys(RULES, 16) | fixed | {"edit": 16 + 2 * 16}
    assert made({"rule": "threshold"}, cfg_scale=1.0).nfe == 32
    # Two blocks of 8 in 4 steps: at least two positions a step.
    assert {made({"rule": name}, block=8, steps=8).nfe for name in ("dynamic", "sequential")} == {8}
    assert made({"rule": "klass"}, block=8, steps=8).nfe == 16
