"""Every way a board can lie, and that the check says so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dare.errors import NotComparable, UsageProblem
from dare.leaderboard.add import from_runs, insert, rebuild, withdraw
from dare.leaderboard.check import check
from dare.leaderboard.files import read_board
from dare.leaderboard.mend import Untrusted, remedies
from dare.results.record import Budget


def said(board: Path) -> str:
    return "\n".join(f"{p.where}: {p.what}" for p in check(board))


def not_built(board: Path, why: str) -> None:
    """No table is built, and nothing at all is written."""
    before = {path: path.read_bytes() for path in board.rglob("*") if path.is_file()}
    with pytest.raises(Untrusted, match="cannot be trusted; its table was not built") as caught:
        rebuild(board)
    assert why in caught.value.why
    assert caught.value.help
    assert caught.value.exit_status == 1
    assert {path: path.read_bytes() for path in board.rglob("*") if path.is_file()} == before


def edit(board: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    path = board / "entries" / f"{name}.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def commit(board: Path) -> None:
    if not (board / ".git").exists():
        git(board, "init", "-q")
    git(board, "add", "-A")
    git(board, "commit", "-qm", "state")


def test_a_board_made_by_add_is_sound(board: Path, add) -> None:
    add("d1", [10, 12])
    add("base", [4], kind="eval", budget=Budget(), seeds={})
    assert check(board) == []


def test_an_edited_table_fails(board: Path, add) -> None:
    add("d1", [10, 12])
    readme = board / "README.md"
    readme.write_text(readme.read_text().replace("55.0", "65.0"))
    assert said(board) == "toy/v1/README.md: the table is not the function of its entries"


def test_an_entry_changed_with_its_table_fails(board: Path, add) -> None:
    name = add("d1", [10, 12])

    def better(entry: dict[str, Any]) -> None:
        entry["evidence"][0]["record"]["metrics"][0]["value"] = 95.0

    edit(board, name, better)
    not_built(board, "its id is not the hash of its content")
    problems = said(board)
    assert "the row was changed after it was added" in problems
    assert "its id is not the hash of its content" in problems
    assert "10 of 20 is not 95.0 percent" in problems


def test_a_resealed_record_is_still_a_changed_row(board: Path, add) -> None:
    from dare.results.record import Record

    name = add("d1", [10, 12])

    def better(entry: dict[str, Any]) -> None:
        record = entry["evidence"][0]["record"]
        record["metrics"][0] |= {"value": 95.0, "points": 19}
        record["id"] = Record.model_validate(record).content_id()

    edit(board, name, better)
    not_built(board, "the stored verdicts count 10 right, the record 19")
    problems = said(board)
    assert "the row was changed after it was added" in problems
    assert "the stored verdicts count 10 right, the record 19" in problems


def test_a_removed_row_fails_until_it_is_withdrawn(board: Path, add) -> None:
    name = add("d1", [10, 12])
    entry = board / "entries" / f"{name}.json"
    kept = entry.read_text()
    entry.unlink()
    not_built(board, f"{name}.json: the row was removed")
    assert "the row was removed" in said(board)
    entry.write_text(kept)
    withdraw(board, name, "the seeds shared a data stream", "2026-12-10")
    assert check(board) == []
    text = (board / "README.md").read_text()
    assert "~~d1~~ | ~~sudoku4 55.0~~ | 2026-12-10 | the seeds shared a data stream" in text
    assert "| rank |" not in text


def test_a_withdrawal_needs_a_known_row_and_happens_once(board: Path, add) -> None:
    name = add("d1", [10, 12])
    with pytest.raises(UsageProblem, match="no row is called 'd2'"):
        withdraw(board, "d2", "why", "2026-12-10")
    withdraw(board, name, "why", "2026-12-10")
    with pytest.raises(UsageProblem, match="withdrawn already"):
        withdraw(board, name, "why", "2026-12-10")


def test_a_withdrawal_of_another_content_does_not_count(board: Path, add) -> None:
    name = add("d1", [10, 12])
    path = withdraw(board, name, "why", "2026-12-10")
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"sha256": "0" * 64}))
    assert "the withdrawal is of another entry" in said(board)


def test_state_withdrawn_needs_a_reason(board: Path, add) -> None:
    name = add("d1", [10, 12])
    edit(board, name, lambda entry: entry.update(state="withdrawn"))
    not_built(board, "is withdrawn without a reason")
    assert "is withdrawn without a reason" in said(board)


def test_a_state_may_advance(board: Path, add) -> None:
    name = add("d1", [10, 12])
    edit(board, name, lambda entry: entry.update(state="replayed", note="by two others"))
    assert said(board) == "toy/v1/README.md: the table is not the function of its entries"
    rebuild(board)
    assert check(board) == []


def test_removal_from_entry_and_lock_is_seen_against_the_commit(board: Path, add) -> None:
    name = add("d1", [10, 12])
    commit(board)
    (board / "entries" / f"{name}.json").unlink()
    (board / "entries.lock.json").write_text('{"schema": "dare.lock/1", "entries": {}}')
    not_built(board, f"'{name}' was locked at HEAD and is not any more")
    assert f"'{name}' was locked at HEAD and is not any more" in said(board)
    # Without the commit nothing tells that there was a row; only the old table is left of it.
    (problem,) = check(board, against="no-such-commit")
    assert problem.by_build


def test_gates_of_a_board_with_rows_are_frozen(board: Path, add) -> None:
    add("d1", [10, 12])
    commit(board)
    protocol = board / "protocol.toml"
    text = protocol.read_text()
    protocol.write_text(text.replace("min_seeds = 2", "min_seeds = 1"))
    rebuild(board)
    assert said(board) == "toy/v1/protocol.toml: min_seeds changed since HEAD"
    protocol.write_text(text.replace("n_items = 20\ngates", "n_items = 21\ngates"))
    rebuild(board)
    assert said(board) == "toy/v1/protocol.toml: the cell gsm8k-128 changed since HEAD"
    protocol.write_text(text.replace("Toy board", "Another title"))
    rebuild(board)
    assert check(board) == []


def test_gates_without_measured_rows_may_still_change(board: Path) -> None:
    rebuild(board)
    commit(board)
    protocol = board / "protocol.toml"
    protocol.write_text(protocol.read_text().replace("min_seeds = 2", "min_seeds = 1"))
    rebuild(board)
    assert check(board) == []


def test_an_entry_outside_the_lock_is_completed_by_build(board: Path, add) -> None:
    add("d1", [10, 12])
    (board / "entries.lock.json").unlink()
    assert "the row is not in entries.lock.json" in said(board)
    rebuild(board)
    assert check(board) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"decode": {"gen_length": 16, "temperature": 0.2}}, "gate decode.temperature: 0.2"),
        ({"decode": {"gen_length": 16}}, "gate decode.temperature: not recorded"),
        (
            {"decode": {"gen_length": 16, "steps": 8, "temperature": 0.0, "cache": "dual"}},
            "decode.cache is 'dual': this board is for the plain sampler",
        ),
        ({"budget": Budget(updates=1, nfe_train=5001)}, "spent 5001 NFE in training"),
        ({"kind": "reproduce"}, "a 'reproduce' record sums up others"),
        ({"status": "invalidated", "reason": "wrong data"}, "invalidated \\(wrong data\\)"),
        ({"metrics": []}, "no metric 'accuracy'"),
    ],
)
def test_a_run_that_breaks_a_rule_is_refused(
    board: Path, add, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(NotComparable, match=why):
        add("d1", [10, 12], **changes)
    assert not list((board / "entries").glob("*"))


def test_gates_of_a_cell_hold_in_that_cell(board: Path, add) -> None:
    data = {"task": "gsm8k", "item_ids_sha256": "x"}
    wrong = {"gen_length": 128, "steps": 128, "temperature": 0.0}
    with pytest.raises(NotComparable, match=r"gate decode\.steps: 128, the board asks for 64"):
        add("d1", [10, 12], data=data, decode=wrong)


def test_too_few_seeds_of_a_trained_row_are_refused(board: Path, add) -> None:
    with pytest.raises(NotComparable, match="a trained row needs 2 or more"):
        add("d1", [10])


def test_other_items_in_one_table_are_refused(board: Path, add) -> None:
    add("d1", [10, 12])
    with pytest.raises(NotComparable, match=r"data\.item_ids_sha256 is 'other'"):
        add("spg", [10, 12], data={"task": "sudoku4", "item_ids_sha256": "other"})


def test_the_same_run_twice_is_refused(board: Path, add, write) -> None:
    add("d1", [10, 12])
    again = [
        write("d1-copy", seed, right, config_hash=f"{seed}") for seed, right in ((0, 3), (1, 4))
    ]
    protocol = read_board(board).protocol
    first = from_runs(protocol, again, "copy", "submitted", "2026-12-09")
    insert(board, [first])
    renamed = from_runs(protocol, again, "another name", "submitted", "2026-12-09")
    with pytest.raises(NotComparable, match="count the same configuration and seed"):
        insert(board, [renamed])


def test_copied_outcomes_under_other_seeds_are_refused(board: Path, write) -> None:
    """Ten copies of one run would make a very narrow interval."""
    from dare.results.rundir import read_outcomes, write_run

    first = write("d1", 0, 10)
    from dare.results.rundir import read_record

    source = read_record(first)
    second = first.with_name("d1-1")
    changed = source.model_copy(
        update={"seeds": {"run": 1}, "config_hash": "another", "outcomes": {}}
    )
    write_run(second, changed, read_outcomes(first))
    entry = from_runs(read_board(board).protocol, [first, second], "d1", "submitted", "2026-12-09")
    with pytest.raises(NotComparable, match="count the same outcomes"):
        insert(board, [entry])


def test_a_seed_entered_twice_is_refused(board: Path, write) -> None:
    runs = [write("d1", 0, 10), write("d1b", 0, 11)]
    entry = from_runs(read_board(board).protocol, runs, "d1", "submitted", "2026-12-09")
    with pytest.raises(NotComparable, match="two runs of sudoku4 have the same seed"):
        insert(board, [entry])


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("entries/x.json", "{", "truncated or damaged"),
        ("entries/x.json", "[" * 100_000, "truncated or damaged"),
        ("entries/x.json", '{"id": "y"}', "it calls itself 'y'"),
        ("entries/x.json", '{"id": "x"}', "Field required"),
        ("entries/x.txt", "text", "only .json files belong there"),
        ("entries.lock.json", '{"schema": "dare.lock/2"}', "dare.lock/1"),
        ("protocol.toml", "schema = ", "it is not TOML"),
        ("protocol.toml", 'schema = "dare.board/9"', "dare.board/1"),
        ("withdrawals/x.json", '{"entry": "x"}', "Field required"),
    ],
)
def test_a_damaged_file_is_named(board: Path, file: str, content: str, why: str) -> None:
    path = board / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    (problem,) = check(board)
    assert file in problem.what
    assert why in problem.what


def test_a_number_that_is_none_is_refused(board: Path, add) -> None:
    name = add("d1", [10, 12])

    def spoil(entry: dict[str, Any]) -> None:
        entry["evidence"][0]["record"]["metrics"][0]["value"] = float("nan")

    edit(board, name, spoil)
    (problem,) = check(board)
    assert "is not valid: a number in it" in problem.what


def test_a_link_is_refused(board: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text("{}")
    (board / "entries").mkdir()
    (board / "entries" / "x.json").symlink_to(tmp_path / "elsewhere.json")
    (problem,) = check(board)
    assert "is a link" in problem.what


def test_a_board_in_the_wrong_folder_fails(board: Path) -> None:
    rebuild(board)
    moved = board.rename(board.parent / "v2")
    (problem,) = check(moved)
    assert problem.what == "protocol.toml is of toy/v1"


def test_a_challenge_of_nothing_fails(board: Path, add) -> None:
    with pytest.raises(NotComparable, match="challenges 'nobody', which is no row"):
        add("d1 again", [5, 6], challenges="nobody")
    name = add("d1", [10, 12])
    edit(board, name, lambda entry: entry.update(kind="challenge", target="nobody"))
    assert "challenges 'nobody', which is no row" in said(board)


def test_nothing_is_added_to_a_broken_board(board: Path, add) -> None:
    name = add("d1", [10, 12])
    (board / "entries" / f"{name}.json").unlink()
    with pytest.raises(Untrusted):
        add("spg", [13, 14])
    assert list((board / "entries").iterdir()) == []


def test_rows_are_taken_back_one_by_one(board: Path, add) -> None:
    """The table waits for the last of them."""
    names = [add("d1", [10, 12]), add("spg", [13, 14])]
    before = (board / "README.md").read_text()
    for name in names:
        (board / "entries" / f"{name}.json").unlink()
    withdraw(board, names[0], "lost", "2026-12-10")
    assert (board / "README.md").read_text() == before
    withdraw(board, names[1], "lost", "2026-12-10")
    assert check(board) == []


def test_what_is_proposed_for_a_broken_row(board: Path, add) -> None:
    name = add("d1", [10, 12])
    entry = board / "entries" / f"{name}.json"
    kept = entry.read_text()
    entry.unlink()
    assert remedies(board, check(board)) == [
        f"dare leaderboard withdraw toy {name} --reason REASON"
    ]
    entry.write_text(kept)
    commit(board)
    entry.unlink()
    (command,) = remedies(board, check(board))
    assert command == f"git checkout HEAD -- {entry}"
    git(board, *command.split()[1:])
    assert check(board) == []
    entry.write_text("{")
    assert remedies(board, check(board)) == [command]
