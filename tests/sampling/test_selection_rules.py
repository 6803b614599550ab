"""Every selection rule on numbers that are worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dare.sampling import selection
from dare.sampling.candidates import SpecialTokens
from dare.sampling.config import SamplerConfig
from dare.sampling.rules import Ascending, MaskGit
from dare.sampling.selection.base import Decision, Round, Selector

EOS, MASK = 7, 9
SPECIAL = SpecialTokens(mask=MASK, eos=EOS)


def selector(length: int, rule: dict[str, Any], steps: int | None = None, **more: Any) -> Selector:
    """The rule's selector for one row and one block of ``length``."""
    given = {} if steps is None else {"steps": steps}
    config = SamplerConfig(gen_length=length, block_length=length, selection=rule, **given, **more)
    made = selection.make(config, SPECIAL, 1)
    made.begin(0, torch.ones(1, length, dtype=torch.bool))
    return made


def one_round(
    confidence: list[float],
    masked: list[int] | None = None,
    index: int = 0,
    tokens: list[int] | None = None,
    logits: Tensor | None = None,
    all_scored: bool = False,
) -> Round:
    """A round of one row; ``masked`` lists the masked positions (default: all)."""
    width = len(confidence)
    is_masked = torch.zeros(1, width, dtype=torch.bool)
    is_masked[0, list(range(width)) if masked is None else masked] = True
    scored = torch.ones_like(is_masked) if all_scored else is_masked
    scores = torch.tensor([confidence]).masked_fill(~scored, -torch.inf)
    return Round(
        index=index, rows=torch.tensor([0]), numbers=[index], masked=is_masked,
        ids=torch.zeros(1, width, dtype=torch.int64),
        tokens=torch.tensor([tokens or [1] * width]), confidence=scores, scored=scored,
        logits=torch.zeros(int(scored.sum()), 10) if logits is None else logits, noise=None,
    )  # fmt: skip


def places(mask: Tensor | None) -> list[int]:
    assert mask is not None
    return [int(place) for place in mask[0].nonzero().squeeze(1)]


def committed(made: Selector, *args: Any, **more: Any) -> list[int]:
    return places(made.choose(one_round(*args, **more)).commit)


# ---- thresholds ----------------------------------------------------------------------------


def test_threshold_takes_the_limit_itself_and_always_the_best() -> None:
    made = selector(3, {"rule": "threshold", "threshold": 0.75})
    assert committed(made, [0.9, 0.75, 0.5]) == [0, 1]
    assert committed(made, [0.1, 0.3, 0.2]) == [1]
    assert committed(made, [0.9, 0.8, 0.1], masked=[1, 2]) == [1]


def test_dynamic_takes_more_than_the_limit_if_that_fills_the_quota() -> None:
    made = selector(4, {"rule": "dynamic", "threshold": 0.75}, steps=2)
    assert committed(made, [0.9, 0.8, 0.78, 0.75]) == [0, 1, 2]
    assert committed(made, [0.9, 0.1, 0.3, 0.2]) == [0, 2]  # one above, two are due
    assert committed(made, [0.5, 0.6, 0.0, 0.0], masked=[0, 1], index=5) == [1]


@pytest.mark.parametrize(
    ("confidence", "masked", "expected"),
    [
        # Limits for ranks 1, 2, 3, 4 at factor 1: none, 2/3, 3/4, 4/5.
        ([0.9, 0.7, 0.74, 0.6], None, [0, 2]),  # the third best, 0.7, fails
        ([0.9, 0.81, 0.8, 0.85], None, [0, 1, 2, 3]),
        ([0.9, 0.85, 0.8, 0.1], None, [0, 1, 2, 3]),  # the last rank is not tested
        ([0.9, 0.1, 0.1, 0.1], None, [0]),
        ([0.9, 0.1, 0.0, 0.0], [0, 1], [0, 1]),  # here the last rank is the second
        ([0.0, 0.0, 0.01, 0.0], [2], [2]),
    ],
)
def test_factor(confidence: list[float], masked: list[int] | None, expected: list[int]) -> None:
    assert committed(selector(4, {"rule": "factor"}), confidence, masked) == expected


