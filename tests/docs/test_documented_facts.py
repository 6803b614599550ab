"""Numbers, tables, names and links of the documentation are those of the code."""

from __future__ import annotations

import ast
import json
import math
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

import pytest

from dare import algorithms, reproductions, tasks
from dare.evaluation.rescore import rescore_file
from dare.grading import arithmetic, math_worker, strict, text
from dare.leaderboard.files import find_boards
from dare.models import registry
from dare.models.tiny import CHARACTERS, VOCABULARY
from dare.results import control, expectation, rule, stats
from dare.results.plan import estimate
from dare.results.verdict import MARGINS, Policy
from dare.sampling import presets
from dare.tasks import protocols, sudoku4, tables
from dare.training.base import BaseRecipe

DOCS = runpy.run_path(str(Path(__file__).with_name("documents.py")))
ROOT, PATHS, table, codes = DOCS["ROOT"], DOCS["DOCUMENTS"], DOCS["table"], DOCS["codes"]


def read(name: str) -> str:
    return str((ROOT / name).read_text())


README, STATISTICS, TINY = read("README.md"), read("docs/statistics.md"), read("docs/tiny.md")
SCORING, ARCHITECTURE = read("docs/scoring.md"), read("docs/architecture.md")


# ---- all documents -------------------------------------------------------------------------


