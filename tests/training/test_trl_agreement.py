"""TRL's loss and ours are one: same rollout, masks, old and reference log-probabilities.

A thin ``GRPOTrainer`` whose only override is the log-probability hook, filled with our one-step
estimator, against ``diffu-grpo``.  What TRL cannot know is handed to it: masks and old
log-probabilities travel beside the batch, the reference is not loaded by name, and the canvas
after the first end-of-sequence token stays visible to the model.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from dare import algorithms
from dare._compat.trl import checkpointing_field
from dare.algorithms.base import Prepared, RolloutBatch, completion_mask
from dare.diffusion.keys import RunKey
from dare.likelihood.one_step import one_step_log_probs
from dare.likelihood.rows import Canvas
from dare.models.loading import load_model, load_tokenizer
from dare.training.rollout import left_pad

GROUP, PROMPTS, CANVAS, ITERATIONS = 4, 4, 12, 2
NORMALISERS = {"grpo": "sequence", "bnpo": "batch_tokens"}


class OneStepTrainer(GRPOTrainer):
    """Scores completions by one forward under ``self.masks`` (B, 1, L)."""

    masks: Tensor

    def _get_per_token_logps_and_entropies(  # type: ignore[no-untyped-def]
        self, model, input_ids, attention_mask, logits_to_keep, **_
    ):
        width = input_ids.shape[1] - logits_to_keep
        canvas = Canvas.build(
            input_ids[:, :width], attention_mask[:, :width].bool(), input_ids[:, width:]
        )
        log_probs = one_step_log_probs(model, canvas, self.masks, model.config.mask_token_id)
        return log_probs, torch.zeros_like(log_probs), None


@dataclass
class Case:
    """A policy that has moved since the rollout, and what was fixed before it moved."""

    policy: torch.nn.Module
    algorithm: object
    prepared: Prepared


def rollout(model, eos: int) -> RolloutBatch:  # type: ignore[no-untyped-def]
    """Prompts of 5 to 16 digits; completions of digits, most of which end before the canvas."""
    generator = torch.Generator().manual_seed(7)

    def digits(count: int) -> Tensor:
        return torch.randint(1, 5, (count,), generator=generator) + 7

    prompts = [digits(length).tolist() for length in (16, 5, 9, 13) for _ in range(GROUP)]
    prompt_ids, prompt_mask = left_pad(prompts, model.config.pad_token_id)
    completions = digits(len(prompts) * CANVAS).view(-1, CANVAS)
    for row, length in enumerate([CANVAS, 1, 4, 7, 11, 2, CANVAS, 6] * 2):
        completions[row, length:] = digits(CANVAS - length)
        if length < CANVAS:
            completions[row, length] = eos
    rewards = torch.rand(len(prompts), generator=generator)
    rewards[-GROUP:] = 0.5  # a group without anything to learn from
    return RolloutBatch(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        completion_ids=completions,
        completion_mask=completion_mask(completions, eos, "first_eos"),
        rewards=rewards,
        group_size=GROUP,
        sample_ids=torch.arange(len(prompts)),
        step=3,
    )


@pytest.fixture(scope="module")
def base():  # type: ignore[no-untyped-def]
    return load_model("tiny-llada")


@pytest.fixture(scope="module")
def case_of(base):  # type: ignore[no-untyped-def]
    """``case_of(loss_type, beta)``: prepared under the base model, then the policy moves."""

    def build(loss_type: str, beta: float) -> Case:
        options = {
            "epsilon": 0.5,
            "beta": beta,
            "p_mask_prompt": 0.15,
            "loss_normaliser": NORMALISERS[loss_type],
            "eos_policy": "first_eos",
        }
        algorithm = algorithms.make("diffu-grpo", options)
        batch = rollout(base, base.config.eos_token_id)
        policy = copy.deepcopy(base)
        # The reference is another model than the old policy, or the KL term could hide a mistake.
        reference = moved(base, seed=2, size=0.02)
        prepared = algorithm.prepare(policy, batch, RunKey(0), ITERATIONS, reference)
        return Case(moved(policy, seed=1, size=0.05), algorithm, prepared)

    return build


def moved(model, seed: int, size: float):  # type: ignore[no-untyped-def]
    """A copy of the model with ``size`` of its weights' own spread added as noise."""
    copied = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in copied.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise, alpha=size * float(parameter.square().mean().sqrt()))
    return copied


def trl_trainer(policy, loss_type: str, beta: float, folder) -> OneStepTrainer:  # type: ignore[no-untyped-def]
    # TRL writes into it; a model that cannot generate causally has none.
    policy.generation_config = SimpleNamespace(pad_token_id=None, eos_token_id=None)
    arguments = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        **{checkpointing_field(): False},
        per_device_train_batch_size=PROMPTS * GROUP,
        num_generations=GROUP,
        max_completion_length=CANVAS,
        loss_type=loss_type,
        epsilon=0.5,
        beta=0.0,  # above zero TRL would load the reference by the model's name
        use_bias_correction_kl=False,  # TRL weighs the KL by the ratio unless told not to
        num_iterations=ITERATIONS,
        report_to="none",
        save_strategy="no",
    )
    trainer = OneStepTrainer(
        model=policy,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["0"] * (PROMPTS * GROUP)}),
        processing_class=load_tokenizer("tiny-llada"),
    )
    trainer.beta = beta
    trainer.current_gradient_accumulation_steps = 1  # the training loop would set it
    policy.train()
    return trainer


