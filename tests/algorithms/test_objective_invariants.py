"""What must hold for every objective, to the last digits of float64."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from dare.algorithms import make
from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem
from dare.likelihood.rows import row_log_probs

KEY = RunKey(21)
VARIANTS = {
    "d1": ("diffu-grpo", {}),
    "d1-shared": ("diffu-grpo", {"share_mask_in_group": True, "beta": 0.0}),
    "d1-sequence": ("diffu-grpo", {"loss_normaliser": "sequence", "scale_rewards": True}),
    "d1-coded": ("diffu-grpo", {"mask_order": "as_coded", "loss_normaliser": "batch_tokens"}),
    "spg": ("spg", {"block_length": 4}),
    "spg-random": ("spg", {"masking": "random", "share_mask_in_group": True}),
    "spg-all": ("spg", {"masking": "block_all", "block_length": 2, "negative_term": "eubo"}),
    "spg-full": ("spg", {"masking": "full", "mc_samples": 1, "negative_term": "elbo"}),
}
ITERATIONS = 2


@pytest.fixture(params=VARIANTS)
def algorithm(request):
    name, options = VARIANTS[request.param]
    return make(name, options)


def prepare(algorithm, model, rollout, reference, micro_batch=None, iterations=ITERATIONS):
    return algorithm.prepare(model, rollout, KEY, iterations, reference, micro_batch)


def moved(model):
    """The policy after some update, so that ratios differ from one."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(noise, alpha=0.05)
    return model


def evaluate(algorithm, model, prepared, iteration, micro_batch=None):
    """Total loss, metrics and gradient over the slices."""
    model.zero_grad()
    loss, metrics = 0.0, {}
    for micro in prepared.slices(micro_batch):
        output = algorithm.loss(model, micro, iteration)
        output.loss.backward()
        loss += output.loss.item()
        for name, value in output.metrics.items():
            assert not value.requires_grad
            metrics[name] = metrics.get(name, 0.0) + value.item()
    return loss, metrics, torch.cat([p.grad.flatten() for p in model.parameters()])


def assert_same(first, second):
    assert first[0] == pytest.approx(second[0], rel=1e-10, abs=1e-13)
    assert first[1] == pytest.approx(second[1], rel=1e-5)
    torch.testing.assert_close(first[2], second[2], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 4, 8])
def test_the_micro_batch_split_does_not_matter(
    algorithm, mixer, reference, rollout_of, micro_batch
):
    rollout = rollout_of()
    whole = prepare(algorithm, mixer, rollout, reference)
    cut = prepare(algorithm, mixer, rollout, reference, micro_batch)
    moved(mixer)
    for iteration in range(ITERATIONS):
        expected = evaluate(algorithm, mixer, whole, iteration)
        assert expected[2].abs().max() > 1e-3
        assert_same(evaluate(algorithm, mixer, cut, iteration, micro_batch), expected)


def test_padding_does_not_matter(algorithm, mixer, reference, rollout_of):
    narrow = prepare(algorithm, mixer, rollout_of(), reference)
    wide = prepare(algorithm, mixer, rollout_of(padding=3), reference)
    moved(mixer)
    for iteration in range(ITERATIONS):
        assert_same(
            evaluate(algorithm, mixer, wide, iteration),
            evaluate(algorithm, mixer, narrow, iteration),
        )


def test_the_order_of_the_groups_does_not_matter(algorithm, mixer, reference, rollout_of):
    rollout = rollout_of()
    rows = torch.arange(16).view(4, 4)[[2, 0, 3, 1]].flatten()
    straight = prepare(algorithm, mixer, rollout, reference)
    permuted = prepare(algorithm, mixer, rollout.select(rows), reference)
    assert torch.equal(permuted.masks, straight.masks[:, rows])
    torch.testing.assert_close(permuted.advantages, straight.advantages[rows])
    moved(mixer)
    assert_same(evaluate(algorithm, mixer, permuted, 1), evaluate(algorithm, mixer, straight, 1))


