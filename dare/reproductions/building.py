"""Helpers for reproduction modules: claim tables, task choice, house deviations.

A reproduction writes the cells of a published table as the paper prints them and gets one
``Claim`` per cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dare.errors import unknown_name
from dare.results.claims import Claim, Deviation

LENGTHS = (128, 256, 512)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a paper's numbers on one task are: metric, number of items, protocol.

    ``n_items`` and ``protocol`` are None where the paper does not state them.
    """

    metric: str = "accuracy"
    n_items: int | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a results table.

    ``slug`` becomes part of the claim ids ("" for the paper's own method); ``label`` is the
    row's name in the table; ``selection`` says how the reported checkpoint was chosen (None
    where that is not stated); ``against`` is the slug of the row it improves on.
    """

    slug: str
    label: str
    model: str
    selection: str | None
    against: str | None = None


@dataclass(frozen=True, slots=True)
class ResultsTable:
    """A published table: which paper, where it stands, and what its columns measure.

    ``decode`` holds the sampler settings behind every cell; ``steps_per_token`` adds the
    number of steps where a cell has a generation length.
    """

    paper: str
    source: str
    benchmarks: Mapping[str, Benchmark]
    metric: str | None = None
    unit: str = "percent"
    direction: Literal["higher", "lower"] = "higher"
    decode: Mapping[str, Any] = field(default_factory=dict)
    steps_per_token: float | None = None

    def by_length(
        self,
        row: TableRow,
        cells: Mapping[str, str],
        notes: Mapping[str, str] | None = None,
        lengths: Sequence[int] = LENGTHS,
    ) -> tuple[Claim, ...]:
        """Claims from ``{"gsm8k": "68.7 / 76.7 / 78.2"}``: one value per generation length.

        ``notes`` are keyed by "task/length".
        """
        claims = []
        for task, text in cells.items():
            values = [float(value) for value in text.split("/")]
            for length, value in zip(lengths, values, strict=True):
                note = (notes or {}).get(f"{task}/{length}", "")
                claims.append(self._claim(row, task, str(length), value, length, note))
        return tuple(claims)

    def single(
        self, row: TableRow, suffix: str, cells: Mapping[str, float], note: str = ""
    ) -> tuple[Claim, ...]:
        """Claims from ``{"gsm8k": 81.1}``, numbers that belong to no one generation length.

        ``suffix`` takes the place of the length in the id ("best", "mean").
        """
        return tuple(
            self._claim(row, task, suffix, value, None, note) for task, value in cells.items()
        )

    def _claim(
        self, row: TableRow, task: str, suffix: str, value: float, length: int | None, note: str
    ) -> Claim:
        facts = self.benchmarks[task]
        decode = dict(self.decode)
        if length is not None and self.steps_per_token is not None:
            decode["steps"] = round(length * self.steps_per_token)
        return Claim(
            id=self._id(row.slug, task, suffix),
            row=row.label,
            model=row.model,
            task=task,
            metric=self.metric or facts.metric,
            value=value,
            unit=self.unit,
            direction=self.direction,
            gen_length=length,
            n_items=facts.n_items,
            protocol=facts.protocol,
            selection=row.selection,
            baseline=None if row.against is None else self._id(row.against, task, suffix),
            source=self.source,
            decode=decode,
            note=note,
        )

    def _id(self, slug: str, task: str, suffix: str) -> str:
        return "/".join(part for part in (self.paper, slug, task, suffix) if part)


def choose_task(
    paper: str, tasks: Mapping[str, Sequence[str]], scale: str, task: str | None
) -> str:
    """``task``, or the first of the scale; ``UsageProblem`` for a scale or task it lacks."""
    listing = f"dare show {paper}"
    if scale not in tasks:
        raise unknown_name(f"scale of {paper}", scale, tasks, listing)
    if task is None:
        return tasks[scale][0]
    if task not in tasks[scale]:
        raise unknown_name(f"task of {paper} at scale {scale}", task, tasks[scale], listing)
    return task


# Where this project's core departs from every code base derived from d1's.
HOUSE_DEVIATIONS = (
    Deviation(
        id="final-checkpoint",
        scale="all",
        what="the last checkpoint is evaluated; the paper picks the best ones on the test set",
        why="choosing on the test set inflates a score; published values are likely to be higher",
    ),
    Deviation(
        id="keyed-masks",
        scale="all",
        what="every mask has a generator of its own; the code reseeds the global one, so that its "
        "next rollouts depend on the last mask",
        why="a run must not depend on batch split, process count or interruptions",
    ),
    Deviation(
        id="padding-hidden",
        scale="paper",
        what="padding is neither attended to nor masked; the code pads prompts on the left with "
        "visible EOS tokens",
        why="a completion must not depend on who shares its batch",
    ),
    Deviation(
        id="dropout-off-in-rollouts",
        scale="paper",
        what="LoRA dropout is off while sampling; the code leaves it on. Both have it on in the "
        "log-probability passes",
        why="rollouts should come from the policy that is evaluated",
    ),
    Deviation(
        id="lora-names",
        scale="paper",
        what="o_proj, down_proj and gate_proj are listed as LoRA targets but LLaDA calls these "
        "layers attn_out, ff_out and ff_proj, so adapters sit on q, k, v and up_proj only "
        "(inferred from the released tensor names)",
        why="the list is kept as the code has it",
        switch="model.lora.target_modules",
    ),
    Deviation(
        id="own-wording",
        scale="paper",
        what="prompts use our own equivalent wording, not the text of the authors' repository",
        why="wording that others wrote is not copied; a verdict says which was used",
    ),
)
