"""Run folders: what is written is read back; whatever else is there is named and refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from datetime import date

import pytest

from dare.errors import DareError, Missing, UsageProblem
from dare.results import files, rundir


@pytest.fixture
def finished(tmp_path, make_record, make_outcomes):
    folder = tmp_path / "runs" / rundir.run_name("2026-12-01", "d1", "gsm8k", "abcdef0123456789")
    rundir.start_run(folder, "key-1")
    return folder, rundir.write_run(folder, make_record(50.0), make_outcomes([1, 0, 1, 0]))


def test_run_name():
    name = rundir.run_name(date(2026, 12, 1), "d1", "sudoku4", "0123456789abcdef")
    assert name == "2026-12-01-d1-sudoku4-01234567"


@pytest.mark.parametrize("part", ["../up", "", "a/b", ".hidden", "a b"])
def test_run_name_stays_in_its_folder(part):
    with pytest.raises(UsageProblem, match="cannot be part"):
        rundir.run_name("2026-12-01", "d1", part, "0" * 8)


def test_round_trip_and_hashes(finished):
    folder, record = finished
    raw = (folder / "outcomes.jsonl").read_bytes()
    assert record.outcomes == {
        "path": "outcomes.jsonl",
        "sha256": hashlib.sha256(raw).hexdigest(),
        "lines": 4,
    }
    assert rundir.read_record(folder) == rundir.read_record(folder / "record.json") == record
    assert [o.correct for o in rundir.read_outcomes(folder)] == [True, False, True, False]
    assert record.id == record.content_id()
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"
    assert not list(folder.glob("*.tmp"))
    assert not list(folder.glob(".*.tmp"))


def test_a_record_is_never_overwritten(finished, make_record, make_outcomes):
    folder, _ = finished
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(UsageProblem, match="exists already"):
        rundir.write_run(folder, make_record(99.0), make_outcomes([1]))
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_integer_keys_survive_the_round_trip(tmp_path, make_record, make_outcomes):
    record = make_record(50.0, seeds={"run": 0, "draws": {"10": 1, "9": 2}})
    written = rundir.write_run(tmp_path / "run", record, make_outcomes([1]))
    assert rundir.read_record(tmp_path / "run").id == written.id


def test_a_number_that_is_not_finite_is_refused(tmp_path, make_record, make_outcomes):
    good = make_record(50.0)
    diverged = good.metrics[0].model_copy(update={"value": float("nan")})
    record = good.model_copy(update={"metrics": [diverged]})
    with pytest.raises(DareError, match="cannot be stored"):
        rundir.write_run(tmp_path / "run", record, make_outcomes([1]))
    assert not (tmp_path / "run" / "record.json").exists()


def test_unusual_text_survives(tmp_path, make_record, make_outcomes):
    text = "a\x00b\u2028c\u202e\n" + "[" * 10_000
    outcome = make_outcomes([1])[0].model_copy(update={"output": text})
    rundir.write_run(tmp_path / "run", make_record(50.0), [outcome])
    assert rundir.read_outcomes(tmp_path / "run")[0].output == text


def test_edited_record(finished):
    folder, _ = finished
    path = folder / "record.json"
    path.write_text(path.read_text().replace('"value": 50.0', '"value": 90.0'))
    with pytest.raises(UsageProblem, match="edited after it was written") as caught:
        rundir.read_record(folder)
    assert caught.value.why
    assert caught.value.help


def test_edited_and_truncated_outcomes(finished):
    folder, _ = finished
    path = folder / "outcomes.jsonl"
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"correct": false', b'"correct": true'))
    with pytest.raises(UsageProblem, match="edited after it was written") as caught:
        rundir.read_outcomes(folder)
    assert "dare rescore" not in caught.value.help  # it would meet the same file
    assert "move the folder away and run dare reproduce again" in caught.value.help
    path.write_bytes(raw[:-20])
    with pytest.raises(UsageProblem, match="truncated"):
        rundir.read_outcomes(folder)


def test_lone_outcomes_are_read_without_a_record(finished, tmp_path):
    folder, _ = finished
    lone = tmp_path / "lone.jsonl"
    lone.write_bytes((folder / "outcomes.jsonl").read_bytes())
    assert len(rundir.read_outcomes(lone)) == 4
    lone.write_bytes(lone.read_bytes()[:-1])
    with pytest.raises(UsageProblem, match="truncated"):
        rundir.read_outcomes(lone)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "truncated or damaged"),
        (b'{"schema": "dare.record/1", "id', "truncated or damaged"),
        (b"[" * 10_000_000, "nested too deeply"),
        (b"[1, 2]", "not a JSON object"),
        (b'{"schema": "dare.record/7"}', "schema is 'dare.record/7'"),
        (b'{"schema": "dare.record/1"}', "not a valid record"),
        (b"\xff\xfe\x00", "truncated or damaged"),
        (b'{"n": ' + b"9" * 10_000 + b"}", "truncated or damaged"),
    ],
)
def test_damaged_record_files(tmp_path, content, said):
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(UsageProblem) as caught:
        rundir.read_record(tmp_path)
    assert said in f"{caught.value.what} {caught.value.why}"
    assert caught.value.help


@pytest.mark.parametrize("name", ["record.json", "outcomes.jsonl", "run.json"])
def test_a_link_under_a_name_of_the_run_is_refused(finished, tmp_path, name):
    folder, _ = finished
    moved = tmp_path / name
    (folder / name).rename(moved)
    (folder / name).symlink_to(moved)
    (found,) = rundir.find_runs(folder.parent)
    if name == "outcomes.jsonl":
        assert rundir.find_finished(folder.parent, "key-1") is None
        with pytest.raises(UsageProblem, match="outcomes") as caught:
            rundir.read_outcomes(folder)
        assert "it is a link" in caught.value.why
    else:
        assert found.state == "broken"
        assert f"{folder / name}: it is a link" in found.problem
    if name == "record.json":
        for path in (folder, folder / name):
            with pytest.raises(UsageProblem, match="cannot read the record"):
                rundir.read_record(path)


def test_a_link_to_a_whole_run_is_a_run(finished, tmp_path):
    folder, record = finished
    (tmp_path / "linked").symlink_to(folder)
    assert rundir.read_record(tmp_path / "linked") == record
    assert len(rundir.read_outcomes(tmp_path / "linked")) == 4


def test_things_that_are_not_files(tmp_path):
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    with pytest.raises(UsageProblem, match="cannot read"):
        rundir.read_record(loop)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(UsageProblem) as caught:
        rundir.read_record(pipe)
    assert "not a plain file" in caught.value.why
    with pytest.raises(UsageProblem) as caught:
        rundir.read_record(tmp_path / "nothing" / "record.json")
    assert "No such file" in caught.value.why


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_record(finished):
    folder, _ = finished
    (folder / "record.json").chmod(0)
    with pytest.raises(UsageProblem, match="cannot read"):
        rundir.read_record(folder)


def test_unfinished_run_says_resume(tmp_path):
    rundir.start_run(tmp_path / "run", "key")
    with pytest.raises(UsageProblem, match="not finished") as caught:
        rundir.read_record(tmp_path / "run")
    assert "--resume" in caught.value.help


def test_disk_full_leaves_nothing(tmp_path, monkeypatch):
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    target = tmp_path / "record.json"
    target.write_bytes(b"old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(Missing, match="cannot write") as caught:
        files.write_atomic(target, b"new")
    assert "No space left" in caught.value.why
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["record.json"]


def test_find_runs_lists_damaged_folders(finished, tmp_path):
    folder, record = finished
    root = folder.parent
    (root / "2026-12-02-broken").mkdir()
    (root / "2026-12-02-broken" / "record.json").write_text("{")
    rundir.start_run(root / "2026-12-03-started", "key-3")
    rundir.start_run(root / "2026-12-04-failed", "key-4")
    rundir.mark_run(root / "2026-12-04-failed", "failed", "loss was nan")
    (root / "2026-12-05-loop").symlink_to(root / "2026-12-05-loop")
    (root / "notes").mkdir()
    (root / "notes.txt").write_text("not a run")
    refs = rundir.find_runs(root)
    assert [(ref.path.name[:10], ref.state) for ref in refs] == [
        ("2026-12-01", "complete"),
        ("2026-12-02", "broken"),
        ("2026-12-03", "partial"),
        ("2026-12-04", "failed"),
        ("2026-12-05", "broken"),
    ]
    assert refs[0].record == record
    assert "truncated or damaged" in refs[1].problem
    assert refs[3].problem == "loss was nan"
    assert rundir.find_runs(tmp_path / "no such folder") == []


def test_finding_a_run_by_its_key(finished):
    folder, _ = finished
    root = folder.parent
    rundir.start_run(root / "2026-12-09-again", "key-1")
    rundir.start_run(root / "2026-12-08-other", "key-2")
    assert rundir.find_finished(root, "key-1") == folder
    assert rundir.find_finished(root, "key-2") is None
    assert rundir.find_run(root, "key-2").path == root / "2026-12-08-other"
    assert rundir.find_run(root, "key-9") is None
    (folder / "outcomes.jsonl").write_bytes(b"")
    assert rundir.find_finished(root, "key-1") is None


def test_a_folder_belongs_to_one_run(tmp_path):
    rundir.start_run(tmp_path / "run", "key-a")
    rundir.start_run(tmp_path / "run", "key-a", resumed=True)
    with pytest.raises(UsageProblem, match="belongs to another run"):
        rundir.start_run(tmp_path / "run", "key-b")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["run_key"] == "key-a"


def test_run_key_depends_on_each_part():
    base = rundir.run_key("config", "code", "weights")
    keys = {base, rundir.run_key("x", "code", "weights"), rundir.run_key("config", "x", "weights")}
    keys |= {rundir.run_key("config", "code", "x"), rundir.run_key("code", "config", "weights")}
    assert len(keys) == 5


def test_lock_is_exclusive_and_names_the_holder(tmp_path):
    with (
        rundir.lock(tmp_path / "run"),
        pytest.raises(rundir.Locked) as caught,
        rundir.lock(tmp_path / "run"),
    ):
        pass
    assert str(os.getpid()) in caught.value.why
    with rundir.lock(tmp_path / "run"):
        pass


def test_lock_ends_with_its_process(tmp_path):
    code = (
        "import os, sys; from dare.results.rundir import lock\n"
        "with lock(sys.argv[1]):\n    os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], timeout=60)
    assert done.returncode == 9
    with rundir.lock(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock.json").exists()


def test_events_survive_a_half_written_line(tmp_path):
    rundir.append_event(tmp_path, {"step": 1, "loss": 0.5})
    rundir.append_event(tmp_path, {"step": 2, "loss": float("nan"), "more": [float("inf")]})
    path = tmp_path / "events.jsonl"
    with path.open("ab") as handle:
        handle.write(b'{"step": 3, "lo')
    both = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "more": [None]}]
    assert rundir.read_events(tmp_path) == both
    rundir.append_event(tmp_path, {"step": 3})
    assert rundir.read_events(tmp_path) == [*both, {"step": 3}]


def test_events_of_nothing_and_of_only_half_a_line(tmp_path):
    assert rundir.read_events(tmp_path) == []
    assert rundir.truncate_events(tmp_path, 0) == 0
    (tmp_path / "events.jsonl").write_bytes(b'{"step"')
    assert rundir.read_events(tmp_path) == []
    rundir.append_event(tmp_path, {"step": 1})
    assert (tmp_path / "events.jsonl").read_bytes() == b'{"step":1}\n'


def test_truncating_events_keeps_those_up_to_the_step(tmp_path):
    for event in ({"name": "start"}, {"step": 1}, {"step": 2}, {"step": 3}, {"name": "eval"}):
        rundir.append_event(tmp_path, event)
    assert rundir.truncate_events(tmp_path, 2) == 1
    expected = [{"name": "start"}, {"step": 1}, {"step": 2}, {"name": "eval"}]
    assert rundir.read_events(tmp_path) == expected


def test_a_damaged_line_inside_the_events_is_an_error(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(b'{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(UsageProblem) as caught:
        rundir.read_events(tmp_path)
    assert "line 2" in caught.value.why
