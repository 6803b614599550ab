"""The tiny-scale check: reference interval, minimum gain, files."""

from __future__ import annotations

import json
import math

import pytest

from dare.config import RunConfig
from dare.diffusion.keys import RunKey
from dare.errors import Missing, UsageProblem
from dare.results import expectation as exp
from dare.results.record import Metric

REFERENCE = (44.0, 43.0, 45.0, 44.5, 43.5, 44.0, 43.0, 45.0, 44.5, 43.5)
T_995_9 = 3.24983554402


def settings(seed: int = 0) -> RunConfig:
    sampler = {"gen_length": 16, "steps": 8, "block_length": 16}
    return RunConfig.model_validate(
        {
            "paper": "d1",
            "scale": "tiny",
            "algorithm": "diffu-grpo",
            "model": {"name": "tiny-llada"},
            "task": {"name": "sudoku4", "protocol": "tiny"},
            "rollout": sampler,
            "evaluation": sampler,
            "training": {
                "seed": seed, "max_steps": 60, "num_generations": 8, "learning_rate": 3e-4,
                "per_device_train_batch_size": 8,
            },
        }
    )  # fmt: skip


def expectation(**changes) -> exp.Expectation:
    facts = {
        "paper": "d1",
        "task": "sudoku4",
        "model": "tiny-llada",
        "base_sha256": "b" * 64,
        "config_hash": exp.template_hash(settings()),
        "metric": "accuracy",
        "values": [{"seed": 100 + i, "value": v} for i, v in enumerate(REFERENCE)],
        "baseline": 23.0,
        "n_items": 1000,
        "conditions": "2 CPU cores, float32",
        "created": "2026-12-01",
    }
    return exp.Expectation.model_validate({**facts, **changes})


def test_interval_by_hand():
    mean, sd = 44.0, math.sqrt(sum((v - 44) ** 2 for v in REFERENCE) / 9)
    half = T_995_9 * sd * math.sqrt(1 / 3 + 1 / 10)
    assert exp.expected_interval(REFERENCE, 3) == pytest.approx((mean - half, mean + half))


def test_identical_references_still_allow_one_item():
    assert exp.expected_interval([44.0] * 10, 3, 1000) == pytest.approx((43.9, 44.1))
    identical = expectation(values=[{"seed": i, "value": 44.0} for i in range(10)])
    assert exp.check_expectation([44.05], identical).outcome == "REPRODUCED"
    assert exp.check_expectation([44.15], identical).outcome == "FAILED"


@pytest.mark.parametrize(
    ("values", "outcome", "flags", "said"),
    [
        ([44.2, 43.6, 44.1], "REPRODUCED", (), "as the reference behaved"),
        ([41.0, 42.0, 41.5], "FAILED", (), "worse than the reference"),
        ([47.0, 46.0, 46.5], "FAILED", ("EXCEEDS",), "suspiciously better"),
    ],
)
def test_both_sides_fail(values, outcome, flags, said):
    found = exp.check_expectation(values, expectation())
    assert (found.outcome, found.flags) == (outcome, flags)
    assert said in found.sentence
    assert found.exit_status == (0 if outcome == "REPRODUCED" else 1)
    assert found.rule == "expectation/1"


def test_reference_values_alone():
    assert exp.check_expectation([44.0], REFERENCE).outcome == "REPRODUCED"
    with pytest.raises(ValueError, match="9 reference seeds"):
        exp.check_expectation([44.0], REFERENCE[:9])
    with pytest.raises(ValueError, match="no values"):
        exp.check_expectation([], REFERENCE)


def test_the_gain_must_be_large_enough():
    found = exp.check_expectation([44.0, 44.5, 43.5], expectation(baseline=29.5))
    assert found.outcome == "FAILED"
    assert "gain of +14.50 points is below the 15 required" in found.sentence
    assert exp.check_expectation([44.0, 44.5, 43.5], expectation(baseline=29.0)).exit_status == 0
    assert exp.check_expectation([44.0], expectation(), baseline=30.0).outcome == "FAILED"


def test_the_gain_must_be_significant_over_the_seeds():
    wide = [{"seed": i, "value": v} for i, v in enumerate([10.0, 80.0] * 5)]
    found = exp.check_expectation([80.0, 50.0, 5.0], expectation(values=wide))
    assert found.outcome == "FAILED"
    assert "not significant over the seeds" in found.sentence


