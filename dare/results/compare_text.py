"""A comparison as text: a forest plot of the differences, Markdown, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dare.results.compare import ArmSummary, Comparison, Contrast

_LEAST_PLOT = 11


def render_forest(comparison: Comparison, width: int = 80) -> list[str]:
    """Lines of at most ``width`` (40 or more) columns, plain ASCII.

    Each row shows the difference ``o`` with its 95 % bootstrap interval ``[---]`` and, where
    seeds allow, the wider t interval over seeds ``(   )``; ``|`` is no difference.
    """
    contrasts = comparison.contrasts
    names = [f"{c.a} - {c.b}" for c in contrasts]
    label_width = min(max(map(len, names)), max(10, width // 3))
    numbers = [f"{c.paired.difference:+.1f} [{c.paired.lo:+.1f}, {c.paired.hi:+.1f}]"
               for c in contrasts]  # fmt: skip
    number_width = max(map(len, numbers))
    plot_width = max(_LEAST_PLOT, width - label_width - number_width - 4)
    extent = max(_reach(c) for c in contrasts) or 1.0
    lines = []
    for name, number, contrast in zip(names, numbers, contrasts, strict=True):
        plot = _bar(contrast, extent, plot_width)
        label = name if len(name) <= label_width else name[: label_width - 1] + "~"
        lines.append(f"{label:<{label_width}}  {plot}  {number:>{number_width}}".rstrip())
        lines += _wrapped(contrast.wording, width)
    lines += _scale(extent, plot_width, label_width)
    return lines


def _reach(contrast: Contrast) -> float:
    d = contrast.paired
    ends = [d.lo, d.hi, d.seed_lo, d.seed_hi]
    return max(abs(end) for end in ends if end is not None)


def _bar(contrast: Contrast, extent: float, width: int) -> str:
    d = contrast.paired

    def column(value: float) -> int:
        return round((value / extent + 1) / 2 * (width - 1))

    cells = [" "] * width
    for at in range(column(d.lo), column(d.hi) + 1):
        cells[at] = "-"
    cells[column(0.0)] = "|"
    cells[column(d.lo)], cells[column(d.hi)] = "[", "]"
    if d.seed_lo is not None and d.seed_hi is not None:
        for value, mark in ((d.seed_lo, "("), (d.seed_hi, ")")):
            if cells[column(value)] in " -|":
                cells[column(value)] = mark
    cells[column(d.difference)] = "o"
    return "".join(cells)


def _scale(extent: float, plot_width: int, label_width: int) -> list[str]:
    left, right = f"{-extent:.1f}", f"{extent:+.1f}"
    middle = "0"
    gap = plot_width - len(left) - len(right) - len(middle)
    before = max(1, plot_width // 2 - len(left))
    axis = left + " " * before + middle + " " * max(1, gap - before) + right
    return [" " * (label_width + 2) + axis]


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ")


def to_markdown(comparison: Comparison) -> str:
    """Arms, contrasts and notes as Markdown tables."""
    c = comparison
    lines = [
        f"Metric: {c.metric}, points; {c.n_items} problems; seeds {_list(c.seeds)}.",
        "",
        "| arm | mean | 95 % interval | per seed | " + " | ".join(c.arms[0].compute) + " |",
        "|" + "---|" * (4 + len(c.arms[0].compute)),
        *(_arm_row(arm) for arm in c.arms),
        "",
        "| contrast | difference | 95 % interval, seeds and problems | 95 % t over seeds | "
        "per seed | p (Holm) | sign-flip p | finding |",
        "|" + "---|" * 8,
        *(_contrast_row(contrast) for contrast in c.contrasts),
        "",
        *(f"- {note}" for note in footer(c)),
    ]
    return "\n".join(lines) + "\n"


def footer(comparison: Comparison) -> list[str]:
    """Notes, what could have been detected, and the sheet."""
    detectable = ", ".join(
        f"{c.a} - {c.b}: {c.paired.detectable:.1f}" for c in comparison.contrasts
    )
    sheet = comparison.sheet
    return [
        f"smallest difference seen 80 % of the time (points): {detectable}",
        *([f"locked sheet {sheet[:12]}"] if sheet else []),
        *comparison.notes,
    ]


def _arm_row(arm: ArmSummary) -> str:
    compute = " | ".join(f"{amount:,.0f}" for amount in arm.compute.values())
    return (
        f"| {_cell(arm.name)} | {arm.mean:.2f} | {arm.lo:.2f} to {arm.hi:.2f} ({arm.interval}) "
        f"| {_list([f'{value:.2f}' for value in arm.values])} | {compute} |"
    )


def _contrast_row(contrast: Contrast) -> str:
    d = contrast.paired
    over_seeds = "-" if d.seed_lo is None else f"{d.seed_lo:+.2f} to {d.seed_hi:+.2f}"
    flips = "-" if d.sign_flip_p is None else f"{d.sign_flip_p:.3g} (least {d.smallest_p:.3g})"
    return (
        f"| {_cell(contrast.a)} - {_cell(contrast.b)} | {d.difference:+.2f} "
        f"| {d.lo:+.2f} to {d.hi:+.2f} | {over_seeds} "
        f"| {_list([f'{value:+.2f}' for value in d.per_seed])} | {contrast.p_holm:.3g} "
        f"| {flips} | {_cell(contrast.wording)} |"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _list(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def to_json(comparison: Comparison) -> str:
    """The whole comparison as one JSON document."""
    return json.dumps(comparison.to_dict(), indent=2, allow_nan=False)
