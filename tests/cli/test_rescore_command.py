"""``dare rescore`` as a user meets it: output, JSON, exit statuses, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dare.cli import main
from dare.results.rundir import read_record

EXCERPTS = Path(__file__).resolve().parent.parent / "grading" / "excerpts"
SUDOKU = EXCERPTS / "sudoku.jsonl"
COUNTDOWN = EXCERPTS / "countdown.jsonl"
CLAIM = "d1/baseline/sudoku/128"


def dare(*words: object) -> Result:
    return CliRunner().invoke(main, ["rescore", *map(str, words)])


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_score_stands_beside_the_strict_one() -> None:
    found = dare(COUNTDOWN, "--task", "countdown", "--protocol", "d1", "--show", 2)
    assert found.exit_code == 0
    text = flat(found.stdout)
    assert "accuracy 61.54 8/13 35.5 .. 82.3" in text
    assert "strict_accuracy 38.46 5/13 17.7 .. 64.5" in text
    assert "Equal to the file's reference columns on all 13 rows." in text
    assert "No verdict, counted as not right: row 10 (the value is too large to compute)." in text
    assert "The two graders differ on 5 of 13 rows." in text
    assert r"5 wrong: \frac{8}{4} + 1 right: \frac{8}{4} + 1 [8, 4, 1] = 3" in text
    assert "... and 3 more (--show 5 prints all)" in text
    assert all(len(line) <= 80 for line in found.stdout.splitlines())
    assert found.stderr.startswith("next: dare rescore ")


def test_the_strict_protocol_counts_grids_and_is_compared_with_nothing(tmp_path: Path) -> None:
    """4 of the 11 grids are legal and keep the clues (the excerpt's strict_correct)."""
    found = dare(SUDOKU, "--claim", CLAIM, "--protocol", "strict", "--show", 3)
    assert found.exit_code == 0
    text = flat(found.stdout)
    assert "accuracy 36.36 4/11" in text
    assert f"{CLAIM} is a number under another protocol than strict: not compared." in text
    for absent in ("cells", "Published", "reference columns", "graders differ", "gold"):
        assert absent not in text
    assert f"--claim {CLAIM} --protocol strict --save" in found.stderr

    found = dare(SUDOKU, "--task", "sudoku", "--protocol", "strict", "--check")
    assert found.exit_code == 2
    assert "reference columns are about protocol d1, not strict" in flat(found.stderr)

    folder = tmp_path / "run"
    found = dare(SUDOKU, "--claim", CLAIM, "--protocol", "strict", "--out", folder, "--json")
    (result,) = json.loads(found.stdout)["results"]
    assert (result["claim"], result["reference"]) == (None, None)
    assert result["next"] == [f"dare rescore {folder} --check"]
    names = [metric.name for metric in read_record(folder).metrics]
    assert names == ["accuracy", "format_rate", "status_no_answer", "chance_floor"]
    assert read_record(folder).metric("accuracy").points == 4


def test_show_0_prints_no_table_of_rows(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    cells = '"reference_correct_cells": '
    wrong.write_text(SUDOKU.read_text().replace(f"{cells}5", f"{cells}4"))
    for path, task in ((COUNTDOWN, "countdown"), (wrong, "sudoku")):
        assert "gold" in dare(path, "--task", task).stdout
        assert "gold" not in dare(path, "--task", task, "--show", 0).stdout


def test_the_strict_column_stands_where_there_is_a_strict_grade(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    solved = "1234341221434321"
    row = {"question": "1030040201434001", "generation": solved, "ground_truth": solved}
    path.write_text(json.dumps(row | {"reference_correct": False}) + "\n")
    assert "row tiny gold" in flat(dare(path, "--task", "sudoku4").stdout)
    assert "row d1 strict gold" in flat(dare(COUNTDOWN, "--task", "countdown").stdout)


def test_rows_without_a_verdict_are_grouped_by_reason(tmp_path: Path) -> None:
    rows = [("5", None), ("6", 6), ("7", None), ("8" * 3000, 8)]
    path = tmp_path / "r.jsonl"
    path.write_text(
        "".join(
            json.dumps({"question": "q", "generation": f"\\boxed{{{text}}}", "ground_truth": gold})
            + "\n"
            for text, gold in rows
        )
    )
    text = flat(dare(path, "--task", "gsm8k", "--protocol", "strict").stdout)
    assert "rows 1, 3 (no ground truth); row 4 (the answer is too long)." in text


def test_json_is_one_document() -> None:
    found = dare(COUNTDOWN, SUDOKU, "--task", "countdown", "--json", "--limit", 3)
    assert found.exit_code == 2  # the second file is about another task
    found = dare(COUNTDOWN, "--task", "countdown", "--json")
    (result,) = json.loads(found.stdout)["results"]
    assert (result["task"], result["protocol"], result["n"]) == ("countdown", "d1", 13)
    assert [row["row"] for row in result["graders_differ"]] == [5, 6, 7, 8, 9]
    assert result["unjudged"] == [10]
    assert result["reference"] == {"equal": 13, "rows": 13}
    assert result["metrics"][0]["ci"]["method"] == "wilson"
    assert result["next"]


def test_control_characters_of_an_output_do_not_reach_the_terminal(tmp_path: Path) -> None:
    row = {
        "question": "q",
        "generation": "<answer>\\boxed{1.5\x1b[31m\x07\u202e}</answer>",
        "ground_truth": 1,
    }
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(row) + "\n")
    found = dare(path, "--task", "gsm8k", "--protocol", "d1")
    assert found.exit_code == 0
    assert not set("\x1b\x07\u202e") & set(found.output)


def test_check_against_reference_columns(tmp_path: Path) -> None:
    assert dare(SUDOKU, "--task", "sudoku", "--check").exit_code == 0
    wrong = tmp_path / "wrong.jsonl"
    text = SUDOKU.read_text().replace(
        '"reference_correct_cells": 5', '"reference_correct_cells": 6'
    )
    wrong.write_text(text)
    found = dare(wrong, "--task", "sudoku", "--check")
    assert found.exit_code == 1
    assert "Equal to the file's reference columns on 10 of 11 rows." in flat(found.stdout)
    bare = tmp_path / "bare.jsonl"
    bare.write_text(text.replace("reference_correct_cells", "other"))
    found = dare(bare, "--task", "sudoku", "--check")
    assert found.exit_code == 2
    assert "nothing to check against" in found.stderr


def test_a_record_of_a_claims_generations_can_be_checked_and_judged(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    found = dare(SUDOKU, "--claim", CLAIM, "--out", folder)
    assert found.exit_code == 0
    assert "Published (d1/baseline/sudoku/128): 11.7. Here: 77.27 on 11 of the 256 items" in flat(
        found.stdout
    )
    assert f"next: dare verdict {folder} --claim {CLAIM}" in found.stderr
    record = read_record(folder)
    assert record.model["name"] == "llada-8b"
    assert record.decode["gen_length"] == 128
    assert record.origins["model"] == f"declared by --claim {CLAIM}"

    again = dare(folder, "--check")
    assert again.exit_code == 0
    assert "Every stored grade and metric is recreated." in flat(again.stdout)
    judged = CliRunner().invoke(main, ["verdict", str(folder), "--claim", CLAIM])
    assert judged.exit_code in (0, 1, 4)
    assert "NOT COMPARABLE" not in judged.stdout

    refused = dare(SUDOKU, "--claim", CLAIM, "--out", folder)
    assert refused.exit_code == 2
    assert "exists already" in refused.stderr


def test_check_fails_for_a_run_whose_metric_is_not_recreated(tmp_path: Path) -> None:
    from dare.results.rundir import read_outcomes, write_run

    dare(SUDOKU, "--task", "sudoku", "--out", tmp_path / "a")
    record, outcomes = read_record(tmp_path / "a"), read_outcomes(tmp_path / "a")
    metrics = [record.metric("cells").model_copy(update={"value": 99.0})]
    write_run(tmp_path / "b", record.model_copy(update={"metrics": metrics}), outcomes)
    (tmp_path / "b" / "items.jsonl").write_bytes((tmp_path / "a" / "items.jsonl").read_bytes())
    assert dare(tmp_path / "b").exit_code == 0
    found = dare(tmp_path / "b", "--check")
    assert found.exit_code == 1
    assert "metric cells 99.0 77.27" in flat(found.stdout)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ([SUDOKU], 2, "which benchmark are the generations of sudoku.jsonl about?"),
        ([SUDOKU, "--task", "sudokku"], 2, "did you mean 'sudoku'?"),
        ([SUDOKU, "--task", "sudoku", "--protocol", "d2"], 2, "did you mean 'd1'?"),
        ([SUDOKU, "--task", "gsm8k", "--claim", CLAIM], 2, "contradict"),
        ([SUDOKU, "--claim", "d1/sudoku"], 2, "claim"),
        ([SUDOKU, "--task", "gsm8k"], 2, "row 1 of"),
        (["no-such-file.jsonl", "--task", "gsm8k"], 2, "no such file"),
        ([SUDOKU, SUDOKU, "--task", "sudoku", "--out", "x"], 2, "--out takes one FILE"),
        ([SUDOKU, "--task", "sudoku", "--out", "x", "--save"], 2, "--out and --save"),
        ([EXCERPTS], 2, "record"),
        ([], 2, "FILE"),
    ],
)
def test_usage_problems(words: list[object], status: int, says: str) -> None:
    found = dare(*words)
    assert found.exit_code == status
    assert says in flat(found.stderr)
    assert "Traceback" not in found.output


def test_save_names_a_folder_below_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert dare(SUDOKU, "--claim", CLAIM, "--save").exit_code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert "-d1-sudoku-" in folder.name
    assert read_record(folder).kind == "rescore"