def test_the_gain_must_be_significant_over_the_problems():
    few = [{"seed": i, "value": v} for i, v in enumerate([50.0] * 5 + [60.0] * 5)]
    small = expectation(values=few, n_items=20, baseline=35.0)
    assert "over the problems" in exp.check_expectation([55.0], small).sentence
    base = {f"i{i}": (int(i < 7), 1) for i in range(20)}
    nested = {f"i{i}": (int(i < 11), 1) for i in range(20)}
    # 4 gained, none lost: McNemar mid-p = 1/16.
    found = exp.check_expectation([55.0], small, trained=[nested], base=base)
    assert found.numbers["gain_over_problems"]["p"] == pytest.approx(1 / 16)
    assert found.outcome == "FAILED"
    more = {f"i{i}": (int(i < 12), 1) for i in range(20)}
    # 5 gained: mid-p = 1/32.
    assert exp.check_expectation([60.0], small, trained=[more], base=base).outcome == "REPRODUCED"


def test_honest_seeds_rarely_fail_and_broken_ones_do():
    """Reference and new seeds from one distribution: 1 % each way at most; 5 SDs off: always."""
    rng = RunKey(0).at("bootstrap", step=7).numpy()
    failed = 0
    for _ in range(1500):
        reference, new = rng.standard_normal(10), rng.standard_normal(3)
        lo, hi = exp.expected_interval((44 + reference).tolist(), 3)
        failed += not lo <= 44 + new.mean() <= hi
    assert failed / 1500 == pytest.approx(0.01, abs=0.008)
    lo, _ = exp.expected_interval(REFERENCE, 3)
    assert lo > 44.0 - 5 * 0.75


def test_another_base_or_configuration_is_not_comparable():
    found = exp.check_expectation([44.0], expectation(), found={"base_sha256": "c" * 64})
    assert (found.outcome, found.exit_status) == ("NOT COMPARABLE", 4)
    assert found.gates[0].remedy.endswith("dare reproduce d1 --model tiny-llada")
    same = {"base_sha256": "b" * 64, "config_hash": exp.template_hash(settings(5))}
    assert exp.check_expectation([44.0], expectation(), found=same).outcome == "REPRODUCED"


def test_template_hash_ignores_the_seed_only():
    assert exp.template_hash(settings(0)) == exp.template_hash(settings(9))
    other = settings().model_copy(update={"algorithm": "spg"})
    assert exp.template_hash(other) != exp.template_hash(settings())


@pytest.fixture
def run(make_record, make_outcomes):
    def build(right: int, seed: int, kind: str = "train"):
        outcomes = make_outcomes([1] * right + [0] * (1000 - right), seed)
        record = make_record(
            0.0,
            seed=seed,
            kind=kind,
            config=settings(seed).model_dump(mode="json"),
            model={"name": "tiny-llada", "weights_sha256": "b" * 64},
            metrics=[Metric(name="accuracy", value=right / 10, n=1000, points=right, out_of=1000)],
            outcomes={"sha256": f"{seed}-{right}"},
        )
        return record, outcomes

    return build


def test_check_runs_from_records(run):
    runs = [run(441, 0), run(436, 1), run(444, 2)]
    found = exp.check_runs(expectation(), runs, run(230, 9, "eval"))
    assert found.outcome == "REPRODUCED"
    assert found.numbers["baseline"] == 23.0
    assert found.numbers["gain"] == pytest.approx((441 + 436 + 444) / 30 - 23)
    assert found.numbers["gain_over_problems"]["lo"] > 15
    again = exp.check_runs(expectation(), [*runs, runs[0]], run(230, 9, "eval"))
    assert again.numbers == found.numbers
    assert len(again.notes) == 1
    other = exp.check_runs(expectation(base_sha256="d" * 64), runs)
    assert other.outcome == "NOT COMPARABLE"


def test_files_round_trip(tmp_path, monkeypatch):
    monkeypatch.setattr(exp, "tree", lambda name: tmp_path / name)
    with pytest.raises(Missing, match="no recorded expectation") as caught:
        exp.load_expectation("d1", "sudoku4", "tiny-llada")
    assert "--seeds 0-9" in caught.value.help
    path = exp.save_expectation(expectation())
    assert path == tmp_path / "reproductions" / "expectations" / "d1.sudoku4.tiny-llada.json"
    loaded = exp.load_expectation("d1", "sudoku4", "tiny-llada")
    assert loaded == expectation()
    assert json.loads(path.read_text())["schema"] == "dare.expectation/1"
    path.write_text(path.read_text().replace('"accuracy"', "3"))
    with pytest.raises(UsageProblem, match="not a valid expectation") as caught:
        exp.load_expectation("d1", "sudoku4", "tiny-llada")
    assert "metric" in caught.value.why
    path.write_text("{")
    with pytest.raises(UsageProblem, match="cannot read the expectation"):
        exp.load_expectation("d1", "sudoku4", "tiny-llada")


@pytest.mark.parametrize(
    "values",
    [
        [{"seed": i, "value": 1.0} for i in range(9)],
        [{"seed": min(i, 8), "value": 1.0} for i in range(10)],
    ],
)
def test_ten_distinct_reference_seeds(values):
    with pytest.raises(ValueError, match=r"at least 10|twice"):
        expectation(values=values)