@pytest.mark.parametrize(
    ("form", "bound", "expected"),
    [
        # Ordered: .04 .05 .06 .5; sums .04 .09 .15 .65; sums less the largest 0 .04 .09 .15.
        ("sum_minus_max", 0.1, [0, 1, 3]),
        ("sum_minus_max", 0.0, [1]),
        ("sum_minus_max", 0.2, [0, 1, 2, 3]),
        ("prefix", 0.1, [0, 1]),
        ("prefix", 0.35, [0, 1, 3]),
        ("prefix", 0.01, [1]),
    ],
)
def test_entropy_bound(form: str, bound: float, expected: list[int]) -> None:
    rule = {"rule": "entropy_bound", "form": form, "bound": bound}
    made = selector(4, rule, remasking="entropy")
    assert committed(made, [-0.05, -0.04, -0.5, -0.06]) == expected


def test_entropy_bound_by_confidence_sums_entropies() -> None:
    # A fair coin has the entropy ln 2 = .693; the order is that of the confidences.
    coin, sure = [0.0, 0.0, -torch.inf], [0.0, -torch.inf, -torch.inf]
    made = selector(3, {"rule": "entropy_bound", "form": "prefix", "bound": 0.7})
    logits = torch.tensor([coin, sure, coin])
    assert committed(made, [0.5, 0.4, 0.3], logits=logits) == [0, 1]
    assert committed(made, [0.5, 0.3, 0.4], logits=logits) == [0]


# ---- fixed schedules -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "blocks", "quotas"),
    [
        (16, 1, [[1, 2, 4, 9]]),
        (20, 1, [[1, 2, 4, 13]]),
        (128, 1, [[1, 2, 4, 8, 16, 32, 65]]),
        (16, 2, [[1, 2, 4], [9]]),
        (16, 3, [[1, 2], [4], [9]]),
        (128, 4, [[1, 2, 4, 8], [16], [32], [65]]),
        (20, 3, [[1, 2], [4], [13]]),
        (1, 1, [[1]]),
        (3, 1, [[3]]),
    ],
)
def test_ascending_quotas(length: int, blocks: int, quotas: list[list[int]]) -> None:
    assert Ascending(num_blocks=blocks).quotas(length) == quotas
    assert sum(map(sum, quotas)) == length


@pytest.mark.parametrize(
    ("gamma", "steps", "length", "quotas"),
    [
        ("linear", 3, 4, [2, 1, 1]),
        ("linear", 4, 10, [3, 2, 3, 2]),
        ("linear", 32, 128, [4] * 32),
        # 16 cos(pi s / 16), rounded down: 15, 14, 13, 11, 8, 6, 3, 0 are still masked.
        ("cosine", 8, 16, [1, 1, 1, 2, 3, 2, 3, 3]),
        ("pow", 4, 16, [1, 3, 5, 7]),  # 16 (1 - (s / 4)^2) = 15, 12, 7, 0
        ("log", 4, 16, [8, 4, 3, 1]),  # -4 log2(s / 4) = 8, 4, 1.66, 0
        ("exp", 4, 16, [2, 2, 4, 8]),  # 16 - 2^s = 14, 12, 8, 0
        ("log", 2, 1, [0, 1]),
        ("exp", 2, 1, [1, 0]),
    ],
)
def test_maskgit_quotas(gamma: Any, steps: int, length: int, quotas: list[int]) -> None:
    assert MaskGit(gamma=gamma).quotas(steps, length) == quotas


def test_maskgit_spends_nothing_on_an_empty_step() -> None:
    made = selector(4, {"rule": "maskgit", "gamma": "linear"}, steps=8)
    masked = torch.ones(1, 4, dtype=torch.bool)
    assert [made.is_idle(masked, index) for index in range(8)] == [False, True] * 4


def test_early_eos_is_held_back() -> None:
    rejection = {"g_min": 0.4, "g_max": 1.0}
    made = selector(8, {"rule": "schedule", "eos_rejection": rejection}, steps=8)
    confidence, tokens = [0.95, 0.6, 0.5, 0.9, 0.1, 0.1, 0.1, 0.1], [EOS, 1, 1, EOS, 1, 1, 1, 1]
    assert committed(made, confidence, tokens=tokens) == [1]  # 0.95 counts as 0.38
    assert committed(made, confidence, tokens=tokens, index=7) == [0]  # the factor is 1
    assert committed(made, confidence, tokens=tokens, index=3) == [0]  # 0.95 * 0.657 = 0.624
    assert committed(made, confidence, tokens=tokens, index=2) == [1]  # 0.95 * 0.571 = 0.543


