"""``dare verdict`` as a user meets it: output, JSON, exit statuses, errors."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from dare.cli import main
from dare.results.record import Metric
from dare.results.rundir import write_run

BUILDING = runpy.run_path(str(Path(__file__).resolve().parent.parent / "results" / "building.py"))
make_record, make_outcomes = BUILDING["make_record"], BUILDING["make_outcomes"]
CLAIM = "d1/baseline/math500/128"


def dare(*words: object):
    return CliRunner().invoke(main, ["verdict", *map(str, words)])


@pytest.fixture
def run(tmp_path):
    """Writes a run of LLaDA-8B on MATH500 at 128 tokens with this many right answers."""

    def build(right: int, name: str = "run", **changes):
        score = Metric(name="accuracy", value=right / 5, n=500, points=right, out_of=500)
        blocks = {
            "metrics": [score],
            "data__task": "math500",
            "data__n": 500,
            "decode__gen_length": 128,
            "decode__steps": 64,
        }
        record = make_record(0.0, **{**blocks, **changes})
        folder = tmp_path / "runs" / name
        write_run(folder, record, make_outcomes([1] * right + [0] * (500 - right)))
        return folder

    return build


def test_reproduced(run):
    folder = run(130)
    found = dare(folder, "--claim", CLAIM)
    assert found.exit_code == 0
    assert "REPRODUCED (verdict/1): 26.00 over 1 run against the published 26.00" in (
        " ".join(found.stdout.split())
    )
    assert "not stated by the paper" in found.stdout
    assert found.stderr.startswith("next: dare rescore ")
    assert all(len(line) <= 80 for line in found.stdout.splitlines())


@pytest.mark.parametrize(
    ("right", "outcome", "status"),
    [(131, "REPRODUCED", 0), (120, "PARTIAL", 4), (100, "FAILED", 1), (160, "PARTIAL", 1)],
)
def test_exit_status_is_the_verdicts(run, right, outcome, status):
    found = dare(run(right), "--claim", CLAIM)
    assert (found.exit_code, outcome in found.stdout) == (status, True)


def test_json_is_one_document(run):
    folder = run(130)
    found = dare(folder / "record.json", "--claim", CLAIM, "--json")
    document = json.loads(found.stdout)
    assert found.stderr == ""
    assert document["verdict"]["outcome"] == "REPRODUCED"
    assert document["verdict"]["numbers"]["ours"] == 26.0
    assert document["claim"]["value"] == 26.0
    assert document["records"][0]["path"].endswith("record.json")


def test_not_comparable_lists_the_gates_and_the_way_out(run):
    other = {"decode__gen_length": 256, "decode__steps": 128, "model__name": "tiny-llada"}
    found = dare(run(130, prompt__wording="own", **other), "--claim", CLAIM)
    assert found.exit_code == 4
    assert "prompt wording" in found.stdout
    assert "decode.gen_length" in found.stdout
    assert "NOT COMPARABLE" in found.stdout
    steps = found.stderr.splitlines()
    assert len(steps) == 2
    assert steps[0].endswith(
        "--task math500 --scale paper --set evaluation.gen_length=128 --set evaluation.steps=64"
    )
    assert "dare rescore FILE" in steps[1]


def test_too_few_seeds_propose_the_missing_ones(run):
    trained = {
        "kind": "train", "paper": {"id": "d1"}, "selection__rule": "best on the test set",
        "config": {"algorithm": "diffu-grpo"}, "seeds": {"run": 0},
        "budget": make_record().budget.model_copy(update={"updates": 4000}),
    }  # fmt: skip
    found = dare(run(166, **trained), "--claim", "d1/diffu-grpo/math500/128")
    assert found.exit_code == 4
    assert "2 more seed(s) would do" in " ".join(found.stdout.split())
    assert "next: dare reproduce d1 --model llada-8b --task math500 --seeds 0-2" in found.stderr


def test_unknown_claims_suggest_the_nearest(run):
    folder = run(130)
    found = dare(folder, "--claim", "d1/baselin/math500/128")
    assert found.exit_code == 2
    assert f"did you mean '{CLAIM}'?" in found.stderr
    found = dare(folder, "--claim", "d2/gsm8k/256")
    assert found.exit_code == 2
    assert "did you mean 'd1'?" in found.stderr
    assert dare(folder, "--claim", "gsm8k").exit_code == 2


def test_without_a_claim_the_candidates_are_named(run):
    found = dare(run(130))
    assert found.exit_code == 2
    assert "no claim was named" in found.stderr
    assert "d1/diffu-grpo/math500/128" in found.stderr


def test_runs_are_found_by_name_and_by_record_id(run, tmp_path):
    folder = run(130, name="2026-12-01-base-math500-1a2b3c4d")
    identity = json.loads((folder / "record.json").read_text())["id"]
    root = ["--root", str(tmp_path / "runs")]
    assert dare(folder.name, "--claim", CLAIM, *root).exit_code == 0
    assert dare(identity[:12], "--claim", CLAIM, *root).exit_code == 0
    found = dare("2026-12-01-base-math500-1a2b3c4e", "--claim", CLAIM, *root)
    assert found.exit_code == 2
    assert f"did you mean '{folder.name}'?" in found.stderr


def test_edited_evidence_is_refused(run):
    folder = run(130)
    outcomes = folder / "outcomes.jsonl"
    outcomes.write_text(outcomes.read_text().replace('"correct": false', '"correct": true', 5))
    found = dare(folder, "--claim", CLAIM)
    assert found.exit_code == 2
    assert "edited after it was written" in " ".join(found.stderr.split())
    assert found.stdout == ""


def test_the_same_run_twice_is_one_run(run):
    folder = run(130)
    found = dare(folder, folder, "--claim", CLAIM, "--json")
    document = json.loads(found.stdout)
    assert document["verdict"]["numbers"]["m"] == 1
    assert "is not counted" in document["verdict"]["notes"][0]


def test_a_record_that_says_more_than_its_outcomes_is_refused(run):
    inflated = Metric(name="accuracy", value=26.0, n=500, points=130, out_of=500)
    found = dare(run(120, metrics=[inflated]), "--claim", CLAIM)
    assert found.exit_code == 2
    assert "accuracy 26.00 in the record, 24.00 counted" in found.stderr


def test_a_path_that_is_not_there(tmp_path):
    found = dare(tmp_path / "nothing", "--claim", CLAIM)
    assert found.exit_code == 2
    assert "No such file" in found.stderr


def test_claimed_improvements_need_our_baseline(run, monkeypatch):
    from dare import reproductions

    plain = reproductions.find_claim("d1/diffu-grpo/math500/128")
    gain = plain.model_copy(update={"kind": "improvement", "value": 7.2})
    monkeypatch.setattr(reproductions, "find_claim", lambda _: gain)
    base = run(130, name="base")
    trained = [
        run(
            130 + more, name=f"seed{seed}", seed=seed, kind="train",
            budget=make_record().budget.model_copy(update={"updates": 4000}),
        )
        for seed, more in enumerate((36, 38, 34))
    ]  # fmt: skip
    refused = dare(*trained, "--claim", gain.id)
    assert refused.exit_code == 2
    assert "--baseline RUN" in refused.stderr
    found = dare(*trained, "--claim", gain.id, "--baseline", base)
    assert found.exit_code == 0, found.stdout
    assert "gain +7.20 points against the published +7.20" in " ".join(found.stdout.split())
