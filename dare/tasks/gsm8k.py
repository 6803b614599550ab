"""GSM8K: grade-school word problems with one number as the result (openai/gsm8k, MIT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dare.grading import d1, strict
from dare.tasks import rewards
from dare.tasks.base import Item, RewardFunction
from dare.tasks.benchmark import Benchmark, Grader, text_id, text_of
from dare.tasks.sources import FileSource, HubSource
from dare.tasks.tables import BadRow, Row

REVISION = "740312add88f781978c0658806c59bc2815b9866"


class Gsm8k(Benchmark):
    """Grade-school word problems.  Canonical columns: question, answer (ends in ``#### N``)."""

    name = "gsm8k"
    protocols = ("d1", "spg", "strict")
    sources: ClassVar[Mapping[str, HubSource | FileSource]] = {
        "train": HubSource("openai/gsm8k", REVISION, "train", 7473, "MIT", "main"),
        "test": HubSource("openai/gsm8k", REVISION, "test", 1319, "MIT", "main"),
    }

    def item(self, row: Row) -> Item:
        question = text_of(row, "question")
        _, marker, gold = text_of(row, "answer").rpartition("####")
        if not marker or not _is_number(gold.strip()):
            raise BadRow("the answer does not end in '#### N'")
        return Item(text_id(self.name, question), question, {"answer": gold.strip()})

    def scored_item(self, question: str, ground_truth: Any) -> Item:
        """``ground_truth``: a number, or null where the source has none."""
        if isinstance(ground_truth, bool) or not isinstance(ground_truth, int | float | None):
            raise BadRow("the ground truth is not a number")
        gold = None if ground_truth is None else _plain(ground_truth)
        return Item(text_id(self.name, question), question, {"answer": gold})

    def graders(self) -> Mapping[str, Grader]:
        return {
            "d1": lambda item, text: d1.gsm8k(text, item.gold["answer"]),
            "spg": lambda item, text: d1.gsm8k_spg(text, item.gold["answer"]),
            "strict": lambda item, text: strict.gsm8k(text, item.gold["answer"]),
        }

    def reward_functions(self) -> Mapping[str, Sequence[RewardFunction]]:
        return {"d1": rewards.GSM8K, "spg": rewards.GSM8K_SPG}


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def _plain(number: float) -> str:
    if number != number or number in (float("inf"), float("-inf")):
        raise BadRow("the ground truth is not a finite number")
    return str(int(number)) if number == int(number) else repr(number)


TASK = Gsm8k()