def test_progress_of_the_ascending_schedule() -> None:
    # g(s) = 0.01 + 0.99 (2^(s + 1) - 1) / 256 for 8 steps.
    expected = [0.013867, 0.021602, 0.03707, 0.068008, 0.129883, 0.253633, 0.501133, 0.996133]
    rule = {"rule": "ascending", "eos_rejection": {"g_min": 0.01}}
    made: Any = selector(256, rule)
    found = []
    for index in range(8):
        round = one_round([1.0] * 256, tokens=[EOS] * 256, index=index)
        seen = made.eos_rejected(round, (2 ** (index + 1) - 1) / 2**8)
        found.append(float(seen[0, 0]))
        # The selector itself uses that progress: EOS at 1 loses to others just above the factor.
        rival = [1.0] + [expected[index] * 1.01] * 255
        taken = committed(made, rival, tokens=[EOS] + [1] * 255, index=index)
        assert 0 not in taken
        assert len(taken) == [1, 2, 4, 8, 16, 32, 64, 129][index]
    assert found == pytest.approx(expected, abs=1e-6)


def test_running_confidence_masks_the_least_sure_again() -> None:
    """Four masks, quotas 2, 1, 1: the third position is lost in the second step, although plain
    decoding would have kept it from the first."""
    made = selector(4, {"rule": "maskgit", "gamma": "linear", "running_confidence": True}, steps=3)
    steps: list[tuple[list[float], list[int], list[int]]] = [
        ([0.9, 0.2, 0.6, 0.5], [0, 1, 2, 3], [1, 3]),
        ([0.0, 0.7, 0.0, 0.8], [1, 3], [2]),
        ([0.0, 0.0, 0.3, 0.0], [2], []),
    ]
    for index, (confidence, masked, again) in enumerate(steps):
        decision = made.choose(one_round(confidence, masked, index))
        assert places(decision.commit) == masked
        assert places(decision.remask) == again


# ---- dInfer --------------------------------------------------------------------------------


def test_dinfer_takes_what_is_as_good_as_the_best() -> None:
    made = selector(3, {"rule": "dinfer_threshold", "threshold": 0.9})
    assert committed(made, [0.5, 0.499995, 0.4]) == [0, 1]
    assert committed(made, [0.95, 0.92, 0.5]) == [0, 1]


def test_dinfer_passes_over_positions_that_prefer_the_mask() -> None:
    made = selector(3, {"rule": "dinfer_threshold", "threshold": 0.9})
    logits = torch.zeros(3, 10)
    logits[0, MASK] = 5.0
    assert committed(made, [0.95, 0.3, 0.2], logits=logits) == [1]
    logits[:, MASK] = 5.0  # no other is left: the block must still end
    assert committed(made, [0.3, 0.2, 0.1], logits=logits) == [0]


def test_dinfer_credit() -> None:
    made = selector(3, {"rule": "dinfer_threshold", "credit_alpha": 0.7})
    scored, rows = torch.tensor([[False, True, False]]), torch.tensor([0])
    gain = (math.e / (1 + math.e)) ** 0.2  # the best of two tokens with logits 0 and 1
    first = made.adjust(torch.tensor([[0.0, 1.0]]), scored, rows, 0)
    assert first[0].tolist() == pytest.approx([0.0, 1 + 0.7 * math.log(1 + gain)])
    second = made.adjust(torch.tensor([[0.0, 1.0]]), scored, rows, 1)
    assert second[0].tolist() == pytest.approx([0.0, 1 + 0.7 * math.log(1 + 1.8 * gain)])
    third = made.adjust(torch.tensor([[2.0, 1.0]]), scored, rows, 2)
    assert third[0].tolist() == pytest.approx(
        [2 + 0.7 * math.log(1 + gain), 1 + 0.7 * math.log(1 + 0.8 * 1.8 * gain)]
    )
    made.begin(1, scored)  # another block
    assert torch.equal(made.adjust(torch.tensor([[0.0, 1.0]]), scored, rows, 0), first)


def test_hierarchy_takes_the_best_of_every_run() -> None:
    made = selector(6, {"rule": "hierarchy", "threshold": 0.9, "low_threshold": 0.4})
    masked = [0, 1, 3, 4, 5]
    assert committed(made, [0.5, 0.6, 0.0, 0.3, 0.7, 0.45], masked) == [1, 4]
    assert committed(made, [0.91, 0.95, 0.0, 0.3, 0.2, 0.1], masked) == [0, 1]
    assert committed(made, [0.1, 0.2, 0.0, 0.3, 0.2, 0.1], masked) == [3]


def test_hierarchy_masks_doubted_tokens_again() -> None:
    rule = {"rule": "hierarchy", "threshold": 0.9, "low_threshold": 0.4, "remask_below": 0.4}
    made = selector(6, rule)
    region = torch.ones(1, 6, dtype=torch.bool)
    assert made.scored(region & False, region).all()
    decision = made.choose(
        one_round([0.5, 0.6, 0.2, 0.3, 0.95, 0.45], [0, 1, 3, 4, 5], all_scored=True)
    )
    # With the doubted position 2 all are one run, whose best is 4; a second one makes up for it.
    assert places(decision.commit) == [1, 4]
    assert places(decision.remask) == [2]


