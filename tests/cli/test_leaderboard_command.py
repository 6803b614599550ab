"""``dare leaderboard`` as a person or a script meets it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from dare.cli import main
from dare.results.record import Budget, Outcome, Record
from dare.results.rundir import write_run
from dare.results.summary import metrics_of

WIDTH = 80


def invoke(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def boards(root: Path, tmp_path: Path) -> Path:
    """A copy of the protocols that come with dare, without rows."""
    for protocol in (root / "leaderboards").glob("*/v*/protocol.toml"):
        folder = tmp_path / "boards" / protocol.parent.parent.name / protocol.parent.name
        folder.mkdir(parents=True)
        shutil.copy(protocol, folder)
    return tmp_path / "boards"


def tiny_run(folder: Path, seed: int, right: int) -> Path:
    """A run as the tiny scale records it: ``right`` of 1000 puzzles solved."""
    digest = hashlib.sha256(b"x").hexdigest()
    outcomes = [
        Outcome(
            item=str(i), item_sha=digest, prompt_sha=digest, seed=seed, output=f"{seed}",
            extracted=None, gold_sha=digest, correct=i < right, points=int(i < right), out_of=1,
            well_formed=True, status="ok", tokens=16, nfe=8,
        )
        for i in range(1000)
    ]  # fmt: skip
    record = Record(
        kind="train",
        created="2026-12-01T10:00:00+00:00",
        status="complete",
        code={"dare": "0.1.0"},
        config={
            "scale": "tiny", "control": "none", "model": {"name": "tiny-llada"},
            "task": {"name": "sudoku4", "protocol": "tiny"},
        },
        config_hash=f"{folder} {seed}",
        model={"name": "tiny-llada", "weights_sha256": digest},
        data={"task": "sudoku4", "split": "test", "item_ids_sha256": digest},
        prompt={"protocol": "tiny", "sha256": digest},
        decode={
            "gen_length": 16, "steps": 8, "block_length": 16, "temperature": 0.0,
            "cfg_scale": 0.0, "remasking": "low_confidence",
        },
        scoring={"grader": "sudoku4/tiny"},
        seeds={"run": seed},
        budget=Budget(updates=120, completions=7680, nfe_train=61440),
        selection={"rule": "final step"},
        env={"accelerator": "none", "cpu": "Example CPU"},
        metrics=metrics_of(outcomes, "accuracy"),
        outcomes={},
    )  # fmt: skip
    write_run(folder / f"seed-{seed}", record, outcomes)
    return folder / f"seed-{seed}"


def test_from_runs_to_a_checked_board(
    capsys: pytest.CaptureFixture[str], boards: Path, tmp_path: Path
) -> None:
    runs = [tiny_run(tmp_path / "d1", seed, right) for seed, right in enumerate((491, 492, 487))]
    status, out, err = invoke(
        capsys, "leaderboard", "add", "tiny-sudoku", "--root", boards, "--run", *runs,
        "--algorithm", "d1",
    )  # fmt: skip
    assert status == 0
    # mean 49.0, t(.975, 2) * .2646 / sqrt(3) = .657
    assert "49.0" in out
    assert "48.3 to 49.7" in out
    assert "next: dare leaderboard check tiny-sudoku" in err
    assert max(map(len, out.splitlines()[1:])) <= WIDTH
    status, out, err = invoke(capsys, "leaderboard", "check", "tiny-sudoku", "--root", boards)
    assert (status, out) == (0, "tiny-sudoku/v1: ok\n")
    assert err.startswith("next: dare leaderboard diff")


def test_an_edited_table_ends_with_status_1(
    capsys: pytest.CaptureFixture[str], boards: Path
) -> None:
    assert invoke(capsys, "leaderboard", "build", "--root", boards)[0] == 0
    readme = boards / "tiny-sudoku" / "v1" / "README.md"
    readme.write_text(readme.read_text() + "\n| 1 | ours | 99.9 |\n")
    status, out, err = invoke(capsys, "leaderboard", "check", "--root", boards)
    assert status == 1
    assert "not the function of its entries" in " ".join(out.split())
    assert err == "next: dare leaderboard build\n"
    status, out, _ = invoke(capsys, "leaderboard", "check", "--root", boards, "--json")
    value = json.loads(out)
    assert (status, value["ok"]) == (1, False)
    assert value["boards"]["llada-8b-instruct/v1"] == []
    (problem,) = value["boards"]["tiny-sudoku/v1"]
    assert problem["where"] == "tiny-sudoku/v1/README.md"
    assert problem["help"] == "dare leaderboard build tiny-sudoku"


def test_reported_rows_by_command(capsys: pytest.CaptureFixture[str], boards: Path) -> None:
    words = ("leaderboard", "add", "llada-8b-instruct", "--root", boards, "--reported", "d1")
    status, out, _ = invoke(capsys, *words, "--json")
    assert status == 0
    assert "reported-d1-llada-8b-instruct" in json.loads(out)["entries"]
    status, out, _ = invoke(capsys, "leaderboard", "build", "--root", boards, "--json")
    tables = {table["board"]: table for table in json.loads(out)}
    values = {row["algorithm"]: row["values"] for row in tables["llada-8b-instruct/v1"]["reported"]}
    assert values["LLaDA-8B-Instruct"]["math500-256"] == 32.4
    assert all(not part["rows"] for part in tables["llada-8b-instruct/v1"]["cells"])
    status, _, err = invoke(capsys, *words)
    assert status == 2
    assert "is on the board llada-8b-instruct/v1 already" in " ".join(err.split())


def test_a_row_is_withdrawn_with_a_reason(capsys: pytest.CaptureFixture[str], boards: Path) -> None:
    board = ("llada-8b-instruct", "--root", boards)
    invoke(capsys, "leaderboard", "add", *board, "--reported", "d1")
    row = "reported-d1-llada-8b-instruct"
    assert invoke(capsys, "leaderboard", "withdraw", *board[:1], row, *board[1:])[0] == 2
    status, _, _ = invoke(
        capsys, "leaderboard", "withdraw", "llada-8b-instruct", row, "--root", boards,
        "--reason", "misread",
    )  # fmt: skip
    assert status == 0
    assert "| misread |" in (boards / "llada-8b-instruct" / "v1" / "README.md").read_text()
    assert invoke(capsys, "leaderboard", "check", *board)[0] == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("check", "tiny-sudok"), 2, "did you mean 'tiny-sudoku'?"),
        (("add", "tiny-sudoku"), 2, "a row has exactly one source"),
        (("add", "tiny-sudoku", "--run", "x", "--reported", "d1"), 2, "exactly one source"),
        (("add", "tiny-sudoku", "--run", "x"), 2, "the row needs a name"),
        (("add", "tiny-sudoku", "x", "--reported", "d1"), 2, "does not go with --reported"),
        (("add", "tiny-sudoku", "--reported", "d1"), 2, "reports nothing for the board"),
        (("add", "tiny-sudoku", "--reported", "d2"), 2, "did you mean 'd1'?"),
        (("add", "tiny-sudoku", "--run", "nowhere", "--algorithm", "x"), 2, "nowhere"),
        (("diff", "--against", "no-such"), 2, "'no-such' is no commit"),
        (("bild",), 2, "did you mean 'build'?"),
    ],
)
def test_mistakes_are_explained(
    capsys: pytest.CaptureFixture[str], boards: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    root = () if words == ("bild",) else ("--root", boards)
    found, out, err = invoke(capsys, "leaderboard", *words, *root)
    assert (found, out) == (status, "")
    assert said in " ".join(err.split())


def test_what_a_working_copy_changes(capsys: pytest.CaptureFixture[str], boards: Path) -> None:
    import subprocess

    invoke(capsys, "leaderboard", "build", "--root", boards)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for git in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *git], cwd=boards, check=True, capture_output=True)
    invoke(capsys, "leaderboard", "add", "llada-8b-instruct", "--root", boards, "--reported", "d1")
    status, out, _ = invoke(capsys, "leaderboard", "diff", "--root", boards)
    assert status == 0
    row = next(x for x in out.splitlines() if x.startswith("| added | LLaDA-8B-Instruct |"))
    assert "gsm8k 68.7 / 76.7 / 78.2; math500 26.0 / 32.4 / 36.2;" in row
    assert "### tiny-sudoku/v1\n\nNo row changed." in out
    _, out, _ = invoke(capsys, "leaderboard", "diff", "--root", boards, "--json")
    changes = json.loads(out)["llada-8b-instruct/v1"]
    assert {change["what"] for change in changes} == {"added"}


@pytest.mark.parametrize("forged", [True, False], ids=["forged", "deleted"])
def test_no_table_is_built_from_forged_or_deleted_rows(
    capsys: pytest.CaptureFixture[str], boards: Path, forged: bool
) -> None:
    invoke(capsys, "leaderboard", "build", "--root", boards)
    invoke(capsys, "leaderboard", "add", "llada-8b-instruct", "--root", boards, "--reported", "d1")
    readme = boards / "tiny-sudoku" / "v1" / "README.md"
    readme.write_text(readme.read_text() + "\n| 1 | ours | 99.9 |\n")
    row = "reported-d1-llada-8b-instruct"
    entry = boards / "llada-8b-instruct" / "v1" / "entries" / f"{row}.json"
    if forged:
        entry.write_text(entry.read_text().replace("32.4", "92.4"))
    else:
        entry.unlink()
    tables = {path: path.read_text() for path in boards.rglob("README.md")}
    status, out, err = invoke(capsys, "leaderboard", "build", "--root", boards)
    assert (status, out) == (1, "")
    told = " ".join(err.split())
    assert told.startswith("error: the board llada-8b-instruct/v1 cannot be trusted")
    what = "was changed after it was added" if forged else "was removed"
    assert f"why: llada-8b-instruct/v1/entries/{entry.name}: the row {what}" in told
    withdraw = f"dare leaderboard withdraw llada-8b-instruct {row} --reason REASON"
    assert told.endswith(f"help: {withdraw}")
    # The stale table of the sound board is not written either: nothing is half done.
    assert {path: path.read_text() for path in boards.rglob("README.md")} == tables
    status, _, err = invoke(capsys, "leaderboard", "check", "--root", boards)
    assert (status, err) == (1, f"next: {withdraw}\n")


def test_a_row_is_counted_once_and_its_name_is_wrapped_at_spaces(
    capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    shutil.copytree(root / "leaderboards", tmp_path / "copy")
    words = ("leaderboard", "build", "llada-8b-instruct", "--root", tmp_path / "copy")
    status, out, _ = invoke(capsys, *words)
    assert status == 0
    assert out.endswith("\n1 measured, 10 reported and 0 withdrawn rows\n")
    assert max(map(len, out.splitlines())) <= WIDTH
    assert "\nLLaDA-8B-Instruct, " in out
