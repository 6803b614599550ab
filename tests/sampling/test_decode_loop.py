"""The decode loop on the embedded model: batching, randomness, trajectory, edge cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from dare.diffusion.keys import RunKey
from dare.models.loading import encode_prompt, load_model, load_tokenizer
from dare.sampling.candidates import Noise, propose
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import generate
from dare.sampling.selection.base import even_shares, top_positions
from dare.tasks import sudoku4

GREEDY = SamplerConfig(gen_length=16, steps=8, block_length=16)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return load_model("tiny-llada")


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = load_tokenizer("tiny-llada")
    return [encode_prompt(tokenizer, item.question) for item in sudoku4.load("validation", 40)]


@pytest.mark.parametrize(
    ("count", "steps", "schedule"),
    [
        (10, 4, [3, 3, 2, 2]),
        (32, 16, [2] * 16),
        (32, 12, [3] * 8 + [2] * 4),
        (4, 6, [1, 1, 1, 1, 0, 0]),
    ],
)
def test_transfer_schedule_of_the_paper(count: int, steps: int, schedule: list[int]) -> None:
    assert even_shares(count, steps) == schedule


def test_greedy_tokens_do_not_depend_on_the_batch(model, prompts) -> None:  # type: ignore[no-untyped-def]
    # Prompts of unequal length: some puzzles lose their first cells.
    ragged = [prompt[index % 5 :] for index, prompt in enumerate(prompts)]
    together = generate(model, ragged, GREEDY)
    backwards = generate(model, ragged[::-1], GREEDY)
    assert torch.equal(backwards.tokens.flip(0), together.tokens)
    for row, prompt in enumerate(ragged):
        alone = generate(model, [prompt], GREEDY)
        assert torch.equal(alone.tokens[0], together.tokens[row])
        assert torch.equal(alone.commit_step[0], together.commit_step[row])


def test_sampled_tokens_follow_their_key_and_nothing_else(model, prompts) -> None:  # type: ignore[no-untyped-def]
    config = GREEDY.model_copy(update={"temperature": 1.0})
    keys = [RunKey(7).at("rollout", 3, sample) for sample in range(len(prompts))]
    together = generate(model, prompts, config, keys)
    half = generate(model, prompts[20:], config, keys[20:])
    assert torch.equal(half.tokens, together.tokens[20:])
    others = [RunKey(8).at("rollout", 3, sample) for sample in range(len(prompts))]
    assert not torch.equal(generate(model, prompts, config, others).tokens, together.tokens)


def test_global_generators_are_neither_read_nor_changed(model, prompts) -> None:  # type: ignore[no-untyped-def]
    config = GREEDY.model_copy(update={"temperature": 1.0})
    keys = [RunKey(0).at("rollout", 0, sample) for sample in range(4)]
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = generate(model, prompts[:4], config, keys)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(generate(model, prompts[:4], config, keys).tokens, first.tokens)


def test_the_trajectory_commits_the_schedule(model, prompts) -> None:  # type: ignore[no-untyped-def]
    config = SamplerConfig(gen_length=16, steps=8, block_length=8)
    out = generate(model, prompts, config)
    assert out.finished.all()
    assert out.nfe.tolist() == [8] * len(prompts)
    counts = [np.bincount(row, minlength=8).tolist() for row in out.commit_step.numpy()]
    assert all(row == [2] * 8 for row in counts)
    # The first block is finished before the second is begun.
    assert (out.commit_step[:, :8].max(1).values < out.commit_step[:, 8:].min(1).values).all()
    assert ((out.confidence > 0) & (out.confidence <= 1)).all()


def test_temperature_draws_from_the_softmax() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5, -3.0]).expand(20_000, -1)
    keyed = Noise([RunKey(0).at("rollout")], 1, torch.device("cpu"))
    noise = keyed.exponential([0], [0], [20_000], 6)
    drawn = propose(logits / 0.7, noise)
    expected = torch.softmax(logits[0] / 0.7, -1) * len(drawn)
    observed = torch.bincount(drawn, minlength=6)
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    assert chi_square < 20.5  # 99.9 % quantile at 5 degrees of freedom


def test_ties_go_to_the_left_and_blocked_positions_are_never_taken() -> None:
    confidence = torch.tensor([[0.5, 0.5, 0.5, -torch.inf], [-torch.inf, 0.1, -torch.inf, 0.2]])
    assert top_positions(confidence, 2).tolist() == [
        [True, True, False, False],
        [False, True, False, True],
    ]
    assert top_positions(confidence, 4).sum(1).tolist() == [3, 2]


def test_random_draws_need_keys(model, prompts) -> None:  # type: ignore[no-untyped-def]
    config = GREEDY.model_copy(update={"temperature": 1.0})
    with pytest.raises(ValueError, match="key per row"):
        generate(model, prompts[:1], config)


def test_no_prompts_and_empty_prompts(model) -> None:  # type: ignore[no-untyped-def]
    assert generate(model, [], GREEDY).tokens.shape == (0, 16)
    assert generate(model, [[], []], GREEDY).finished.all()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"gen_length": 16, "steps": 8, "block_length": 5}, "multiple of block_length"),
        ({"gen_length": 16, "steps": 7, "block_length": 8}, "multiple of the 2 blocks"),
        ({"gen_length": 0, "steps": 1, "block_length": 1}, "greater than 0"),
        ({"gen_length": 8, "steps": 8, "block_length": 8, "temperature": -1}, "greater than or"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, int], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        SamplerConfig(**settings)  # type: ignore[arg-type]