def anchor(heading: str) -> str:
    """The fragment under which GitHub shows a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("https://"):
            continue
        name, _, fragment = target.partition("#")
        linked = path.parent / name if name else path
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.M) if fragment else []
        assert not fragment or fragment in map(anchor, headings), target


def test_every_document_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[^)#]+)\)", README))
    assert linked == {f"docs/{path.name}" for path in PATHS if path.parent.name == "docs"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_nothing_is_left_to_be_filled_in(path: Path) -> None:
    assert re.findall(r"\{\{\w+\}\}", path.read_text()) == []


def test_the_readme_lists_what_there_is() -> None:
    listed = {row[0]: set(codes(row[1])) for row in table(README, "", "today")}
    names = tasks.names()
    assert listed["tasks"] == set(names)
    assert listed["protocols"] == {name for task in names for name in protocols.names(task)}
    assert listed["algorithms"] == set(algorithms.ALGORITHMS)
    assert listed["papers"] == set(reproductions.names())
    embedded = {entry.name for entry in registry.CHECKPOINTS if entry.repo_id is None}
    assert listed["model families"] == {*registry.FAMILIES, *embedded, "dare models"}
    assert listed["boards"] == {path.parent.name for path in find_boards()}
    assert listed["samplers"] < set(presets.names())


# ---- architecture --------------------------------------------------------------------------

EVERYWHERE = {"errors", "config", "_layout", "_lazy", "__version__"}


def imports_of(folder: Path) -> set[str]:
    """The other folders of ``dare`` that the modules in ``folder`` import, also in functions."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module == "dare":
                names = [f"dare.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            found |= {name.split(".")[1] for name in names if name.startswith("dare.")}
    return found - EVERYWHERE - {folder.name}


def test_folders_import_what_the_table_allows() -> None:
    allowed = {codes(row[0])[0]: set(codes(row[2])) for row in table(ARCHITECTURE, "folder")}
    folders = [path.parent for path in (ROOT / "dare").glob("*/__init__.py")]
    assert set(allowed) == {folder.name for folder in folders}
    assert {folder.name: imports_of(folder) for folder in folders} == allowed


def test_the_tests_that_guard_an_invariant_exist() -> None:
    named = [code for row in table(ARCHITECTURE, "what holds") for code in codes(row[1])]
    assert len(named) > 30
    for name in named:
        path, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", read(path), re.M), name


# ---- statistics ----------------------------------------------------------------------------


def test_what_a_table_cell_can_show() -> None:
    rows = table(STATISTICS, "set", "n", "p")
    assert len(rows) == 7
    for name, items, share, *shown in rows:
        n, p = int(items), float(share)
        lo, hi = stats.wilson(round(n * p), n)
        difference = stats.normal_quantile(0.975) * math.sqrt(2 * p * (1 - p) / n)
        points = (
            (hi - lo) / 2, difference, stats.detectable_unpaired(p, n),
            stats.detectable_paired(0.1, n), stats.detectable_paired(0.2, n),
        )  # fmt: skip
        assert shown == [f"{100 * value:.1f}" for value in points], name


def test_the_constants_of_the_rules() -> None:
    said = STATISTICS.replace("\n", " ")
    assert f"{100 * expectation.LEVEL:.0f} % prediction interval for the mean of m more" in said
    assert f"must be {expectation.MINIMUM_GAIN:g} points or more" in said
    assert f"No seed may gain {control.ALLOWED_GAIN:g} points or more" in said
    assert f"({stats.DRAWS:,} draws, fixed stream)" in said
    assert f"prior of {rule.PRIOR_DF} degrees of freedom at SD δ/{rule.PRIOR_DIVISOR}" in said
    assert Policy().min_seeds == 3
    assert expectation.REFERENCE_SEEDS == 10


def test_three_seeds_and_ten() -> None:
    """The example of a difference that three seeds could not show."""
    said = STATISTICS.replace("\n", " ").replace("−", "-")
    three = re.findall(r"^spg - diffu-grpo .* (-[\d.]+) \[", README, re.M)
    seen = re.findall(r"could have detected ([\d.]+)", README)
    assert f"({three[0]} points, detectable {seen[0]})" in said
    board = read("leaderboards/tiny-sudoku/v1/README.md")
    (ten,) = re.findall(r"spg against diffu-grpo: (\S+) \[(\S+), (\S+)\], shown to be lower", board)
    assert "({}, from {} to {}, on the board".format(*ten) in said


def mean_of_largest(count: int) -> float:
    """The expectation of the largest of ``count`` standard normal numbers, by integration."""
    normal, step = NormalDist(), 0.002
    grid = [-8 + step * index for index in range(8001)]
    return sum(x * count * normal.pdf(x) * normal.cdf(x) ** (count - 1) for x in grid) * step


def test_what_choosing_the_best_checkpoint_adds() -> None:
    largest = mean_of_largest(30)
    assert f"({largest:.2f} for 30)" in STATISTICS
    for name, *shown in table(STATISTICS, "set, best of 30"):
        n, p = (float(number) for number in re.findall(r"[\d.]+", name))
        sd = 100 * math.sqrt(p * (1 - p) / n)
        assert shown == [f"{largest * sd * math.sqrt(1 - r):.1f}" for r in (0, 0.5, 0.8)]


def test_the_operating_characteristics() -> None:
    simulate = runpy.run_path(str(ROOT / "tests/results/test_verdict_rule.py"))["simulate"]
    gaps = {"0": 0.0, "δ": 5.0, "2δ": 10.0}
    for seeds, gap, *shown in table(STATISTICS, "seeds", "gap"):
        shares, strictly = simulate(int(seeds), gaps[gap])
        found = [*(shares[label] for label in ("REPRODUCED", "PARTIAL", "FAILED")), strictly]
        assert [float(cell.split()[0]) for cell in shown] == pytest.approx(
            [100 * share for share in found], abs=0.25
        )


def test_the_margins() -> None:
    (said,) = re.findall(r"default \(([^)]*)\)", STATISTICS)
    waiting: list[str] = []
    margins: dict[str, float] = {}
    for word in re.findall(r"[A-Za-z]\w*|\d+", said):  # names before a number share it
        if word.isdigit():
            margins |= dict.fromkeys(waiting, float(word))
            waiting = []
        elif word != "and":
            waiting.append(word.lower())
    aime = margins.pop("aime")
    assert margins | {"aime2024": aime, "aime2025": aime} == MARGINS


# ---- the tiny scale ------------------------------------------------------------------------


def test_the_splits_of_the_grids() -> None:
    rows = table(TINY, "split", "solution grids")
    assert {row[0]: int(row[1]) for row in rows} == sudoku4.SPLIT_GRIDS
    assert f"only {len(sudoku4.all_grids())} legal grids" in TINY
    assert all(f"fixed set of {sudoku4.SET_SIZE} puzzles" in row[2] for row in rows[1:])
    assert f"{sudoku4.MIN_BLANKS} to {sudoku4.MAX_BLANKS} blanks" in TINY


def test_guessing_and_the_weak_solver() -> None:
    items = sudoku4.load("test")
    answers = [sudoku4.weak_solution(item.question) for item in items]
    pairs = zip(items, answers, strict=True)
    weak = sum(sudoku4.TASK.grade(item, answer).correct for item, answer in pairs)
    assert f"alone it solves {weak / 10:.1f} % of" in TINY
    assert f"solves {100 * sudoku4.TASK.chance_floor(items):.2f} % of the test" in TINY


def test_the_embedded_model() -> None:
    entry = registry.get("tiny-llada")
    assert f"{entry.parameters:,} parameters" in TINY
    assert f"{entry.parameters:,} parameters" in README.replace("\n", " ")
    assert f"{entry.bytes:,} bytes" in TINY
    assert f"{len(CHARACTERS)} characters, {len(VOCABULARY)} tokens" in TINY


def test_the_base_recipe() -> None:
    made = json.loads(read("dare/models/embedded/tiny-llada/recipe.json"))
    recipe = BaseRecipe(**made["recipe"])
    assert f"*clean*: {recipe.clean_steps} steps" in TINY
    assert f"*mixed*: {recipe.mixed_steps} more" in TINY
    assert f"(learning rate {recipe.muon_lr})" in TINY
    assert f"The seed is {recipe.seed}," in TINY
    shown = [row[1] for row in table(TINY, "measured greedily, 8 steps")][:2]
    assert shown == [f"{100 * made[key]:.1f} %" for key in ("clean_accuracy", "accuracy")]
    assert f"{100 * made['clean_accuracy']:.1f} % of 1000 validation" in README


def test_the_other_embedded_models() -> None:
    shapes = {codes(row[0])[0]: row[1:] for row in table(TINY, "model", "family", "blocks")}
    solved = {codes(row[0])[0]: row for row in table(TINY, "measured greedily on 1000 puzzles")}
    embedded = {entry.name for entry in registry.CHECKPOINTS if entry.repo_id is None}
    assert set(shapes) == set(solved) == embedded - {"tiny-llada"}
    for name, cells in shapes.items():
        entry, made = (
            registry.get(name),
            json.loads(read(f"dare/models/embedded/{name}/recipe.json")),
        )
        recipe = BaseRecipe(**made["recipe"])
        assert cells[:5] == [
            f"`{entry.family}`", str(entry.block_length or "none"), f"{entry.parameters:,}",
            f"{entry.bytes:,}", str(recipe.clean_steps),
        ]  # fmt: skip
        assert solved[name][0] == f"`{name}`, seed {recipe.seed}"
        accuracies = [f"{100 * made[key]:.1f}" for key in ("clean_accuracy", "accuracy")]
        assert solved[name][1:3] == accuracies
    files = [path for path in registry.EMBEDDED.rglob("*") if path.is_file()]
    assert f"take {sum(path.stat().st_size for path in files) / 1e6:.2f} MB" in TINY


def test_the_budget_of_the_tiny_scale() -> None:
    facts = registry.get("tiny-llada")
    d1, spg = (
        estimate(reproductions.load(name).resolve("tiny")[0], facts) for name in ("d1", "spg")
    )
    rows = {row[0]: row[1] for row in table(TINY, "", "")}
    assert rows["updates"] == f"{d1.updates}, two per rollout batch, {d1.rollout_batches} batches"
    spent = f"{d1.completions:,} completions, {d1.nfe_rollout:,} rollout forwards"
    assert rows["spent per seed"] == spent
    assert f"takes {d1.learner_forwards + d1.scoring_forwards:,} learner and scoring" in TINY
    assert f"and SPG {spg.learner_forwards + spg.scoring_forwards:,}," in TINY


def test_the_reference_seeds() -> None:
    expected = []
    for name in reproductions.names():
        recorded = expectation.load_expectation(name, "sudoku4", "tiny-llada")
        values = recorded.reference
        lo, hi = expectation.expected_interval(values, 3, recorded.n_items)
        expected.append(
            [name, str(len(values)), f"{fmean(values):.1f}", f"{stdev(values):.1f}",
             f"{lo:.1f} to {hi:.1f}"]
        )  # fmt: skip
        assert recorded.conditions in TINY.replace("\n", " ")
    assert table(TINY, "paper", "seeds", "mean") == expected


# ---- scoring -------------------------------------------------------------------------------

RELEASED = table(SCORING, "task, tokens")


@pytest.mark.parametrize("row", RELEASED, ids=lambda row: row[0])
def test_scores_of_the_released_generations(row: list[str], shared_dir: Path) -> None:
    task, length = row[0].split(", ")
    if task == "math500" or (task, length) == ("gsm8k", "256"):
        pytest.skip("takes seconds; the other files are scored by the same code")
    result = rescore_file(shared_dir / f"data/generations/{task}_{length}.parquet", task, "d1")
    own, other = result.score(), result.strict_score()
    assert other is not None
    shown = [row[1], *(cell.split()[0] for cell in row[2:4]), row[4]]
    scores = [f"{own.value:.2f}", f"{other.value:.2f}"]
    assert shown == [str(result.n), *scores, str(len(result.differing))]


def examples() -> Iterator[tuple[str, str, Any, bool, bool]]:
    """Of the rows on which the graders differ: task, output, gold, right by d1, by strict."""
    number, latex = ("?", 6250), ("?", r"\frac14")
    expression = ("?", [[2, 3, 1], 8])
    yield "gsm8k", r"<answer>\boxed{6,250}</answer>", number, False, True
    yield "gsm8k", r"\boxed{4} or <answer>\boxed{6250}</answer>", number, False, True
    yield "gsm8k", "<answer>of 7000, 6250</answer>", number, True, False
    yield "gsm8k", r"<|endoftext|>\boxed{6250}", number, True, False
    yield "math500", r"<answer>\boxed{0.25}</answer>", latex, False, True
    yield "countdown", "2+3+3 = 8", ("?", [[2, 3, 3], 8]), True, False
    yield "countdown", r"<answer>\boxed{2**3*1}</answer>", expression, True, False


@pytest.mark.parametrize(("task", "output", "gold", "d1", "strictly"), list(examples()))
def test_graders_differ_on_such_rows(
    task: str, output: str, gold: Any, d1: bool, strictly: bool
) -> None:
    item = tasks.get(task).scored_item(*gold)  # type: ignore[attr-defined]
    verdicts = [tasks.get(task).grade(item, output, name).correct for name in ("d1", "strict")]
    assert verdicts == [d1, strictly]


def test_the_limits_on_output() -> None:
    rows = dict(table(SCORING, "what", "limit"))
    assert rows["what `strict` reads"].startswith(f"the last {strict.READ:,} characters")
    longest = rows["an output under protocol `d1`, and what a reward looks at"]
    assert longest.startswith(f"{text.MAX_OUTPUT:,} characters")
    assert strict.MAX_ANSWER == arithmetic.MAX_CHARACTERS == text.SHOWN == 2000
    assert rows["a stored answer"] == "2,000 characters"
    assert f"{arithmetic.MAX_BITS:,} bits" in rows["numbers in arithmetic"]
    worker = rows["a comparison by math-verify"]
    assert f"{math_worker.CPU_SECONDS} s of processor time" in worker
    assert f"{math_worker.WALL_SECONDS:g} s of real time" in worker
    assert f"{math_worker.MEMORY_BYTES >> 30} GiB" in worker
    assert rows["a row of a file"] == f"{tables.MAX_LINE:,} bytes"