# ---- rules with a memory -------------------------------------------------------------------


def test_klass_waits_until_the_distribution_has_settled() -> None:
    made = selector(
        4, {"rule": "klass", "conf_threshold": 0.6, "kl_threshold": 0.015, "history": 2}
    )
    still = torch.tensor([3.0, 0.0]).log_softmax(-1)
    moved = torch.tensor([3.0, 1.0]).log_softmax(-1)
    p, q = still.exp(), moved.exp()
    assert float((q * (moved - still)).sum()) > 0.015 > float((p * (still - still)).sum())
    assert committed(made, [0.9, 0.8, 0.7, 0.5], logits=still.expand(4, 2)) == [0]  # the quota
    # One divergence is known now, two are asked for.
    logits = torch.stack((still, moved, still))
    assert committed(made, [0, 0.8, 0.7, 0.5], [1, 2, 3], 1, logits=logits) == [1]
    # Both that are left have been still twice; one of them is not sure enough.
    logits = still.expand(2, 2)
    assert committed(made, [0, 0, 0.7, 0.5], [2, 3], 2, logits=logits) == [2]
    assert committed(made, [0, 0, 0, 0.55], [3], 3, logits=still.expand(1, 2)) == [3]


def test_klass_starts_again_after_a_change() -> None:
    made = selector(3, {"rule": "klass", "kl_threshold": 0.015, "history": 1})
    still, moved = torch.tensor([3.0, 0.0]), torch.tensor([3.0, 1.0])
    made.choose(one_round([0.9, 0.8, 0.7], logits=still.expand(3, 2)))
    logits = torch.stack((still, moved))
    assert committed(made, [0, 0.7, 0.8], [1, 2], 1, logits=logits) == [1]


def test_saber_raises_its_limit_and_takes_back_what_fell() -> None:
    made = selector(4, {"rule": "saber", "n": 2})

    def step(index: int, confidence: list[float], masked: list[int]) -> Decision:
        return made.choose(one_round(confidence, masked, index, all_scored=True))

    # Nothing is above 1: the two best.  Of these the less sure one rose least from 0.
    first = step(0, [0.9, 0.8, 0.7, 0.6], [0, 1, 2, 3])
    assert (places(first.commit), places(first.remask)) == ([0, 1], [1])
    # The mean of 0.9 and 0.8 is 0.85.  The first token has lost 0.4.
    second = step(1, [0.5, 0.86, 0.9, 0.2], [1, 2, 3])
    assert (places(second.commit), places(second.remask)) == ([1, 2], [0])
    # None is above 0.887; the two that are left complete the block, and it stays complete.
    third = step(2, [0.3, 0.9, 0.9, 0.4], [0, 3])
    assert (places(third.commit), places(third.remask)) == ([0, 3], [])


def test_saber_takes_back_nothing_that_a_later_block_has_just_committed() -> None:
    rule = {"rule": "saber", "n": 2}
    config = SamplerConfig(gen_length=5, block_length=5, selection=rule)
    made = selection.make(config, SPECIAL, 1)
    made.begin(0, torch.ones(1, 2, dtype=torch.bool))
    made.choose(one_round([0.5, 0.4], all_scored=True))
    made.begin(1, torch.tensor([[False, False, True, True, True]]))
    # The old tokens rose by 0.4 and 0.5, more than the new ones have altogether; yet the new
    # ones have no step before to have fallen from.
    second = made.choose(one_round([0.9, 0.9, 0.3, 0.2, 0.1], [2, 3, 4], all_scored=True))
    assert (places(second.commit), places(second.remask)) == ([2, 3], [0])


def test_saber_takes_back_an_eighth_but_never_all() -> None:
    made = selector(20, {"rule": "saber", "n": 2})
    made.choose(one_round([0.5] * 2 + [0.4] * 18, list(range(20)), all_scored=True))
    confidence = [0.9] * 18 + [0.1, 0.1]
    again = made.choose(one_round(confidence, list(range(1, 20)), 1, all_scored=True))
    assert len(places(again.commit)) == 17
    assert len(places(again.remask)) == 3  # 17 / 8, rounded up
    lone = selector(3, {"rule": "saber", "n": 1})
    assert places(lone.choose(one_round([0.9, 0.8, 0.7], all_scored=True)).remask) == []
