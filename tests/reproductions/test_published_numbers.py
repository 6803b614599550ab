"""The claims against the published tables, typed here by hand."""

from __future__ import annotations

import pytest

from dare import reproductions
from dare.reproductions import find_claim
from dare.reproductions.building import Benchmark, ResultsTable, TableRow

CELLS = {
    # d1: base, RL on the base, SFT + RL.
    "d1/baseline/gsm8k/128": 68.7,
    "d1/baseline/gsm8k/512": 78.2,
    "d1/baseline/math500/256": 32.4,
    "d1/baseline/countdown/128": 20.7,
    "d1/baseline/sudoku/256": 6.7,
    "d1/diffu-grpo/gsm8k/256": 79.8,
    "d1/diffu-grpo/math500/512": 39.2,
    "d1/diffu-grpo/countdown/512": 37.1,
    "d1/diffu-grpo/sudoku/best": 18.4,
    "d1/gsm8k/256": 81.1,
    "d1/gsm8k/512": 82.1,
    "d1/math500/128": 33.8,
    "d1/countdown/512": 42.2,
    "d1/sudoku/128": 22.1,
    "d1/sft/sudoku/best": 16.5,
    "d1/sft/gsm8k/best": 81.1,
    "d1/diffu-grpo/mbpp/unstated": 45.5,
    "d1/sft/humaneval/unstated": 32.9,
    "d1/humaneval/unstated": 37.8,
    # SPG: own rows, baselines, re-runs of other methods.
    "spg/gsm8k/128": 78.5,
    "spg/gsm8k/256": 86.1,
    "spg/math500/512": 41.8,
    "spg/countdown/256": 70.7,
    "spg/sudoku/256": 94.0,
    "spg/eubo/gsm8k/128": 77.1,
    "spg/eubo/sudoku/512": 89.9,
    "spg/baseline/gsm8k/256": 77.2,
    "spg/baseline/sudoku/128": 5.7,
    "spg/llada-1.5/math500/128": 26.8,
    "spg/llada-1.5/countdown/512": 21.5,
    "spg/d1/gsm8k/256": 80.6,
    "spg/d1/sudoku/128": 7.2,
    "spg/wd1/countdown/256": 52.3,
    "spg/unigrpo/sudoku/512": 62.9,
    "spg/humaneval/512": 39.6,
    "spg/mbpp/256": 50.6,
    "spg/eubo/humaneval/256": 41.5,
    "spg/wd1/humaneval/128": 25.6,
    # SPG: ablations (means over lengths) and cost.
    "spg/negative-none/countdown/mean": 45.5,
    "spg/negative-elbo/gsm8k/mean": 80.9,
    "spg/negative-mixture/sudoku/mean": 90.0,
    "spg/random-masks-eubo/countdown/mean": 45.4,
    "spg/random-masks-mixture/math500/mean": 36.9,
    "spg/omega-0.75/countdown/mean": 70.9,
    "spg/omega-1/math500/mean": 36.7,
    "spg/beta-2.0/sudoku/mean": 55.2,
    "spg/mc-4/countdown/mean": 81.8,
    "spg/full-fine-tuning/countdown/mean": 77.1,
    "spg/step-wise/math500/mean": 35.5,
    "spg/d1/gsm8k/minutes-per-update": 0.49,
    "spg/gsm8k/minutes-per-update": 0.51,
    "spg/step-wise/math500/minutes-per-update": 7.5,
}


@pytest.mark.parametrize(("claim_id", "value"), CELLS.items())
def test_cell(claim_id: str, value: float) -> None:
    assert find_claim(claim_id).value == value


def test_every_cell_of_the_tables_is_there() -> None:
    """d1: 12 + 9 + 1 + 12 + 4 accuracies, 6 on code.  SPG: 7 rows x (4 + 2 tasks) x 3 lengths;
    16 + 8 + 10 + 12 + 4 + 5 x 2 - 2 ablation means; 5 times."""
    assert len(reproductions.load("d1").claims) == 12 + 9 + 1 + 12 + 4 + 6
    assert len(reproductions.load("spg").claims) == 126 + 16 + 8 + 10 + 12 + 4 + 8 + 5


