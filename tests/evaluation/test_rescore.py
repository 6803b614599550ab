"""Scoring stored generations: files, runs, records."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dare.errors import Missing, UsageProblem
from dare.evaluation.outcomes import content_sha, item_sha
from dare.evaluation.regrade import regrade_run
from dare.evaluation.rescore import rescore_file
from dare.evaluation.rescore_record import Provenance, write_regrade, write_rescore
from dare.grading import strict
from dare.results.record import Metric
from dare.results.rundir import read_outcomes, read_record
from dare.tasks import sudoku4
from dare.tasks.base import Item

EXCERPTS = Path(__file__).resolve().parent.parent / "grading" / "excerpts"
SUDOKU = EXCERPTS / "sudoku.jsonl"
COUNTDOWN = EXCERPTS / "countdown.jsonl"

PUZZLE, SOLVED = "1030040201434001", "1234341221434321"


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(generation: str, **more: Any) -> dict[str, Any]:
    return {"question": PUZZLE, "generation": generation, "ground_truth": SOLVED, **more}


def test_scores_are_pooled_and_bounded_by_wilson_intervals() -> None:
    """Cells right, from the excerpt by hand: 6+2+6+6+6+2+5+6+6+6+0 of 11 puzzles of 6."""
    result = rescore_file(SUDOKU, "sudoku", "d1")
    assert (result.points, result.out_of, result.n) == (51, 66, 11)
    score = result.score()
    assert (score.name, score.points, score.out_of, score.n) == ("cells", 51, 66, 11)
    assert score.value == pytest.approx(77.2727, abs=1e-4)
    # Wilson, 51 of 66: centre (p + z2/2n)/(1 + z2/n), by hand with z = 1.959964
    assert score.ci is not None
    assert (score.ci.lo, score.ci.hi) == (
        pytest.approx(65.83, abs=0.01),
        pytest.approx(85.71, abs=0.01),
    )
    assert result.strict_correct == 4
    assert result.agreement == (11, 11)
    assert result.unjudged == ()


def test_the_reference_columns_are_compared_row_by_row(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in SUDOKU.read_text().splitlines()]
    rows[3]["reference_correct_cells"] = 5
    del rows[4]["reference_correct_cells"]
    result = rescore_file(lines(tmp_path / "r.jsonl", rows), "sudoku", "d1")
    assert result.agreement == (9, 10)
    assert [r.row for r in result.disagreeing] == [4]


def test_without_a_verdict_a_row_is_listed_and_counts_as_not_right() -> None:
    result = rescore_file(COUNTDOWN, "countdown", "d1")
    assert [r.row for r in result.unjudged] == [10]
    assert result.out_of == result.n == 13
    assert result.statuses()["d1"]["error"] == 1
    names = [metric.name for metric in result.metrics()]
    assert names == [
        "accuracy", "format_rate", "status_no_answer", "status_error", "chance_floor",
        "strict_accuracy",
    ]  # fmt: skip


def test_rows_on_which_the_graders_differ() -> None:
    result = rescore_file(COUNTDOWN, "countdown", "d1")
    # 5 fraction bar; 6 tolerance; 7 power; 8 decimal point; 9 no box
    assert [r.row for r in result.differing] == [5, 6, 7, 8, 9]
    alone = rescore_file(COUNTDOWN, "countdown", "strict")
    assert alone.strict_correct is None
    assert alone.differing == ()
    assert alone.points == result.strict_correct == 5


def test_the_strict_score_is_an_accuracy_without_a_reference() -> None:
    result = rescore_file(SUDOKU, "sudoku", "strict")
    score = result.score()
    assert (score.name, score.points, score.out_of) == ("accuracy", 4, 11)
    assert "cells" not in {metric.name for metric in result.metrics()}
    assert result.agreement is None


def test_math_verify_is_started_before_the_first_row_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []

    class Worker:
        def compare(self, gold: str, candidate: str) -> str:
            calls.append((gold, candidate))
            return "equal"

    monkeypatch.setattr(strict, "shared_worker", Worker)
    answer = {"question": "a", "generation": r"\boxed{2\pi}<|eot_id|>", "ground_truth": r"\pi"}
    path = lines(tmp_path / "r.jsonl", [answer, answer])
    rescore_file(path, "math500", "strict")
    assert calls == [("1", "1"), (r"\pi", r"2\pi"), (r"\pi", r"2\pi")]
    calls.clear()
    rescore_file(COUNTDOWN, "countdown", "strict")
    assert calls == []


def test_csv_and_parquet_give_what_json_lines_give(tmp_path: Path) -> None:
    import csv

    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [json.loads(line) for line in SUDOKU.read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet")
    with open(tmp_path / "r.csv", "w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    expected = rescore_file(SUDOKU, "sudoku", "d1").rows
    for name in ("r.csv", "r.parquet"):
        assert rescore_file(tmp_path / name, "sudoku", "d1").rows == expected


def test_ground_truth_is_json_text_or_the_plain_value(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "r.jsonl",
        [
            {"question": "a", "generation": r"\boxed{5}", "ground_truth": '"5"'},
            {"question": "b", "generation": r"\boxed{5}", "ground_truth": "5"},
            {"question": "c", "generation": r"\boxed{\pi}", "ground_truth": r"\pi"},
        ],
    )
    assert rescore_file(path, "math500", "d1").points == 3
    numbers = [{"question": "a", "generation": r"\boxed{5}", "ground_truth": v} for v in (5, "5.0")]
    assert rescore_file(lines(path, numbers), "gsm8k", "d1").points == 2


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"question": PUZZLE, "ground_truth": SOLVED}, "no column 'generation'"),
        (row(SOLVED, question=5), "'question' is not text"),
        (row(SOLVED, ground_truth="12"), "legal grid"),
        (row(SOLVED, question="9" * 16), "not a puzzle"),
        (row(SOLVED, ground_truth=None), "legal grid"),
        (row(SOLVED, reference_correct="maybe"), "'reference_correct'"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, bad: dict[str, Any], why: str) -> None:
    path = lines(tmp_path / "r.jsonl", [row(SOLVED), bad])
    with pytest.raises(UsageProblem, match="row 2 of") as caught:
        rescore_file(path, "sudoku4", "tiny")
    assert why in caught.value.why


def test_empty_files_unknown_tasks_and_protocols(tmp_path: Path) -> None:
    path = lines(tmp_path / "r.jsonl", [])
    with pytest.raises(UsageProblem, match="has no rows"):
        rescore_file(path, "sudoku4", "tiny")
    with pytest.raises(UsageProblem, match="task"):
        rescore_file(path, "sudoku5", "tiny")
    with pytest.raises(UsageProblem, match="protocol"):
        rescore_file(path, "sudoku4", "d1")


def test_limit_and_progress(tmp_path: Path) -> None:
    seen: list[int] = []
    result = rescore_file(SUDOKU, "sudoku", "d1", limit=4, progress=seen.append)
    assert (result.n, seen) == (4, [1, 2, 3, 4])


def test_equal_problems_get_ids_of_their_own_and_surrogates_have_a_form(tmp_path: Path) -> None:
    path = lines(tmp_path / "r.jsonl", [row(SOLVED), row("\ud800")])
    outcomes = rescore_file(path, "sudoku4", "tiny").to_outcomes()
    assert [o.item for o in outcomes] == [f"sudoku4/{PUZZLE}", f"sudoku4/{PUZZLE}#2"]
    assert outcomes[1].output == "?"
    assert [o.correct for o in outcomes] == [True, False]


def test_hashes_are_of_canonical_json() -> None:
    item = Item("i", "Q", {"b": 1, "a": "x"})
    text = '{"gold":{"a":"x","b":1},"question":"Q"}'
    assert item_sha(item) == hashlib.sha256(text.encode()).hexdigest()
    assert content_sha("Q") == hashlib.sha256(b"Q").hexdigest()


# ---- records ----


def test_a_record_says_what_is_declared_and_leaves_the_rest_out(tmp_path: Path) -> None:
    result = rescore_file(SUDOKU, "sudoku", "d1", limit=5)
    said = Provenance(
        "--claim x/y", "d1", {"name": "llada-8b"}, {"gen_length": 128}, "paper", 256, "released"
    )
    record = write_rescore(tmp_path / "run", result, said, limit=5)
    stored = read_record(tmp_path / "run")
    assert stored == record
    assert stored.kind == "rescore"
    assert stored.data["subset"] == "5 of 256 items"
    assert stored.prompt["wording"] == "paper"
    assert stored.prompt["sha256"].startswith("8fa4e497")
    assert stored.origins["model"] == "declared by --claim x/y"
    assert stored.scoring["version"] == "d1/1"
    assert stored.scoring["reference"] == {"rows": 5, "equal": 5}
    assert stored.metric("cells").points == 26
    assert stored.config["source"]["sha256"] == hashlib.sha256(SUDOKU.read_bytes()).hexdigest()
    assert len(read_outcomes(tmp_path / "run")) == 5

    silent = write_rescore(tmp_path / "silent", result, None)
    assert (silent.model, silent.decode, silent.selection, silent.origins) == ({}, {}, {}, {})
    assert silent.prompt == {"protocol": "d1", "wording": "not recorded"}
    assert "subset" not in silent.data


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = lines(tmp_path / "r.jsonl", [row(SOLVED), row("1" * 16), row("no")])
    write_rescore(tmp_path / "run", rescore_file(path, "sudoku4", "tiny"), None)
    return tmp_path / "run"


def test_a_run_recreates_its_grades_and_metrics(run: Path) -> None:
    again = regrade_run(run)
    assert again.changes == ()
    assert again.not_recomputed == ()
    assert again.rescore.score().value == pytest.approx(100 / 3)
    cells = {metric.name: metric for metric in again.rescore.metrics()}["cells"]
    assert (cells.points, cells.out_of) == (7 + 1, 21)


def rewrite(run: Path, change: Any) -> None:
    """Store the run again with other outcomes or metrics, hashes and all."""
    from dare.results.rundir import write_run

    record, outcomes = read_record(run), read_outcomes(run)
    record, outcomes = change(record, outcomes)
    for name in ("record.json", "outcomes.jsonl"):
        (run / name).unlink()
    write_run(run, record, outcomes)


def test_a_stored_grade_or_metric_that_is_not_recreated_is_found(run: Path) -> None:
    def cheat(record: Any, outcomes: Any) -> Any:
        outcomes[1] = outcomes[1].model_copy(update={"correct": True, "points": 1})
        return record, outcomes

    rewrite(run, cheat)
    changes = regrade_run(run).changes
    assert [(c.stored, c.now) for c in changes] == [(True, False), (1, 0)]
    assert changes[0].where == f"sudoku4/{PUZZLE}#2 correct"

    def better(record: Any, outcomes: Any) -> Any:
        extra = Metric(name="loss", value=1.0, n=3, unit="count")
        accuracy = record.metric("accuracy").model_copy(update={"value": 99.0})
        return record.model_copy(update={"metrics": [accuracy, extra]}), outcomes

    rewrite(run, better)
    again = regrade_run(run)
    assert again.changes[-1].where == "metric accuracy"
    assert (again.changes[-1].stored, again.not_recomputed) == (99.0, ("loss",))


def test_problems_come_from_the_task_when_none_are_stored(tmp_path: Path) -> None:
    item = sudoku4.load("test", 1)[0]
    good = {"question": item.question, "generation": "x", "ground_truth": item.gold["solution"]}
    result = rescore_file(lines(tmp_path / "r.jsonl", [good]), "sudoku4", "tiny")
    write_rescore(tmp_path / "run", result, None)
    (tmp_path / "run" / "items.jsonl").unlink()
    assert regrade_run(tmp_path / "run").changes == ()


def test_problems_that_are_missing_or_edited_are_refused(run: Path) -> None:
    items = run / "items.jsonl"
    other = SOLVED[:-1] + "9"
    items.write_text(items.read_text().replace(SOLVED, other))
    with pytest.raises(UsageProblem, match="is not the one that was graded"):
        regrade_run(run)
    items.write_text("{}\n")
    with pytest.raises(UsageProblem, match=r"line 1 of .*items.jsonl is no problem"):
        regrade_run(run)
    items.unlink()
    with pytest.raises(Missing, match="3 problems of the run are not in the data"):
        regrade_run(run)


def test_another_protocol_makes_a_child_record(tmp_path: Path) -> None:
    result = rescore_file(COUNTDOWN, "countdown", "d1")
    old = write_rescore(tmp_path / "old", result, None)
    regrade = regrade_run(tmp_path / "old", protocol="strict")
    assert regrade.changes == ()
    new = write_regrade(tmp_path / "new", regrade)
    assert new.parents == [old.id]
    assert new.prompt["protocol"] == "strict"
    assert new.metric("accuracy").points == 5
    assert regrade_run(tmp_path / "new").changes == ()


def test_scoring_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from dare.evaluation.rescore import rescore_file;"
        f"r = rescore_file(Path({str(SUDOKU)!r}), 'sudoku', 'd1'); r.score();"
        "print([m for m in ('torch', 'pandas', 'datasets', 'transformers', 'sympy', 'pyarrow')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