def test_other_seeds_steps_and_iterations_mask_differently(algorithm, mixer, reference, rollout_of):
    rollout = rollout_of()
    masks = prepare(algorithm, mixer, rollout, reference, iterations=4).masks
    other_step = prepare(algorithm, mixer, replace(rollout, step=4), reference, iterations=4).masks
    other_seed = algorithm.prepare(mixer, rollout, RunKey(22), 4, reference).masks
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks, other_step)
    assert not torch.equal(masks, other_seed)


def test_tokens_that_do_not_count_get_no_gradient(algorithm, mixer, reference, rollout_of):
    """Row by row: whatever the head reads lies inside the counted completion, and the loss does
    not change when a token behind the end is another one."""
    rollout = rollout_of()
    assert not rollout.completion_mask.all()
    prepared = prepare(algorithm, mixer, rollout, reference)
    altered_ids = rollout.completion_ids.where(rollout.completion_mask, 2)
    altered = prepare(algorithm, mixer, replace(rollout, completion_ids=altered_ids), reference)
    moved(mixer)
    assert_same(evaluate(algorithm, mixer, altered, 1), evaluate(algorithm, mixer, prepared, 1))
    read = []
    forward = mixer.forward

    def spy(input_ids, attention_mask=None, *, positions, targets):
        read.append(positions[:, -8:])
        return forward(input_ids, attention_mask, positions=positions, targets=targets)

    mixer.forward = spy
    for micro in prepared.slices(1):
        algorithm.loss(mixer, micro, 1)
        assert read[-1].any()
        assert not (read[-1] & ~micro.rollout.completion_mask).any()


def test_constant_rewards_give_exactly_nothing(algorithm, mixer, reference, rollout_of):
    rollout = rollout_of()
    rollout = replace(rollout, rewards=torch.full_like(rollout.rewards, 0.1))
    if algorithm.needs_reference:
        algorithm = make(algorithm.name, {**algorithm.config.model_dump(), "beta": 0.0})
    prepared = prepare(algorithm, mixer, rollout, None)
    moved(mixer)
    loss, metrics, gradient = evaluate(algorithm, mixer, prepared, 1)
    assert loss == 0
    assert (gradient == 0).all()
    assert metrics["constant_reward"] == 16


@pytest.mark.parametrize("missing", [math.nan, math.inf])
def test_a_missing_reward_is_as_if_the_sample_were_not_there(
    algorithm, mixer, reference, rollout_of, missing
):
    """Sample 5 has no reward: nothing about it matters, and the rest is finite."""
    rollout = rollout_of()
    rewards = rollout.rewards.clone()
    rewards[5] = missing
    rollout = replace(rollout, rewards=rewards)
    other_ids = rollout.completion_ids.clone()
    other_ids[5] = torch.tensor([4, 4, 4, 0, 0, 0, 2, 2])
    other = replace(rollout, completion_ids=other_ids)
    prepared = prepare(algorithm, mixer, rollout, reference)
    assert prepared.advantages[5] == 0
    assert prepared.advantages[[4, 6, 7]].sum().abs() < 1e-12
    assert prepared.weights.sum().item() == pytest.approx(1)
    changed = prepare(algorithm, mixer, other, reference)
    moved(mixer)
    result = evaluate(algorithm, mixer, prepared, 1)
    assert math.isfinite(result[0])
    assert result[2].isfinite().all()
    assert result[1]["isolated"] == 1
    assert_same(evaluate(algorithm, mixer, changed, 1), result)
    alone = algorithm.loss(mixer, prepared.select([5]), 1)
    assert alone.loss.item() == 0


def test_no_reward_at_all_gives_a_zero_gradient(algorithm, mixer, reference, rollout_of):
    rollout = rollout_of(prompts=1)
    rollout = replace(rollout, rewards=torch.full_like(rollout.rewards, math.nan))
    prepared = prepare(algorithm, mixer, rollout, reference)
    loss, metrics, gradient = evaluate(algorithm, mixer, prepared, 1)
    assert loss == 0
    assert (gradient == 0).all()
    assert metrics["isolated"] == 4


