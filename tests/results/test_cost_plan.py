"""Cost estimates, counted by hand."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from dare import reproductions
from dare.config import RunConfig
from dare.models import registry
from dare.models.registry import Checkpoint
from dare.results.plan import (
    NF4_BYTES,
    Rate,
    estimate,
    render_plan,
    torchrun_line,
)

LLADA, TINY = registry.get("llada-8b"), registry.get("tiny-llada")


def config(paper: str, scale: str, task: str | None = None, **overrides: object) -> RunConfig:
    layers = {"--set": {path.replace("__", "."): value for path, value in overrides.items()}}
    return reproductions.load(paper).resolve(scale, task, layers=layers)[0]


# ---- counts --------------------------------------------------------------------------------


def test_d1_on_gsm8k() -> None:
    """6000 updates of 96 completions, 12 updates per rollout batch, 128 steps each."""
    plan = estimate(config("d1", "paper", "gsm8k"), LLADA)
    assert plan.rollout_batches == 500
    assert plan.completions == 500 * 96 == 48_000
    assert plan.prompts == 8_000
    assert plan.generated_tokens == 48_000 * 256
    assert plan.nfe_rollout == 48_000 * 128 == 6_144_000
    assert plan.nfe_evaluation == 1319 * 128
    assert plan.learner_forwards == 6000 * 96 == 576_000
    # The coded counter visits 6 of 12 masks: old policy 6 passes, reference 6.
    assert plan.scoring_forwards == 500 * 96 * (6 + 6)
    assert plan.sequence_tokens == 200 + 256


def test_d1_with_sequential_masks_scores_under_all_of_them() -> None:
    """12 masks: the reference under each, the old policy under all but the current one."""
    run = config("d1", "paper", "gsm8k", algorithm_options__mask_order="sequential")
    assert estimate(run, LLADA).scoring_forwards == 500 * 96 * (11 + 12)


def test_d1_tiny() -> None:
    """One prompt mask per group and a fully masked completion: 16 forwards, not 128."""
    plan = estimate(config("d1", "tiny"), TINY)
    assert (plan.rollout_batches, plan.completions, plan.prompts) == (60, 7_680, 960)
    assert plan.nfe_rollout == 7_680 * 8
    assert plan.nfe_evaluation == 1000 * 8
    assert plan.learner_forwards == 120 * 16
    assert plan.scoring_forwards == 60 * 16 * 1  # the second update's old policy; no reference


def test_d1_tiny_on_a_block_causal_model() -> None:
    """No group shares a forward, since each completion stands clean beside its noisy copy."""
    sdar = registry.get("tiny-sdar")
    run = reproductions.load("d1").resolve("tiny", model="tiny-sdar")[0]
    plan = estimate(run, sdar, prompt_tokens=16)
    assert plan.learner_forwards == 120 * 128
    assert plan.scoring_forwards == 60 * 128
    # 8 forwards of a block of 4, and 32 tokens once for their final keys.
    rollouts = (7_680 + 1000) * (8 * 4 + 32)
    trained = (16 + 16 + 16) * (60 * 128 + 3 * 120 * 128)
    assert plan.flops == 2.0 * sdar.shape.matmul_parameters * (rollouts + trained)


def test_spg_tiny_trains_through_two_masks_and_scores_nothing() -> None:
    plan = estimate(config("spg", "tiny"), TINY)
    assert plan.learner_forwards == 120 * 128 * 2
    assert plan.scoring_forwards == 0


def test_an_evaluation_costs_only_the_evaluation() -> None:
    plan = estimate(config("d1", "paper", "math500").baseline(), LLADA)
    assert (plan.updates, plan.completions, plan.learner_forwards) == (0, 0, 0)
    assert plan.nfe_evaluation == 500 * 128
    assert plan.flops == pytest.approx(2 * 7_497_318_400 * 500 * 128 * (256 + 256))


def test_guidance_doubles_the_forwards() -> None:
    run = config("d1", "tiny", rollout__cfg_scale=1.0)
    assert estimate(run, TINY).nfe_rollout == 2 * 7_680 * 8


def test_a_limit_on_the_items_counts() -> None:
    assert estimate(config("d1", "ci"), TINY).evaluation_items == 200
    run = config("d1", "paper", "gsm8k", task__eval_limit=5000)
    assert estimate(run, LLADA).evaluation_items == 1319


def test_flops_are_two_per_weight_and_token_and_three_times_that_in_training() -> None:
    plan = estimate(config("d1", "tiny"), TINY, prompt_tokens=16)
    weights = 3 * (4 * 64 * 64 + 3 * 64 * 168) + 28 * 64
    forwards = 7_680 * 8 + 60 * 16 + 3 * 120 * 16 + 1000 * 8
    assert plan.flops == 2 * weights * 32 * forwards


# ---- memory --------------------------------------------------------------------------------


def test_adapters_of_d1_reach_four_layers_of_a_block() -> None:
    """q, k, v: 8192 rows and columns each, up_proj 16384; the other listed names do not exist."""
    lora = config("d1", "paper").model.lora
    assert lora is not None
    found = LLADA.shape.adapter_parameters(lora.r, lora.target_modules)
    assert found == 32 * 128 * (3 * 8192 + 16384) == 167_772_160


def memory(facts: Checkpoint = LLADA, **overrides: object):
    return estimate(config("d1", "paper", "gsm8k", **overrides), facts).memory


def test_inference_in_bfloat16_is_weights_plus_logits() -> None:
    expected = 2 * 8_015_581_184 + 6 * 256 * 126_464 * 2
    assert memory(model__load_in_4bit=False).inference == expected


def test_four_bits_shrink_the_blocks_alone() -> None:
    """nf4 with double quantisation: 4.127 bits a weight; embedding, head and norms stay."""
    assert pytest.approx(4.127, abs=1e-3) == NF4_BYTES * 8
    saved = memory(model__load_in_4bit=False).inference - memory().inference
    assert saved == pytest.approx(6_979_321_856 * (2 - NF4_BYTES), abs=2)


def test_full_fine_tuning_takes_16_bytes_a_weight() -> None:
    activations = 6 * 456 * 32 * (8 * 4096 + 4 * 12288) * 2
    logits = 6 * 256 * 126_464 * (2 + 4)
    assert memory().full == 16 * 8_015_581_184 + activations + logits


def test_lora_adds_16_bytes_per_adapter_weight() -> None:
    found = memory(model__load_in_4bit=False)
    rest = found.full - 16 * 8_015_581_184
    assert found.lora == 2 * 8_015_581_184 + 16 * 167_772_160 + rest


def test_a_run_without_lora_has_no_lora_figure() -> None:
    assert estimate(config("d1", "tiny"), TINY).memory.lora is None


# ---- mixtures of experts -------------------------------------------------------------------

# SDAR-30B-A3B: 48 layers of 32 heads of 128 and 4 key-value heads, 128 experts of 768, 8 used.
MIXTURE = registry.get("sdar-30b")
ATTENTION = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512)
ROUTER, EXPERT, HEAD = 48 * 2048 * 128, 3 * 2048 * 768, 151_936 * 2048


def test_flops_of_a_mixture_count_the_experts_that_a_token_uses() -> None:
    plan = estimate(config("d1", "paper", "math500").baseline(), MIXTURE)
    active = ATTENTION + ROUTER + 48 * 8 * EXPERT + HEAD
    assert plan.flops == pytest.approx(2 * active * 500 * 128 * (256 + 256))


def test_memory_of_a_mixture_counts_all_its_experts() -> None:
    logits = 6 * 256 * 151_936
    found = memory(MIXTURE, model__load_in_4bit=False)
    assert found.inference == 61_064_245_248 + 2 * logits
    activations = 6 * 456 * 48 * (8 * 2048 + 4 * 8 * 768) * 2
    assert found.full == 8 * 61_064_245_248 + activations + logits * (2 + 4)


def test_four_bits_and_adapters_leave_the_experts_alone() -> None:
    """d1 lists q, k, v and the MLP's up projection, whose experts are stacked weights here."""
    saved = memory(MIXTURE, model__load_in_4bit=False).inference - memory(MIXTURE).inference
    assert saved == pytest.approx(ATTENTION * (2 - NF4_BYTES), abs=2)
    lora = config("d1", "paper").model.lora
    assert lora is not None
    found = MIXTURE.shape.adapter_parameters(lora.r, ("q_proj", "k_proj", "v_proj", "up_proj"))
    assert found == 48 * 128 * ((2048 + 4096) + 2 * (2048 + 512))


