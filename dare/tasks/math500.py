"""MATH-500: competition problems with LaTeX answers (HuggingFaceH4/MATH-500)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dare.grading import d1, strict
from dare.grading.text import last_balanced_box
from dare.tasks import rewards
from dare.tasks.base import Item, RewardFunction
from dare.tasks.benchmark import Benchmark, Grader, text_id, text_of
from dare.tasks.sources import FileSource, HubSource
from dare.tasks.tables import BadRow, Row

REVISION = "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"


class Math500(Benchmark):
    """Competition mathematics.  Canonical columns: problem, answer (or solution with a box).

    d1 trains on the train split of ankner/math-500, for which no revision is published.
    """

    name = "math500"
    protocols = ("d1", "strict")
    sources: ClassVar[Mapping[str, HubSource | FileSource]] = {
        "train": HubSource("ankner/math-500", None, "train", None, "not stated"),
        "test": HubSource("HuggingFaceH4/MATH-500", REVISION, "test", 500, "MIT"),
    }

    def item(self, row: Row) -> Item:
        problem = text_of(row, "problem")
        if row.get("answer"):
            answer = text_of(row, "answer")
        else:
            boxed = last_balanced_box(text_of(row, "solution"))
            if not boxed:
                raise BadRow("neither an answer nor a boxed one in the solution")
            answer = boxed
        return Item(text_id(self.name, problem), problem, {"answer": answer})

    def scored_item(self, question: str, ground_truth: Any) -> Item:
        """``ground_truth``: the answer as LaTeX."""
        if not isinstance(ground_truth, str) or not ground_truth.strip():
            raise BadRow("the ground truth is not a LaTeX string")
        return Item(text_id(self.name, question), question, {"answer": ground_truth})

    def graders(self) -> Mapping[str, Grader]:
        return {
            "d1": lambda item, text: d1.math500(text, item.gold["answer"]),
            "strict": lambda item, text: strict.math500(text, item.gold["answer"]),
        }

    def reward_functions(self) -> Mapping[str, Sequence[RewardFunction]]:
        return {"d1": rewards.MATH500}


TASK = Math500()
