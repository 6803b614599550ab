"""The rules of Dream, SDAR and LLaDA2.x on rounds written by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from dare.diffusion.keys import RunKey
from dare.sampling import selection
from dare.sampling.candidates import Noise, SpecialTokens, candidates, filtered, scores_of
from dare.sampling.config import SamplerConfig
from dare.sampling.selection.base import Round, Selector

MASK = 9
SPECIAL = SpecialTokens(mask=MASK, eos=8)


def selector_of(batch: int = 1, block: int = 4, steps: int = 4, **rule: Any) -> Selector:
    config = SamplerConfig(gen_length=block, steps=steps, block_length=block, selection=rule)
    return selection.make(config, SPECIAL, batch)


def round_of(
    confidence: list[list[float]],
    ids: list[list[int]],
    tokens: list[list[int]] | None = None,
    index: int = 0,
    noise: Noise | None = None,
) -> Round:
    """A round whose masks are the ``MASK`` ids; every position with a confidence is scored."""
    standing, scores = torch.tensor(ids), torch.tensor(confidence)
    rows = len(ids)
    return Round(
        index=index,
        rows=torch.arange(rows),
        numbers=[index] * rows,
        masked=standing == MASK,
        ids=standing,
        tokens=standing if tokens is None else torch.tensor(tokens),
        confidence=scores,
        scored=scores > -torch.inf,
        logits=torch.zeros(int((scores > -torch.inf).sum()), 10),
        noise=noise,
    )


def committed(selector: Selector, round: Round) -> list[list[int]]:
    """The positions that the rule commits, by row."""
    return [row.nonzero().squeeze(1).tolist() for row in selector.choose(round).commit]


NO = -torch.inf


# ---- Dream ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "counts"),
    [
        # Times 1, .9001, .8002, ... .001: int(24 x .0999) = 2, int(22 x .11099) = 2, ...
        (10, [2, 2, 2, 2, 2, 2, 2, 3, 3, 4]),
        # One token a step, but the first share, .999 / 24, is below one token of 24.
        (24, [0, *[1] * 22, 2]),
        (1, [24]),
    ],
)
def test_dream_counts_follow_the_time_grid(steps: int, counts: list[int]) -> None:
    selector = selector_of(block=24, steps=steps, rule="dream")
    masks, seen = 24, []
    for index in range(selector.max_rounds):
        masked = torch.arange(24)[None] < masks
        ids = torch.where(masked, MASK, 1).tolist()
        idle = selector.is_idle(masked, index)
        number = (
            len(committed(selector, round_of([[0.5] * 24], ids, index=index))[0]) if masks else 0
        )
        number = min(number, masks)
        assert idle == (number == 0)
        seen.append(number)
        masks -= number
    assert seen == counts


def test_dream_counts_are_each_rows_own() -> None:
    selector = selector_of(2, steps=3, rule="dream", eps=0.1)
    # Times 1, .7, .4, .1: shares .3, .43 and 1 of 4, 3, 2 masks, and of 3, 3, 2.
    first = round_of([[0.1, 0.4, 0.3, 0.2], [NO, 0.5, 0.6, 0.7]], [[9, 9, 9, 9], [1, 9, 9, 9]])
    assert committed(selector, first) == [[1], []]
    ids = [[9, 1, 9, 9], [1, 9, 9, 9]]
    second = round_of([[0.1, NO, 0.3, 0.2], [NO, 0.5, 0.6, 0.7]], ids, index=1)
    assert committed(selector, second) == [[2], [3]]
    ids = [[9, 1, 1, 9], [1, 9, 9, 1]]
    third = round_of([[0.1, NO, NO, 0.2], [NO, 0.5, 0.6, NO]], ids, index=2)
    assert committed(selector, third) == [[0, 3], [1, 2]]


def keyed(rows: int) -> Noise:
    keys = [RunKey(5).at("rollout", 0, row) for row in range(rows)]
    return Noise(keys, 8, torch.device("cpu"))


def test_alg_temp_draws_without_replacement_from_the_softmax() -> None:
    """Two of five positions; P{i, j} = p_i p_j / (1 - p_i) + p_j p_i / (1 - p_j)."""
    rows, confidence = 8_000, [0.9, 0.5, 0.3, 0.1, 0.6]
    # The first of two steps reveals just under a half.
    selector = selector_of(rows, block=5, steps=2, rule="dream", alg_temp=0.4)
    round = round_of([confidence] * rows, [[MASK] * 5] * rows, noise=keyed(rows))
    pairs = Counter(tuple(row) for row in committed(selector, round))
    assert sum(pairs.values()) == rows
    p = torch.tensor(confidence).div(0.4).softmax(0).tolist()
    statistic = 0.0
    for i, j in itertools.combinations(range(5), 2):
        expected = rows * p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j]))
        statistic += (pairs[i, j] - expected) ** 2 / expected
    assert statistic < 27.9  # 99.9 % quantile at 9 degrees of freedom


def test_origin_reveals_a_share_at_random_and_the_rest_in_the_last_step() -> None:
    rows = 5_000
    selector = selector_of(rows, steps=4, rule="origin", eps=0.2)
    # Times 1, .8, .6, .4, .2: a quarter is revealed between .8 and .6.
    ids = [[MASK, MASK, 1, MASK]] * rows
    scores = [[0.9, 0.1, NO, 0.5]] * rows
    round = round_of(scores, ids, index=1, noise=keyed(rows))
    share = selector.choose(round).commit.float().mean(0)
    assert share[2] == 0
    assert (share[[0, 1, 3]] - 0.25).abs().max() < 0.025  # 4 standard errors
    assert committed(selector, round_of(scores, ids, index=3)) == [[0, 1, 3]] * rows


def test_a_cached_dream_block_has_a_step_left_after_its_first_token() -> None:
    config = SamplerConfig(
        gen_length=8, steps=2, block_length=4, cache="dual", selection={"rule": "dream"}
    )
    assert config.steps_per_block == 1
    assert selection.make(config, SPECIAL, 1).max_rounds == 2


# ---- SDAR ----------------------------------------------------------------------------------


def test_sequential_goes_from_left_to_right_and_asks_for_no_more() -> None:
    selector = selector_of(2, steps=3, rule="sequential")  # quotas 2, 1, 1
    masked = torch.tensor([[False, True, True, True], [True, True, True, True]])
    asked = selector.scored(masked, torch.ones_like(masked))
    assert asked.tolist() == [[False, True, True, False], [True, True, False, False]]
    ids = [[1, 9, 9, 9], [9, 9, 9, 9]]
    scores = [[NO, 0.1, 0.2, NO], [0.1, 0.9, NO, NO]]
    assert committed(selector, round_of(scores, ids)) == [[1, 2], [0, 1]]
    assert committed(selector, round_of(scores, ids, index=1)) == [[1], [0]]
    assert committed(selector, round_of(scores, ids, index=7)) == [[1], [0]]


def test_dynamic_reveals_the_sure_if_they_reach_the_quota_else_the_best() -> None:
    selector = selector_of(3, steps=2, rule="dynamic", threshold=0.8)  # quotas 2, 2
    scores = [[0.9, 0.85, 0.81, 0.8], [0.9, 0.1, 0.7, 0.2], [0.1, NO, 0.2, 0.3]]
    ids = [[9] * 4, [9] * 4, [9, 1, 9, 9]]
    assert committed(selector, round_of(scores, ids)) == [[0, 1, 2], [0, 2], [2, 3]]


def test_threshold_one_is_the_static_rule() -> None:
    selector = selector_of(1, steps=2, rule="dynamic", threshold=1.0)
    assert committed(selector, round_of([[1.0, 1.0, 1.0, 1.0]], [[9] * 4])) == [[0, 1]]


# ---- LLaDA2.1 ------------------------------------------------------------------------------


def edit(**settings: Any) -> Selector:
    selector = selector_of(rule="edit", threshold=0.7, editing_threshold=0.5, **settings)
    selector.begin(0, torch.ones(1, 4, dtype=torch.bool))
    return selector


def test_edit_unmasks_and_corrects_in_one_step() -> None:
    # Position 0 is prompt (not scored); 1 changes surely, 2 unsurely, 3 is a mask.
    round = round_of([[NO, 0.6, 0.5, 0.8]], [[3, 3, 3, 9]], [[3, 4, 4, 5]])
    assert committed(edit(), round) == [[1, 3]]


def test_edit_unmasks_the_best_where_too_few_are_sure() -> None:
    round = round_of([[0.9, 0.2, 0.3, 0.1]], [[3, 9, 9, 9]], [[3, 4, 4, 4]])
    assert committed(edit(), round) == [[2]]
    assert committed(edit(num_to_transfer=2), round) == [[1, 2]]
    sure = round_of([[0.9, 0.8, 0.9, 0.75]], [[3, 9, 9, 9]], [[3, 4, 4, 4]])
    assert committed(edit(num_to_transfer=2), sure) == [[1, 2, 3]]


def test_a_block_without_a_change_is_left() -> None:
    selector, done = edit(), torch.zeros(1, 4, dtype=torch.bool)
    assert selector.goes_on(done, 4).tolist() == [True]  # at least one look at what stands there
    selector.choose(round_of([[0.9] * 4], [[1, 2, 3, 4]], [[1, 2, 3, 4]]))
    assert selector.goes_on(done, 5).tolist() == [False]


def test_edits_that_never_settle_are_bounded() -> None:
    selector, done = edit(max_post_steps=3), torch.zeros(1, 4, dtype=torch.bool)
    rounds = 0
    while bool(selector.goes_on(done, rounds)):
        flip = rounds % 2
        selector.choose(round_of([[0.9] * 4], [[flip] * 4], [[1 - flip] * 4], index=rounds))
        rounds += 1
    assert rounds == 3


# ---- what candidates are, and how sure ------------------------------------------------------


def kept(probabilities: list[float], **settings: Any) -> list[int]:
    logits = torch.tensor([probabilities]).log()
    return (filtered(logits, **settings)[0] > -torch.inf).nonzero().squeeze(1).tolist()


def test_filters_keep_what_crosses_and_their_order_matters() -> None:
    p = [0.2, 0.4, 0.1, 0.3]
    assert kept(p, top_k=None, top_p=0.5) == [1, 3]
    assert kept(p, top_k=3, top_p=None) == [0, 1, 3]
    assert kept(p, top_k=2, top_p=0.5) == [1, 3]
    # Renormalised to 4/7 and 3/7, the first of the two alone exceeds a half.
    assert kept(p, top_k=2, top_p=0.5, top_k_first=True) == [1]
    assert kept(p, top_k=1, top_p=None) == [1]
    assert kept(p, top_k=9, top_p=1.0) == [0, 1, 2, 3]


def confidence(source: str, remasking: str = "low_confidence") -> Tensor:
    """Probabilities .5 .3 .2 at temperature 1; squared at 1/2: 25/38, 9/38, 4/38."""
    config = SamplerConfig(
        gen_length=1, steps=1, block_length=1, temperature=0.5, top_k=2,
        confidence_from=source, remasking=remasking,  # type: ignore[arg-type]
    )  # fmt: skip
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    noise = torch.ones(1, 3)
    tokens, scored = candidates(logits, config, SpecialTokens(2, None), noise, allow_mask=True)
    assert tokens.tolist() == [0]
    return scores_of(remasking, scored, tokens)


@pytest.mark.parametrize(
    ("source", "value"), [("logits", 0.5), ("tempered", 25 / 38), ("filtered", 25 / 34)]
)
def test_confidence_can_be_read_from_three_distributions(source: str, value: float) -> None:
    torch.testing.assert_close(confidence(source), torch.tensor([value]))


def test_margin_and_negative_entropy() -> None:
    torch.testing.assert_close(confidence("filtered", "margin"), torch.tensor([16 / 34]))
    entropy = torch.tensor([25 / 34, 9 / 34])
    torch.testing.assert_close(
        confidence("filtered", "entropy"), (entropy * entropy.log()).sum()[None]
    )


def test_the_mask_token_is_no_candidate_even_where_it_alone_would_be_kept() -> None:
    config = SamplerConfig(gen_length=1, steps=1, block_length=1, top_k=1)
    logits = torch.tensor([[0.1, 0.2, 0.7]]).log()
    tokens, source = candidates(logits, config, SpecialTokens(2, None), None, allow_mask=False)
    assert tokens.tolist() == [1]
    # The plain distribution still counts it.
    torch.testing.assert_close(scores_of("low_confidence", source, tokens), torch.tensor([0.2]))
    tokens, _ = candidates(logits, config, SpecialTokens(2, None), None, allow_mask=True)
    assert tokens.tolist() == [2]
