"""Loading, prompts, protocols and chance floors of the published benchmarks."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dare.errors import Missing, UsageProblem
from dare.tasks import get, names, protocols
from dare.tasks.base import Item
from dare.tasks.shuffle import legacy_sample, shuffled

BENCHMARKS = ("gsm8k", "math500", "countdown", "sudoku")


def rows_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("task", "split", "file", "rows", "first_gold"),
    [
        ("gsm8k", "test", "gsm8k_test.jsonl", 1319, {"answer": "18"}),
        ("gsm8k", "train", "gsm8k_train.jsonl", 7473, {"answer": "72"}),
        ("math500", "test", "math500_test.jsonl", 500, None),
        ("countdown", "test", "countdown_cd3_test.jsonl", 256, {"numbers": [30, 100, 93]}),
        ("sudoku", "test", "sudoku4x4_test.csv", 256, None),
    ],
)
def test_the_canonical_files_load(
    shared_dir: Path, task: str, split: str, file: str, rows: int, first_gold: dict | None
) -> None:
    path = shared_dir / "data/benchmarks" / file
    items = get(task).load(split, data=path)
    assert len(items) == len({item.id for item in items}) == rows
    if first_gold:
        assert first_gold.items() <= items[0].gold.items()
    assert get(task).load(split, 7, data=path) == items[:7]
    assert json.loads(json.dumps([item.gold for item in items])) == [i.gold for i in items]


def test_sudokus_256_test_rows_are_the_ones_behind_the_published_generations(
    shared_dir: Path,
) -> None:
    import pyarrow.parquet as pq

    task = get("sudoku")
    items = task.load("test", data=shared_dir / "data/benchmarks/sudoku4x4_test.csv")
    file = shared_dir / "data/generations/sudoku_128.parquet"
    rows = pq.read_table(file, columns=["question", "ground_truth"]).to_pylist()
    scored = [task.scored_item(r["question"], json.loads(r["ground_truth"])) for r in rows]
    assert {item.id: item.gold for item in scored} == {item.id: item.gold for item in items}


def test_an_item_has_one_id_whether_from_the_benchmark_or_from_a_generation(
    shared_dir: Path,
) -> None:
    import pyarrow.parquet as pq

    for task, file in (("gsm8k", "gsm8k_test.jsonl"), ("countdown", "countdown_cd3_test.jsonl")):
        ids = {i.id for i in get(task).load("test", data=shared_dir / "data/benchmarks" / file)}
        path = shared_dir / f"data/generations/{task}_128.parquet"
        for row in pq.read_table(path).to_pylist():
            item = get(task).scored_item(row["question"], json.loads(row["ground_truth"]))
            assert item.id in ids


@pytest.mark.parametrize("task", BENCHMARKS)
def test_without_data_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Missing) as caught:
        get(task).load("test")
    assert caught.value.exit_status == 3
    assert "--data FILE" in caught.value.help
    assert "740312add88f781978c0658806c59bc2815b9866" in caught.value.help or task != "gsm8k"


@pytest.mark.parametrize(
    ("task", "row", "why"),
    [
        ("gsm8k", {"question": "q", "answer": "no marker"}, "#### N"),
        ("gsm8k", {"question": "q", "answer": "#### many"}, "#### N"),
        ("gsm8k", {"question": "", "answer": "#### 5"}, "'question' is empty"),
        ("gsm8k", {"answer": "#### 5"}, "no column 'question'"),
        ("math500", {"problem": "p", "solution": "no box"}, "boxed"),
        ("countdown", {"input": "1,x", "output": "3"}, "not whole numbers"),
        ("countdown", {"nums": [1, 2.5], "target": 3}, "not whole numbers"),
        ("countdown", {"nums": [1] * 9, "target": 3}, "9 numbers"),
        ("sudoku", {"Puzzle": "12", "Solution": "1234341221434321"}, "16 digits"),
        ("sudoku", {"Puzzle": "0234341221434321", "Solution": "1" * 16}, "legal grid"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, task: str, row: dict[str, Any], why: str) -> None:
    good = {
        "gsm8k": {"question": "q", "answer": "it is\n#### 5"},
        "math500": {"problem": "p", "answer": "5"},
        "countdown": {"input": "1,2", "output": "3"},
        "sudoku": {"Puzzle": "0234341221434321", "Solution": "1234341221434321"},
    }[task]
    path = rows_file(tmp_path / "rows.jsonl", [good, row])
    with pytest.raises(UsageProblem, match=r"row 2 of .*rows.jsonl") as caught:
        get(task).load("test", data=path)
    assert why in caught.value.why


def test_training_answers_of_math_come_from_the_last_box_of_the_solution(tmp_path: Path) -> None:
    row = {"problem": "p", "solution": r"so \boxed{1} and then $\boxed{\frac{1}{2}}$."}
    (item,) = get("math500").load("train", data=rows_file(tmp_path / "r.jsonl", [row]))
    assert item.gold == {"answer": r"\frac{1}{2}"}


def test_countdown_trains_on_three_numbers_shuffled_without_the_last_500() -> None:
    items = [
        Item(str(n), "", {"numbers": [1] * (3 if n % 2 else 4), "target": n}) for n in range(2000)
    ]
    kept = get("countdown").select("train", items)
    order = np.random.default_rng(42).permutation(1000)[:500]
    assert [int(item.id) for item in kept] == [2 * int(k) + 1 for k in order]


def test_shuffles_are_those_of_datasets_and_of_the_legacy_generator() -> None:
    from datasets import Dataset

    rows = list(range(300))
    assert shuffled(rows, 42) == Dataset.from_dict({"x": rows}).shuffle(seed=42)["x"][:]
    # d1 draws 256 of 500 with numpy's global generator; these are its first indices
    assert legacy_sample(list(range(500)), 256, 42)[:4] == [361, 73, 374, 155]


def test_gold_numbers_of_generations() -> None:
    task = get("gsm8k")
    assert task.scored_item("q", 18.0).gold == {"answer": "18"}
    assert task.scored_item("q", 0.5).gold == {"answer": "0.5"}
    assert task.scored_item("q", None).gold == {"answer": None}
    for bad in ("18", True, float("nan"), [18]):
        with pytest.raises(ValueError, match="ground truth"):
            task.scored_item("q", bad)


# ---- protocols ----


@pytest.mark.parametrize("task", names())
def test_every_protocol_of_a_task_is_described_and_renders(task: str) -> None:
    assert get(task).protocols == protocols.names(task)
    for name in get(task).protocols:
        protocol = protocols.get(task, name)
        assert protocol.prompt.count("{question}") == 1
        assert protocol.render("a {b} \\c") == protocol.prompt.replace("{question}", "a {b} \\c")
        assert protocol.wording == "own"
        assert len(protocol.prompt_sha256) == 64
        about = protocol.describe()
        assert about["protocol"] == name
        assert json.loads(json.dumps(about)) == about


@pytest.mark.parametrize("task", BENCHMARKS)
def test_d1_points_to_the_authors_wording_and_prefills_the_reasoning_tag(task: str) -> None:
    protocol = protocols.get(task, "d1")
    assert protocol.answer_prefix == "<reasoning>"
    assert protocol.lengths == (128, 256, 512)
    assert protocol.published is not None
    assert protocol.published.url().startswith("https://github.com/dllm-reasoning/d1/blob/837888f")
    assert "<answer>" in get(task).prompt(Item("i", "Q?", {}), "d1")
    assert get(task).prompt(Item("i", "Q?", {}), "d1").endswith("Q?")


def test_the_hash_follows_text_and_prefix() -> None:
    first = protocols.get("gsm8k", "d1")
    assert first.prompt_sha256 == protocols.text_sha256(f"{first.prompt}\0<reasoning>")
    assert first.prompt_sha256 != protocols.get("math500", "d1").prompt_sha256
    with pytest.raises(UsageProblem, match="no protocol of gsm8k is called 'd2'") as caught:
        protocols.get("gsm8k", "d2")
    assert "did you mean 'd1'" in caught.value.help


# ---- chance ----


def brute_force_share(numbers: tuple[int, int, int], target: int) -> Fraction:
    """All 6 orders, 16 pairs of operators and 2 groupings of three numbers, one by one."""
    operators = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }
    hits = total = 0
    for a, b, c in itertools.permutations(map(Fraction, numbers)):
        for f, g in itertools.product(operators.values(), repeat=2):
            for group in (lambda: g(f(a, b), c), lambda: f(a, g(b, c))):  # noqa: B023
                total += 1
                try:
                    hits += group() == target
                except ZeroDivisionError:
                    continue
    assert total == 192
    return Fraction(hits, total)


@pytest.mark.parametrize(
    ("numbers", "target"),
    [((2, 3, 4), 24), ((2, 3, 4), 10), ((5, 5, 5), 5), ((1, 0, 7), 7), ((9, 8, 7), 1000)],
)
def test_the_chance_floor_of_countdown_is_exact(numbers: tuple[int, int, int], target: int) -> None:
    item = Item("i", "", {"numbers": list(numbers), "target": target})
    share = brute_force_share(numbers, target)
    assert get("countdown").chance_floor([item], "d1") == pytest.approx(float(share), abs=1e-15)


def test_the_other_chance_floors() -> None:
    item = get("sudoku").item({"Puzzle": "0000413214230041", "Solution": "2314413214233241"})
    assert get("sudoku").chance_floor([item], "d1") == 0.25
    assert get("sudoku").chance_floor([item], "strict") == 2 / 4**6
    assert get("gsm8k").chance_floor([item], "d1") == 0.0


def test_a_hub_split_with_another_number_of_rows_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import datasets

    calls = []

    def fake(*args: Any, **named: Any) -> datasets.Dataset:
        calls.append((args, named))
        return datasets.Dataset.from_list([{"question": "q", "answer": "#### 5"}])

    monkeypatch.setattr(datasets, "load_dataset", fake)
    with pytest.raises(UsageProblem, match="is not what was pinned") as caught:
        get("gsm8k").load("test")
    assert "1 rows instead of 1319" in caught.value.why
    (call,) = calls
    assert call[0] == ("openai/gsm8k", "main")
    assert call[1]["revision"] == "740312add88f781978c0658806c59bc2815b9866"


def test_a_file_of_the_authors_is_fetched_by_commit_and_hash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import pooch

    file = rows_file(tmp_path / "got.jsonl", [{"input": "1,2,3", "output": "6"}])
    calls = []

    def fake(url: str, known_hash: str, **named: Any) -> str:
        calls.append((url, known_hash))
        return str(file)

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(pooch, "retrieve", fake)
    (item,) = get("countdown").load("test")
    assert item.gold == {"numbers": [1, 2, 3], "target": 6}
    ((url, known_hash),) = calls
    assert "/837888f22c21a5da91a0af2b0d7b19e81d9b47ec/dataset/countdown_cd3_test.jsonl" in url
    assert known_hash == ("sha256:9916f614621e26fb2b035ed4ea641e35e4fff0d533bb9b9c7bcaaa61017d88c6")
