"""A comparison as text: a forest plot of the differences, Markdown, JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from dare.results.compare import ArmSummary, Comparison, Contrast

_ROOMY = 60


def render_forest(comparison: Comparison, width: int = 80) -> list[str]:
    """Lines of at most ``width`` (40 or more) columns, plain ASCII.

    Each row shows the difference ``o`` with its 95 % bootstrap interval ``[---]`` and, with
    several seeds, the t interval over seeds ``(   )``; ``|`` is no difference.  The numbers are
    the difference and the wider of the two, which the finding below the row goes by.
    """
    contrasts = comparison.contrasts
    names = [f"{c.a} - {c.b}" for c in contrasts]
    label_width = min(max(map(len, names)), width // 3)
    intervals = ["[{:+.1f}, {:+.1f}]".format(*c.paired.wider) for c in contrasts]
    numbers = [f"{c.paired.difference:+.1f}" for c in contrasts]
    findings = [
        ("" if len(name) <= label_width else f"{name}: ") + f"{c.wording}, p = {c.p_holm:.2g}"
        for name, c in zip(names, contrasts, strict=True)
    ]
    if width >= _ROOMY:
        numbers = [f"{n} {interval}" for n, interval in zip(numbers, intervals, strict=True)]
    else:
        findings = [
            f"{text} {interval}" for text, interval in zip(findings, intervals, strict=True)
        ]
    number_width = max(map(len, numbers))
    plot_width = width - label_width - number_width - 4
    extent = max(_reach(c) for c in contrasts) or 1.0
    lines = []
    for name, number, finding, contrast in zip(names, numbers, findings, contrasts, strict=True):
        plot = _bar(contrast, extent, plot_width)
        label = name if len(name) <= label_width else name[: label_width - 1] + "~"
        lines.append(f"{label:<{label_width}}  {plot}  {number:>{number_width}}".rstrip())
        lines += textwrap.wrap(finding, width, initial_indent="  ", subsequent_indent="  ")
    lines.append(" " * (label_width + 2) + _axis(extent, plot_width))
    return lines


def _reach(contrast: Contrast) -> float:
    d = contrast.paired
    ends = [d.lo, d.hi, d.seed_lo, d.seed_hi]
    return max(abs(end) for end in ends if end is not None)


def _column(value: float, extent: float, width: int) -> int:
    return round((value / extent + 1) / 2 * (width - 1))


def _bar(contrast: Contrast, extent: float, width: int) -> str:
    d = contrast.paired
    at_lo, at_hi = _column(d.lo, extent, width), _column(d.hi, extent, width)
    cells = [" "] * width
    for at in range(at_lo, at_hi + 1):
        cells[at] = "-"
    cells[_column(0.0, extent, width)] = "|"
    cells[at_lo], cells[at_hi] = "[", "]"
    if d.seed_lo is not None and d.seed_hi is not None:
        for value, mark in ((d.seed_lo, "("), (d.seed_hi, ")")):
            at = _column(value, extent, width)
            if cells[at] in " -|":
                cells[at] = mark
    cells[_column(d.difference, extent, width)] = "o"
    return "".join(cells)


def _axis(extent: float, width: int) -> str:
    left, right = f"{-extent:.1f}", f"{extent:+.1f}"
    cells = list(f"{left:<{width - len(right)}}{right}")
    cells[_column(0.0, extent, width)] = "0"
    return "".join(cells)


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
