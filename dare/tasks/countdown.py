"""Countdown: reach a target with three numbers and + - * / (d1's test file)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from dare.grading import d1, strict
from dare.tasks import protocols, rewards
from dare.tasks.base import Item, RewardFunction
from dare.tasks.benchmark import Benchmark, Grader
from dare.tasks.protocols import D1_COMMIT, D1_REPO
from dare.tasks.shuffle import shuffled
from dare.tasks.sources import FileSource, HubSource
from dare.tasks.tables import BadRow, Row

REVISION = "408f70d177020686d34a56bba5952feb45aaaee4"
TEST_SHA256 = "9916f614621e26fb2b035ed4ea641e35e4fff0d533bb9b9c7bcaaa61017d88c6"
MAX_NUMBERS = 6
TRAIN_SEED, TRAIN_DROPPED = 42, 500


class Countdown(Benchmark):
    """Reach a target with given numbers, each used once.

    Canonical columns: input ("30,100,93") and output ("23"), or nums and target.  The train
    split is d1's: rows with three numbers, shuffled with seed 42, without the last 500.
    """

    name = "countdown"
    protocols = ("d1", "strict")
    sources: ClassVar[Mapping[str, HubSource | FileSource]] = {
        "train": HubSource(
            "Jiayi-Pan/Countdown-Tasks-3to4", REVISION, "train", 490_364, "not stated"
        ),
        "test": FileSource(
            D1_REPO, D1_COMMIT, "dataset/countdown_cd3_test.jsonl", TEST_SHA256, 256, "Apache-2.0"
        ),
    }

    def item(self, row: Row) -> Item:
        if "nums" in row:
            return _item(row["nums"], row["target"])
        try:
            numbers = [int(number) for number in str(row["input"]).split(",")]
            return _item(numbers, int(row["output"]))
        except ValueError as error:
            raise BadRow(f"not whole numbers: {error}") from error

    def scored_item(self, question: str, ground_truth: Any) -> Item:
        """``ground_truth``: ``[[numbers], target]``."""
        if not isinstance(ground_truth, list) or len(ground_truth) != 2:
            raise BadRow("the ground truth is not [[numbers], target]")
        return _item(*ground_truth)

    def select(self, split: str, items: list[Item]) -> list[Item]:
        if split != "train":
            return items
        three = [item for item in items if len(item.gold["numbers"]) == 3]
        return shuffled(three, TRAIN_SEED)[:-TRAIN_DROPPED]

    def graders(self) -> Mapping[str, Grader]:
        return {
            "d1": lambda item, text: d1.countdown(text, **item.gold),
            "strict": lambda item, text: strict.countdown(text, **item.gold),
        }

    def reward_functions(self) -> Mapping[str, Sequence[RewardFunction]]:
        return {"d1": rewards.COUNTDOWN}

    def chance_floor(self, items: Sequence[Item], protocol: str) -> float:
        """Expected accuracy of a random expression over the item's numbers, as a share.

        Exact, by enumeration: order of the numbers, operators and grouping all uniform.
        """
        protocols.get(self.name, protocol)
        if not items:
            return 0.0
        shares = (_random_share(tuple(sorted(i.gold["numbers"])), i.gold["target"]) for i in items)
        return float(sum(shares) / len(items))


def _item(numbers: Any, target: Any) -> Item:
    whole = isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
    if not whole or type(target) is not int:
        raise BadRow("the numbers or the target are not whole numbers")
    if not 1 <= len(numbers) <= MAX_NUMBERS:
        raise BadRow(f"{len(numbers)} numbers; 1 to {MAX_NUMBERS} are possible")
    return Item(
        id=f"countdown/{','.join(map(str, numbers))}={target}",
        question=f"Numbers: {numbers}\nTarget: {target}",
        gold={"numbers": list(numbers), "target": target},
    )


@functools.lru_cache(maxsize=4096)
def _random_share(numbers: tuple[int, ...], target: int) -> Fraction:
    values = _values(numbers)
    return Fraction(values.get(Fraction(target), 0), sum(values.values()))


@functools.lru_cache(maxsize=4096)
def _values(numbers: tuple[int, ...]) -> dict[Fraction | None, int]:
    """How many expressions over all of ``numbers`` have each value; None: division by zero."""
    if len(numbers) == 1:
        return {Fraction(numbers[0]): 1}
    counts: dict[Fraction | None, int] = {}
    # Every ordered split into two non-empty groups is the top operator of some expressions.
    for chosen in range(1, 2 ** len(numbers) - 1):
        left = tuple(n for place, n in enumerate(numbers) if chosen >> place & 1)
        right = tuple(n for place, n in enumerate(numbers) if not chosen >> place & 1)
        for a, times_a in _values(left).items():
            for b, times_b in _values(right).items():
                for value in _results(a, b):
                    counts[value] = counts.get(value, 0) + times_a * times_b
    return counts


def _results(a: Fraction | None, b: Fraction | None) -> tuple[Fraction | None, ...]:
    if a is None or b is None:
        return (None,) * 4
    return (a + b, a - b, a * b, a / b if b else None)


TASK = Countdown()