def scores(algorithm, model, prepared, iteration=0):
    """Log-likelihood estimate of every sample under the masks of an iteration."""
    rollout, masks = prepared.rollout, prepared.masks[iteration]
    length = rollout.completion_ids.shape[1]
    needed = masks[..., -length:] & rollout.completion_mask[:, None]
    with torch.no_grad():
        canvas = rollout.canvas()
        log_probs = row_log_probs(model, canvas, masks, needed, prepared.mask_token_id)
    return log_probs.sum((1, 2))


@pytest.mark.parametrize("good", [0, 1])
def test_a_step_raises_the_rewarded_sample_and_lowers_the_other(
    algorithm, mixer, reference, rollout_of, good
):
    rewards = torch.zeros(2, dtype=torch.float64)
    rewards[good] = 1
    rollout = replace(rollout_of(prompts=1, group=2, seed=4), rewards=rewards)
    if algorithm.needs_reference:
        algorithm = make(algorithm.name, {**algorithm.config.model_dump(), "beta": 0.0})
    prepared = prepare(algorithm, mixer, rollout, None)
    before = scores(algorithm, mixer, prepared)
    evaluate(algorithm, mixer, prepared, 0)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.sub_(parameter.grad, alpha=0.05)
    after = scores(algorithm, mixer, prepared)
    assert after[good] > before[good]
    assert after[1 - good] < before[1 - good]


def test_a_larger_advantage_pushes_harder(algorithm, mixer, reference, rollout_of):
    """The gradient of sample 0's likelihood along the step grows with its advantage."""
    rollout = rollout_of(prompts=1, group=2, seed=4)
    gains = []
    for reward in (0.5, 2.0):
        rewards = torch.tensor([reward, 0.0], dtype=torch.float64)
        options = {**algorithm.config.model_dump(), "scale_rewards": False}
        if algorithm.needs_reference:
            options["beta"] = 0.0
        plain = make(algorithm.name, options)
        prepared = prepare(plain, mixer, replace(rollout, rewards=rewards), None)
        gains.append(evaluate(plain, mixer, prepared, 0)[2])
    torch.testing.assert_close(gains[1], 4 * gains[0], rtol=1e-9, atol=1e-12)


def test_the_model_sees_masked_completions_and_lightly_masked_prompts(
    algorithm, mixer, reference, rollout_of
):
    """Every input is the clean canvas with the mask token exactly where the masks say."""
    certain = make(algorithm.name, {**algorithm.config.model_dump(), "p_mask_prompt": 1.0})
    rollout = rollout_of()
    prepared = prepare(certain, mixer, rollout, reference)
    mixer.calls.clear()
    certain.loss(mixer, prepared, 0)
    (inputs,) = mixer.calls
    prompt_width = inputs.shape[1] - 8
    real = rollout.prompt_mask[:, -prompt_width:]
    for row in inputs:
        assert any(torch.equal(row[:prompt_width] == 6, mask) for mask in real)
    assert (inputs[:, prompt_width:] == 6).any(-1).all()


def test_too_few_prompt_masks_would_show(mixer, reference, rollout_of):
    """Mutation guard: the loss depends on the prompt masks that were drawn."""
    d1 = make("d1")
    prepared = prepare(d1, mixer, rollout_of(), reference)
    dropped = prepared.masks.clone()
    dropped[..., :-8] = False
    assert not torch.equal(dropped, prepared.masks)
    masked, _, gradient = evaluate(d1, mixer, prepared, 0)
    clean, _, other = evaluate(d1, mixer, replace(prepared, masks=dropped), 0)
    assert masked != pytest.approx(clean, rel=1e-3)
    assert (gradient - other).abs().max() > 1e-4