def test_the_unverified_cell_says_so() -> None:
    claim = find_claim("d1/baseline/gsm8k/128")
    assert claim.note.startswith("not verified")
    assert "69.3 on the 1130 of 1319" in claim.note
    others = [c for c in reproductions.load("d1").claims if "not verified" in c.note]
    assert others == [claim]


def test_numbers_of_items() -> None:
    for task, n in (("gsm8k", 1319), ("math500", 500), ("countdown", 256), ("sudoku", 256)):
        assert find_claim(f"d1/{task}/256").n_items == n
        assert find_claim(f"spg/{task}/256").n_items == n
    assert find_claim("spg/mbpp/256").n_items is None


def test_sudoku_is_scored_in_cells() -> None:
    assert find_claim("d1/sudoku/128").metric == "cells"
    assert find_claim("d1/gsm8k/128").metric == "accuracy"


def test_selection_rules() -> None:
    assert "best on the test set, per length" in (find_claim("d1/gsm8k/256").selection or "")
    assert "best mean over lengths" in (find_claim("spg/gsm8k/256").selection or "")
    assert find_claim("d1/baseline/gsm8k/256").selection == "released checkpoint, nothing selected"
    assert find_claim("d1/sft/gsm8k/best").selection is None


def test_decode_settings_follow_the_length() -> None:
    assert find_claim("d1/gsm8k/512").decode == {
        "block_length": 32, "temperature": 0.0, "cfg_scale": 0.0, "steps": 256,
    }  # fmt: skip
    assert find_claim("spg/gsm8k/128").decode["steps"] == 64
    assert "steps" not in find_claim("spg/omega-0/math500/mean").decode
    assert find_claim("d1/humaneval/unstated").decode == {}


def test_protocols_that_differ_from_d1s_are_kept_apart() -> None:
    assert find_claim("spg/sudoku/256").protocol == "spg"
    assert find_claim("spg/gsm8k/256").protocol == "spg"
    assert find_claim("spg/countdown/256").protocol == "d1"
    assert find_claim("spg/mbpp/256").protocol is None


def test_less_time_is_better() -> None:
    assert find_claim("spg/gsm8k/minutes-per-update").direction == "lower"
    assert find_claim("spg/gsm8k/256").direction == "higher"


@pytest.mark.parametrize(
    ("row", "ablation"), [("", "negative-mixture"), ("eubo/", "negative-eubo")]
)
@pytest.mark.parametrize("task", ["gsm8k", "math500", "countdown", "sudoku"])
def test_spg_ablation_means_agree_with_the_main_table(row: str, ablation: str, task: str) -> None:
    """Two published tables must tell one story; cells are rounded to 0.1."""
    cells = [find_claim(f"spg/{row}{task}/{length}").value for length in (128, 256, 512)]
    assert find_claim(f"spg/{ablation}/{task}/mean").value == pytest.approx(
        sum(cells) / 3, abs=0.101
    )


def test_d1s_baselines_are_what_its_released_generations_score(shared_dir) -> None:
    """Totals of the protocol on the authors' generations, from the reference material."""
    totals = {
        "math500/128": 130 / 500,
        "math500/256": 162 / 500,
        "countdown/128": 53 / 256,
        "countdown/256": 50 / 256,
        "sudoku/128": 240 / 2048,
        "sudoku/256": 137 / 2048,
    }
    text = (shared_dir / "data" / "README.md").read_text()
    for cell, share in totals.items():
        assert f"{100 * share:.2f}" in text
        assert find_claim(f"d1/baseline/{cell}").value == pytest.approx(100 * share, abs=0.05)


