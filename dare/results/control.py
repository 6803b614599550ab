"""``control/1``: rewards shuffled inside their group must teach nothing.

The control keeps every number of a run (prompts, samples, update sizes, reward values) and
breaks one thing: which completion earned which reward.  A gain that survives it did not come
from the reward.  Update noise alone damages a small model by an amount that varies much with
the seed, so only the upper side is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean

from dare.results.paired import item_scores, paired_difference
from dare.results.record import Outcome, Record
from dare.results.verdict import Verdict, distinct_runs, points

RULE = "control/1"
ALLOWED_GAIN = 5.0  # points

Scored = tuple[Record, Sequence[Outcome]]


def check_control(runs: Sequence[Scored], base: Scored, metric: str = "accuracy") -> Verdict:
    """REPRODUCED when no seed gains ``ALLOWED_GAIN`` points over the untrained checkpoint."""
    distinct, notes = distinct_runs([record for record, _ in runs])
    start = points(base[0].metric(metric))
    values = [run.value(metric) for run in distinct]
    gains = [value - start for value in values]
    passed = max(gains) < ALLOWED_GAIN
    shown = ", ".join(f"{gain:+.2f}" for gain in gains)
    outcome = "no gain, as it must be" if passed else "a gain without information in the rewards"
    return Verdict(
        outcome="REPRODUCED" if passed else "FAILED",
        rule=RULE,
        claim="shuffled rewards teach nothing",
        sentence=f"{'PASSED' if passed else 'FAILED'} ({RULE}): {outcome}; per seed {shown} points "
        f"(allowed: below {ALLOWED_GAIN:+.0f}).",
        exit_status=0 if passed else 1,
        numbers={"baseline": start, "values": values, "gains": gains, "mean_gain": fmean(gains)},
        notes=tuple(notes),
    )


def without_reference(
    runs: Sequence[Scored],
    base: Scored,
    why: str,
    metric: str = "accuracy",
    expects_gain: bool = True,
) -> Verdict:
    """What can be said where no reference seeds are recorded: the gain, and no verdict.

    The exit status is 0 when the gain over the untrained checkpoint is significant over the
    problems (and over the seeds, where there are several), else 4.
    """
    distinct, notes = distinct_runs([record for record, _ in runs])
    outcomes = {record.id: lines for record, lines in runs}
    start = points(base[0].metric(metric))
    values = [run.value(metric) for run in distinct]
    trained = [item_scores(outcomes[run.records[0].id], metric) for run in distinct]
    paired = paired_difference(trained, [item_scores(base[1], metric)])
    gain = fmean(values) - start
    shown = gain > 0 and paired.p < 0.05
    found = "significant" if shown else "not significant"
    return Verdict(
        outcome="INCONCLUSIVE",
        rule="none",
        claim="no recorded reference",
        sentence=f"NO VERDICT: {why}; measured gain {gain:+.2f} points over the base"
        + (f", {found} (p = {paired.p:.2g})." if expects_gain else "."),
        exit_status=0 if shown and expects_gain else 4,
        numbers={
            "baseline": start,
            "values": values,
            "gain": gain,
            "gain_over_problems": asdict(paired),
        },
        notes=tuple(notes),
    )