def trl_inputs(prepared: Prepared, iteration: int, beta: float) -> dict[str, Tensor]:
    batch = prepared.rollout
    inputs = {
        "prompt_ids": batch.prompt_ids,
        "prompt_mask": batch.prompt_mask.long(),
        "completion_ids": batch.completion_ids,
        "completion_mask": batch.completion_mask.long(),
        "advantages": prepared.advantages,
        "num_items_in_batch": batch.completion_mask.sum(),
    }
    if iteration > 0:
        assert prepared.old_log_probs is not None
        inputs["old_per_token_logps"] = prepared.old_log_probs[iteration]
    if beta:
        assert prepared.reference_log_probs is not None
        inputs["ref_per_token_logps"] = prepared.reference_log_probs[iteration]
    return inputs


def gradients(model) -> dict[str, Tensor]:  # type: ignore[no-untyped-def]
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def assert_same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert ours
    largest = max(float(gradient.abs().max()) for gradient in theirs.values())
    assert largest > 1e-3
    for name, gradient in theirs.items():
        assert float((ours[name] - gradient).abs().max()) < 1e-5 * max(1.0, largest), name


@pytest.mark.parametrize("iteration", [0, 1])
@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("loss_type", NORMALISERS)
def test_loss_and_gradients_are_trls(case_of, loss_type, beta, iteration, tmp_path) -> None:  # type: ignore[no-untyped-def]
    case = case_of(loss_type, beta)
    trainer = trl_trainer(case.policy, loss_type, beta, tmp_path)
    trainer.masks = case.prepared.masks[iteration]

    theirs = trainer._compute_loss(case.policy, trl_inputs(case.prepared, iteration, beta))
    theirs.backward()
    their_gradients = gradients(case.policy)
    output = case.algorithm.loss(case.policy, case.prepared, iteration)
    output.loss.backward()

    assert output.loss.item() == pytest.approx(theirs.item(), abs=1e-5)
    assert abs(theirs.item()) > 1e-3 or (iteration == 0 and beta == 0.0)
    assert_same_gradients(gradients(case.policy), their_gradients)
    if iteration > 0:  # the policy has moved far enough for both sides of the clip to act
        clipped = float(output.metrics["clip_fraction"]) / len(case.prepared)
        ours = trainer._metrics["train"]["clip_ratio/region_mean"][-1]
        assert clipped > 0.02
        assert ours > 0.02


def test_micro_batches_of_a_sequence_mean_add_up_to_the_same_loss(case_of, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """TRL divides each micro-batch's mean by their number; ours share one fixed denominator."""
    case = case_of("grpo", 0.04)
    trainer = trl_trainer(case.policy, "grpo", 0.04, tmp_path)
    trainer.current_gradient_accumulation_steps = 2
    total_ours = total_theirs = 0.0
    for micro in case.prepared.slices(len(case.prepared) // 2):
        trainer.masks = micro.masks[1]
        total_theirs += trainer._compute_loss(case.policy, trl_inputs(micro, 1, 0.04)).item()
        total_ours += case.algorithm.loss(case.policy, micro, 1).loss.item()
    assert total_ours == pytest.approx(total_theirs, abs=1e-5)
    whole = case.algorithm.loss(case.policy, case.prepared, 1).loss.item()
    assert whole == pytest.approx(total_ours, abs=1e-6)


def test_a_mask_of_its_own_changes_the_loss(case_of, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The agreement is not vacuous: under the other iteration's masks TRL's loss is another."""
    case = case_of("grpo", 0.0)
    trainer = trl_trainer(case.policy, "grpo", 0.0, tmp_path)
    inputs = trl_inputs(case.prepared, 1, 0.0)
    losses = []
    for masks in case.prepared.masks:
        trainer.masks = masks
        losses.append(trainer._compute_loss(case.policy, inputs).item())
    assert abs(losses[0] - losses[1]) > 1e-4


def test_advantages_are_the_rewards_minus_their_groups_mean(case_of) -> None:  # type: ignore[no-untyped-def]
    """What TRL calls ``scale_rewards="none"``."""
    prepared = case_of("grpo", 0.0).prepared
    rewards = prepared.rollout.rewards.view(-1, GROUP)
    expected = (rewards - rewards.mean(1, keepdim=True)).view(-1)
    assert torch.allclose(prepared.advantages, expected, atol=1e-7)
    assert prepared.advantages[-GROUP:].tolist() == [0.0] * GROUP