# ---- time ----------------------------------------------------------------------------------


def test_time_is_the_measured_rate_with_its_basis() -> None:
    """0.49 min x 6000 = 49 h."""
    rate = reproductions.load("d1").rates["paper"]
    plan = estimate(config("d1", "paper", "gsm8k"), LLADA, rate=rate)
    assert plan.seconds == pytest.approx(49 * 3600)
    assert "0.49 min per update" in plan.time_basis


def test_fixed_time_is_spent_once() -> None:
    plan = estimate(config("d1", "tiny"), TINY, rate=Rate(0.5, "test", seconds_fixed=20.0))
    assert plan.seconds == 20 + 120 * 0.5


def test_without_a_measurement_the_basis_says_so() -> None:
    paper = estimate(config("d1", "paper", "gsm8k"), LLADA)
    assert paper.seconds == pytest.approx(paper.flops / (8 * 312e12 * 0.4))
    assert paper.time_basis.startswith("nobody's measurement")
    tiny = estimate(config("d1", "tiny"), TINY)
    assert tiny.seconds is None
    assert "no estimate" in "\n".join(render_plan(tiny, config("d1", "tiny")))


# ---- what is shown -------------------------------------------------------------------------


def test_every_setting_is_shown_with_its_origin() -> None:
    run, origins = reproductions.load("d1").resolve(
        "tiny", layers={"--set": {"training.learning_rate": 1e-4}}
    )
    lines = render_plan(estimate(run, TINY), run, origins, files=["runs/x/record.json"])
    assert "  training.learning_rate = 0.0001  (--set)" in lines
    assert "  rollout.steps = 8  (d1's rule: half the length)" in lines
    assert '  control = "none"  (default)' in lines
    assert "  NFE, rollouts     61,440 forwards of one sequence" in lines
    assert lines[-1] == "  runs/x/record.json"


def test_values_set_as_a_whole_keep_their_origin() -> None:
    run, origins = reproductions.load("d1").resolve("paper")
    lines = render_plan(estimate(run, LLADA), run, origins)
    (targets,) = [line for line in lines if "target_modules" in line]
    assert targets.endswith("(code: the names as listed there)")


def test_cost_lines_fit_80_columns() -> None:
    run, _ = reproductions.load("d1").resolve("paper")
    rate = reproductions.load("d1").rates["paper"]
    assert max(map(len, render_plan(estimate(run, LLADA, rate=rate), run))) <= 80


def test_the_launch_line_starts_one_process_per_device() -> None:
    line = torchrun_line(config("d1", "paper"), "my plan.json", "runs/d1")
    assert line == (
        "torchrun --standalone --nproc_per_node 8 -m dare.training.worker "
        "--config 'my plan.json' --run-dir runs/d1"
    )


def test_a_plan_is_data() -> None:
    plan = estimate(config("d1", "tiny"), TINY)
    assert replace(plan, updates=1).updates == 1
    assert asdict(plan)["memory"]["full"] == plan.memory.full
