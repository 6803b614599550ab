"""``dare list`` and ``dare show``: content, JSON, 80 columns, unknown names, start-up."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dare.cli import main
from dare.cli.list import KINDS
from dare.results.rundir import start_run, write_run

BUILDING = runpy.run_path(str(Path(__file__).resolve().parent.parent / "results" / "building.py"))
HEAVY = ("torch", "transformers", "trl", "datasets", "pandas", "peft", "accelerate")
SCREENS = [
    ("list", "papers"),
    ("list", "models"),
    ("list", "algorithms"),
    ("list", "samplers"),
    ("show", "d1"),
    ("show", "d1", "--claims"),
    ("show", "spg", "--claims"),
    ("show", "spg", "--config", "paper", "--task", "sudoku"),
    ("show", "d1", "--deviations"),
    ("show", "llada-8b"),
    ("models",),
    ("models", "show", "llada2.1-flash"),
    ("show", "tiny-llada"),
    ("show", "sudoku4"),
]


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def dare(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def document(*words: str) -> object:
    result = dare(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


# ---- start-up ------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    ("list", "papers"), ("show", "d1"), ("show", "spg", "--json"), ("models",),
    ("models", "show", "sdar-30b"), ("models", "show", "tiny-llada", "--json"),
])  # fmt: skip
def test_no_heavy_package_is_imported(words: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from dare.cli import main\n"
        f"main({list(words)!r}, standalone_mode=False)\n"
        f"print([n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


# ---- every screen --------------------------------------------------------------------------


@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
def test_screens_fit_80_columns_without_colour_and_end_with_a_command(
    words: tuple[str, ...],
) -> None:
    result = dare(*words)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in result.stdout + result.stderr
    assert all(line == line.rstrip() for line in lines)
    assert result.stderr.startswith("next: dare ")


@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
def test_json_is_one_document_and_nothing_else(words: tuple[str, ...]) -> None:
    result = dare(*words, "--json")
    assert result.exit_code == 0
    json.loads(result.stdout)
    assert result.stderr == ""


# ---- list ----------------------------------------------------------------------------------


def test_list_papers_names_algorithm_and_number_of_claims() -> None:
    rows = {row["paper"]: row for row in document("list", "papers")}
    assert rows["d1"]["algorithm"] == "diffu-grpo"
    assert rows["d1"]["aliases"] == ["grpo"]
    assert rows["d1"]["arxiv"] == "2504.12216"
    assert (rows["d1"]["claims"], rows["spg"]["claims"]) == (44, 189)


def test_list_models_shows_pins() -> None:
    rows = {row["model"]: row for row in document("list", "models")}
    assert rows["llada-8b"]["revision"] == "08b83a6feb34df1a6011b80c3c00c7563e963b07"
    assert (rows["llada-8b"]["GB"], rows["llada-8b"]["bytes"]) == ("16.0", 16_031_197_112)
    assert rows["tiny-llada"]["source"] == "embedded"


def test_list_algorithms_names_their_papers() -> None:
    rows = {row["algorithm"]: row for row in document("list", "algorithms")}
    assert rows["diffu-grpo"]["papers"] == ["d1"]
    assert rows["spg"]["papers"] == ["spg"]


def test_list_samplers_marks_the_approximate_ones() -> None:
    rows = {row["sampler"]: row for row in document("list", "samplers")}
    assert (rows["llada"]["exact"], rows["llada"]["approximate"]) == ("yes", "")
    assert rows["fast-dllm-dual"]["exact"] == "no"
    assert "stale" in rows["fast-dllm-dual"]["approximate"]
    assert rows["fast-dllm-dual"]["arxiv"] == "2505.22618"
    assert rows["sdar"]["models"] == "block-causal"
    assert all(row["what"] and row["source"] for row in rows.values())


def test_list_tasks_names_protocols() -> None:
    rows = {row["task"]: row for row in document("list", "tasks")}
    assert rows["sudoku4"]["protocols"] == ["tiny"]
    assert set(rows) == {"sudoku4", "gsm8k", "math500", "countdown", "sudoku"}


def test_list_without_a_kind_is_everything_but_the_runs() -> None:
    assert list(document("list")) == [name for name in KINDS if name != "runs"]
    result = dare("list")
    assert "fast-dllm-dual" in result.stdout
    assert "llada-8b-base" in result.stdout


@pytest.mark.parametrize("words", [("list", "runs", "--runs"), ("runs",)])
def test_runs_of_an_empty_or_absent_folder(tmp_path: Path, words: tuple[str, ...]) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        result = dare(*words, str(folder))
        assert (result.exit_code, result.stdout) == (0, "no runs yet\n")
        assert document(*words, str(folder)) == []


def test_a_damaged_run_is_listed_with_its_problem(tmp_path: Path) -> None:
    broken = tmp_path / "2026-12-01-d1-sudoku4-0123abcd"
    broken.mkdir()
    (broken / "record.json").write_text('{"schema": "dare.rec')
    (row,) = document("runs", str(tmp_path))
    assert row["state"] == "broken"
    assert "record.json" in row["problem"]
    assert "broken" in dare("runs", str(tmp_path)).stdout


@pytest.mark.parametrize(
    ("states", "scale", "proposed"),
    [
        (["started"], "tiny", ["dare reproduce spg"]),
        (["complete"], "tiny", ["dare rescore {0}", "dare reproduce spg"]),
        (["complete", "started"], "tiny", ["dare rescore {0}", "dare reproduce spg"]),
        (
            ["complete"],
            "paper",
            ["dare rescore {0}", "dare verdict {0} --claim d1/diffu-grpo/gsm8k/256"],
        ),
    ],
)
def test_what_is_proposed_after_the_runs(
    tmp_path: Path, states: list[str], scale: str, proposed: list[str]
) -> None:
    folders = [tmp_path / f"2026-12-0{day}-spg-sudoku4-0123abcd" for day in range(1, 9)]
    for folder, state in zip(folders, states, strict=False):
        start_run(folder, folder.name)
        if state == "complete":
            record = BUILDING["make_record"](50.0, config__scale=scale)
            write_run(folder, record, BUILDING["make_outcomes"]([1, 0]))
    lines = [line.format(folders[0]) for line in proposed]
    assert dare("list", "runs", "--runs", str(tmp_path)).stderr == (
        "next: " + "\n      ".join(lines) + "\n"
    )


# ---- show ----------------------------------------------------------------------------------


def test_show_d1_prints_everything() -> None:
    text = dare("show", "d1").stdout
    assert "Siyan Zhao, Devaansh Gupta, Qinqing Zheng, Aditya Grover" in text
    assert "dllm-reasoning/d1 @ 837888f" in text
    assert "algorithm diffu-grpo" in text
    assert "d1-LLaDA (SFT + diffu-GRPO)   gsm8k        73.2    81.1   82.1" in text
    assert "68.7*" in text
    assert "Settings at scale tiny, task sudoku4" in text
    assert "Settings at scale paper, task gsm8k" in text
    assert "loss-normaliser" in text


def test_show_config_gives_each_value_its_source() -> None:
    found = document("show", "d1", "--config", "paper", "--task", "countdown")
    settings = found["configs"]["paper"]
    assert settings["task"] == "countdown"
    assert settings["config"]["training"]["num_iterations"] == 8
    assert settings["sources"]["training.num_iterations"] == "code: the task's script"
    assert settings["sources"]["training.max_steps"].startswith("ours: SPG's re-run")
    assert settings["sources"]["rollout.logits_eos_inf"] == "default"
    assert "claims" not in found
    assert "deviations" not in found


def test_show_deviations_in_full_has_reason_and_switch() -> None:
    text = dare("show", "d1", "--deviations").stdout
    assert "switch: algorithm_options.mask_order" in text
    assert "why:" in text
    assert "Settings" not in text


def test_show_claims_of_one_task() -> None:
    claims = document("show", "spg", "--claims", "--task", "mbpp")["claims"]
    assert {claim["task"] for claim in claims} == {"mbpp"}
    assert len(claims) == 21


@pytest.mark.parametrize("alias", ["grpo", "diffu-grpo", "diffu_grpo", "D1"])
def test_an_alias_shows_the_paper(alias: str) -> None:
    assert document("show", alias)["name"] == "d1"


def test_show_a_model_by_its_hub_id() -> None:
    facts = document("show", "GSAI-ML/LLaDA-8B-Instruct")
    assert facts["model"] == "llada-8b"
    assert facts["parameters"] == 8_015_581_184


# ---- what does not exist -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told", "nearest"),
    [
        (("show", "d2"), "no paper, model or task is called 'd2'", "'d1'"),
        (("show", "llada-8c"), "no paper, model or task is called 'llada-8c'", "'llada-8b'"),
        (("list", "paper"), "cannot be 'paper'", "'papers'"),
        (("show", "d1", "--config", "papers"), "'--config' cannot be 'papers'", "'paper'"),
        (("show", "d1", "--claim"), "has no option '--claim'", "'--claims'"),
        (
            ("show", "d1", "--config", "paper", "--task", "gsm8"),
            "no task of d1 at scale paper is called 'gsm8'",
            "'gsm8k'",
        ),
        (("show", "d1", "--task", "gsm9k"), "no task of d1 at scale paper", "'gsm8k'"),
    ],
)
def test_unknown_names_are_usage_errors_with_the_nearest(
    words: tuple[str, ...], told: str, nearest: str
) -> None:
    result = dare(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert told in result.stderr
    assert f"did you mean {nearest}?" in result.stderr


def test_paper_flags_on_a_model_are_refused() -> None:
    result = dare("show", "llada-8b", "--claims")
    assert result.exit_code == 2
    assert "'llada-8b' is not a paper" in result.stderr


def test_show_without_a_name() -> None:
    result = dare("show")
    assert result.exit_code == 2
    assert "Missing argument 'NAME'" in result.stderr