# ---- the pinned settings, by hand ----------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "updates", "iterations"),
    [("gsm8k", 6000, 12), ("math500", 4008, 12), ("countdown", 6000, 8), ("sudoku", 2504, 8)],
)
def test_d1_paper_scale(task: str, updates: int, iterations: int) -> None:
    config, _ = reproductions.load("d1").resolve("paper", task)
    training, options = config.training, config.algorithm_options
    assert training is not None
    assert (training.max_steps, training.num_iterations) == (updates, iterations)
    assert (training.completions_per_update, training.prompts_per_update) == (96, 16)
    assert (training.learning_rate, training.weight_decay, training.max_grad_norm) == (
        3e-6, 0.1, 0.2,
    )  # fmt: skip
    assert (options["epsilon"], options["beta"], options["p_mask_prompt"]) == (0.5, 0.04, 0.15)
    assert options["scale_rewards"] is False
    assert options["loss_normaliser"] == "group_tokens"
    assert config.model.lora is not None
    assert (config.model.lora.r, config.model.lora.lora_alpha) == (128, 64)
    assert config.model.load_in_4bit
    assert (config.rollout.gen_length, config.rollout.steps, config.rollout.block_length) == (
        256, 128, 32,
    )  # fmt: skip
    assert (config.rollout.temperature, config.evaluation.temperature) == (0.9, 0.0)


@pytest.mark.parametrize(
    ("task", "updates", "beta", "temperature", "batch"),
    [
        ("gsm8k", 6000, 1.5, 0.9, (6, 2)),
        ("math500", 4000, 1.5, 0.9, (6, 2)),
        ("countdown", 6000, 1.5, 0.9, (6, 2)),
        ("sudoku", 2500, 1.0, 0.3, (3, 4)),
    ],
)
def test_spg_paper_scale(
    task: str, updates: int, beta: float, temperature: float, batch: tuple[int, int]
) -> None:
    config, _ = reproductions.load("spg").resolve("paper", task)
    training, options = config.training, config.algorithm_options
    assert training is not None
    assert training.max_steps == updates
    assert (
        (
            training.per_device_train_batch_size,
            training.gradient_accumulation_steps,
        )
        == batch
        == (options["coded_micro_batch"], options["coded_accumulation"])
    )
    assert training.completions_per_update == 96
    assert (training.num_generations, training.num_iterations) == (6, 4)
    assert (options["eubo_beta"], options["omega"], options["mc_samples"]) == (beta, 0.5, 2)
    assert (options["negative_term"], options["masking"]) == ("mix", "block_random")
    assert "beta" not in options
    assert config.rollout.temperature == temperature


def test_tiny_scale_is_the_measured_recipe() -> None:
    """16 prompts x 8 completions, 60 rollout batches of 2 updates, 3e-4 linear to 5 %."""
    for paper in ("d1", "spg"):
        config, _ = reproductions.load(paper).resolve("tiny")
        training = config.training
        assert training is not None
        assert (training.prompts_per_update, training.num_generations) == (16, 8)
        assert training.max_steps // training.num_iterations == 60
        assert training.lr_scheduler_type == "linear"
        assert training.min_lr_ratio == 0.05
        assert config.rollout.temperature == 1.0
        assert (config.rollout.steps, config.rollout.block_length) == (8, 16)
        assert config.model.lora is None


# ---- the table helper ----------------------------------------------------------------------


def test_a_cell_with_too_few_values_is_refused() -> None:
    table = ResultsTable("p", "here", {"t": Benchmark()})
    with pytest.raises(ValueError, match="zip"):
        table.by_length(TableRow("", "ours", "llada-8b", None), {"t": "1.0 / 2.0"})


def test_a_row_points_at_the_row_it_improves_on() -> None:
    table = ResultsTable("p", "here", {"t": Benchmark(metric="cells", n_items=3)}, unit="minutes")
    (claim,) = table.single(TableRow("x", "X", "llada-8b", None, "base"), "mean", {"t": 2.5}, "n")
    assert (claim.id, claim.baseline) == ("p/x/t/mean", "p/base/t/mean")
    assert (claim.metric, claim.n_items, claim.unit, claim.note) == ("cells", 3, "minutes", "n")