def test_the_first_iteration_has_ratio_one_and_no_extra_pass(mixer, reference, rollout_of):
    d1 = make("d1", {"beta": 0.0})
    prepared = prepare(d1, mixer, rollout_of(), None, iterations=1)
    assert mixer.calls == []
    assert prepared.old_log_probs is None
    _, metrics, _ = evaluate(d1, mixer, prepared, 0)
    assert prepared.learner_forwards == sum(map(len, mixer.calls))
    assert metrics["ratio"] == pytest.approx(16, rel=1e-6)
    assert metrics["clip_fraction"] == 0


def test_old_and_reference_passes_are_counted_and_not_repeated(mixer, reference, rollout_of):
    """d1 at mu = 4: three old and four reference passes; with the published counter each
    micro-batch has two masks, so one old pass and two reference passes fall away."""
    rollout = rollout_of(prompts=3)
    for options, old, frozen in (({}, 3, 4), ({"mask_order": "as_coded"}, 2, 2)):
        mixer.calls.clear()
        reference.calls.clear()
        d1 = make("d1", options)
        prepared = prepare(d1, mixer, rollout, reference, iterations=4)
        assert len(mixer.calls) == old
        assert len(reference.calls) == frozen
        for iteration in range(4):
            evaluate(d1, mixer, prepared, iteration)
        rows = sum(map(len, mixer.calls)) + sum(map(len, reference.calls))
        assert prepared.learner_forwards == rows


def test_old_log_probs_are_those_of_the_policy_before_the_update(mixer, reference, rollout_of):
    d1 = make("d1")
    prepared = prepare(d1, mixer, rollout_of(), reference, micro_batch=3, iterations=3)
    before = [evaluate(d1, mixer, prepared, j)[1]["ratio"] for j in range(3)]
    assert before == pytest.approx([16, 16, 16], rel=1e-6)
    moved(mixer)
    after = [evaluate(d1, mixer, prepared, j)[1]["ratio"] for j in range(3)]
    assert after[0] == pytest.approx(16, rel=1e-6)
    assert abs(after[1] - 16) > 1e-3
    assert evaluate(d1, mixer, prepared, 2)[1]["kl"] > 0


def test_a_group_that_shares_its_mask_is_one_forward(mixer, rollout_of):
    d1 = make("d1", {"share_mask_in_group": True, "beta": 0.0})
    prepared = prepare(d1, mixer, rollout_of(), None)
    assert prepared.learner_forwards == 4 * 3
    mixer.calls.clear()
    d1.loss(mixer, prepared, 0)
    assert mixer.calls[0].shape[0] == 4


def test_the_kl_pulls_towards_the_reference(mixer, reference, rollout_of):
    """With no advantage, the loss is beta times a KL estimate: zero at the reference itself."""
    d1 = make("d1", {"beta": 0.5})
    rollout = rollout_of()
    rollout = replace(rollout, rewards=torch.ones_like(rollout.rewards))
    away, _, gradient = evaluate(d1, mixer, prepare(d1, mixer, rollout, reference), 0)
    assert away > 0.01
    assert gradient.abs().max() > 1e-3
    prepared = prepare(d1, mixer, rollout, mixer)
    for iteration in range(ITERATIONS):
        at_home, metrics, still = evaluate(d1, mixer, prepared, iteration)
        assert at_home == pytest.approx(0, abs=1e-12)
        assert metrics["kl"] == pytest.approx(0, abs=1e-12)
        assert still.abs().max() < 1e-12


def test_beta_without_a_reference_is_refused(mixer, rollout_of):
    with pytest.raises(UsageProblem, match="without a reference model"):
        make("d1").prepare(mixer, rollout_of(), KEY, 1)


def test_more_draws_than_blocks_are_refused(mixer, rollout_of):
    with pytest.raises(UsageProblem, match="1 block"):
        make("spg", {"block_length": 8}).prepare(mixer, rollout_of(), KEY, 1)


def test_commit_steps_follow_their_samples(rollout_of):
    rollout = rollout_of()
    rollout = replace(rollout, commit_step=torch.arange(16 * 8).view(16, 8))
    part = rollout.select([3, 1])
    assert part.commit_step[:, 0].tolist() == [24, 8]
    assert part.sample_ids.tolist() == [3, 1]
    assert len(part) == 2
