"""The block cache changes nothing, and neither does the rest of the batch.

Each batch mixes prompts that end inside a block, at its end or in another block, so that rows
are padded by different numbers of blocks and begin in different ones.  None is empty: the masks
of a first block without a prompt see the same, and rounding alone would decide between them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from dare.diffusion.keys import RunKey
from dare.models.loading import load_model
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import Generation, SpecialTokens, generate

LENGTHS = [5, 1, 17, 12]
RULES: dict[str, dict[str, Any]] = {
    "schedule": {},
    "random": {"remasking": "random"},
    "random_dynamic": {"remasking": "random", "selection": {"rule": "dynamic", "threshold": 1.0}},
    "static": {"selection": {"rule": "dynamic", "threshold": 1.0}},
    "dynamic": {"selection": {"rule": "dynamic", "threshold": 0.35}},
    "sequential": {"selection": {"rule": "sequential"}},
    "entropy_prefix": {"selection": {"rule": "entropy_bound", "form": "prefix", "bound": 3.0}},
    "entropy_eb": {"selection": {"rule": "entropy_bound", "bound": 3.0}},
    "threshold": {"selection": {"rule": "threshold", "threshold": 0.35}},
    "factor": {"selection": {"rule": "factor", "factor": 0.8}},
    "dinfer": {"selection": {"rule": "dinfer_threshold", "threshold": 0.4}},
    "hierarchy": {"selection": {"rule": "hierarchy", "threshold": 0.6, "low_threshold": 0.2}},
    "klass": {"selection": {"rule": "klass", "conf_threshold": 0.3, "kl_threshold": 1.0}},
    "edit": {
        "selection": {
            "rule": "edit", "threshold": 0.4, "editing_threshold": 0.2, "max_post_steps": 4,
        }
    },
    "sampled": {
        "temperature": 0.8, "top_k": 20, "top_p": 0.95, "filters": "top_k_first",
        "confidence_from": "filtered", "selection": {"rule": "dynamic", "threshold": 0.5},
    },
}  # fmt: skip
SLOWER = [("sdar_moe", "sampled"), ("llada20", "dynamic"), ("llada21", "edit")]


@pytest.fixture(scope="module")
def load(shared_dir: Path) -> Any:
    return functools.cache(
        lambda family: load_model(str(shared_dir / "models" / "fixtures" / family))
    )


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randint(0, 400, (length,), generator=draw).tolist() for length in LENGTHS]


def config_of(rule: str, **settings: Any) -> SamplerConfig:
    base = {"gen_length": 10, "steps": 9, "block_length": 4, "block_origin": "sequence"}
    return SamplerConfig(**{**base, **RULES[rule], **settings})


def rows_of(out: Generation, chosen: slice = slice(None)) -> list[list[Any]]:
    parts = (out.tokens, out.commit_step, out.nfe, out.finished)
    return [part[chosen].tolist() for part in parts]


def run(
    model: torch.nn.Module,
    prompts: list[list[int]],
    config: SamplerConfig,
    first: int = 0,
    stop: tuple[int, ...] = (),
) -> Generation:
    keys = [RunKey(1).at("eval", 0, first + row) for row in range(len(prompts))]
    special = SpecialTokens(431, 427, pad=427, stop=stop)
    return generate(model, prompts, config, keys, special)


@pytest.mark.parametrize(("family", "rule"), [*(("sdar", rule) for rule in RULES), *SLOWER])
def test_same_result_from_the_cache_and_alone(
    load: Any, prompts: list[list[int]], family: str, rule: str
) -> None:
    model = load(family)
    plain, cached = config_of(rule), config_of(rule, cache="block")
    together = run(model, prompts, plain)
    assert together.finished.all()
    through_cache = run(model, prompts, cached)
    assert rows_of(through_cache) == rows_of(together)
    torch.testing.assert_close(through_cache.confidence, together.confidence, atol=1e-4, rtol=1e-4)
    for row, prompt in enumerate(prompts):
        alone = run(model, [prompt], cached, first=row)
        assert rows_of(alone) == rows_of(together, slice(row, row + 1))


@pytest.mark.parametrize("mode", ["block", "token"])
@pytest.mark.parametrize("rule", ["static", "dynamic", "edit"])
def test_rows_that_stop_early(load: Any, prompts: list[list[int]], rule: str, mode: str) -> None:
    model = load("sdar")
    whole = run(model, prompts, config_of(rule))
    # Tokens of the first two rows, in the middle and near the end, become stop tokens.
    stop = (int(whole.tokens[0, 3]), int(whole.tokens[1, 6]))
    results = [
        run(model, prompts, config_of(rule, eos_stop=mode, cache=cache), stop=stop)
        for cache in ("none", "block")
    ]
    assert rows_of(results[0]) == rows_of(results[1])
    assert int(results[0].nfe[0]) < int(whole.nfe[0])
    for row, prompt in enumerate(prompts):
        alone = run(model, [prompt], config_of(rule, eos_stop=mode, cache="block"), row, stop)
        assert rows_of(alone) == rows_of(results[0], slice(row, row + 1))
        tokens = whole.tokens[row].tolist()
        ends = [index for index, token in enumerate(tokens) if token in stop]
        answer = tokens[: ends[0] + 1] if ends else tokens
        # Up to the first stop token nothing differs from a run that never stops...
        if rule != "edit":  # ... unless later edits would have changed it
            assert results[0].tokens[row, : len(answer)].tolist() == answer
    assert results[0].finished.all()


def test_the_cache_feeds_each_block_alone(load: Any, prompts: list[list[int]]) -> None:
    """12 prompt tokens, 8 to generate: (prompt + block), 3 x block, (2 blocks), 3 x block."""
    model, widths = load("sdar"), []
    hook = model.register_forward_pre_hook(lambda module, args: widths.append(args[0].shape[1]))
    config = config_of("static", gen_length=8, steps=8, cache="block")
    run(model, [prompts[3]], config)
    hook.remove()
    assert widths == [16, 4, 4, 4, 8, 4, 4, 4]


def test_draws_follow_the_filtered_softmax(load: Any) -> None:
    """One open position, 2000 keys: chi-square against temperature, then top-k, then top-p."""
    model = load("sdar")
    prompt = list(range(7))
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, 431]]), block_length=4)[0, -1]
    best = (logits / 1.5).topk(8)
    p = best.values.softmax(0)
    p = p[p.cumsum(0) - p <= 0.9]
    p /= p.sum()
    config = config_of(
        "static", gen_length=1, steps=1, temperature=1.5, top_k=8, top_p=0.9,
        filters="top_k_first",
    )  # fmt: skip
    tokens = run(model, [prompt] * 2000, config).tokens[:, 0]
    counts = torch.stack([(tokens == token).sum() for token in best.indices[: len(p)]])
    assert int(counts.sum()) == 2000
    assert len(p) >= 3
    assert float(((counts - 2000 * p) ** 2 / (2000 * p)).sum()) < 24.4  # 99.9 % at 7 degrees


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("rule", ["dream", "origin", "threshold", "dynamic"])
def test_dream_rows_do_not_depend_on_the_batch(
    load: Any, prompts: list[list[int]], cache: str, rule: str
) -> None:
    model = load("dream")
    config = SamplerConfig(
        gen_length=8, steps=4, block_length=4, temperature=0.7, top_p=0.9, cache=cache,
        confidence_from="filtered", selection={"rule": rule},
        **({"remasking": "entropy"} if rule == "dream" else {}),
    )  # fmt: skip
    together = run(model, prompts, config)
    assert together.finished.all()
    for row, prompt in enumerate(prompts):
        alone = run(model, [prompt], config, first=row)
        assert rows_of(alone) == rows_of(together, slice(row, row + 1))
