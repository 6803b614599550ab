"""What ``dare check`` asserts of every reproduction module.

1. metadata      the module meets its contract, claim ids are unique, every claim has a source
2. round trip    every config survives JSON and keeps its digest
3. trajectory    20 updates give the same losses and weights however the batch is cut, ordered
                 or padded, and after an interruption (float32 rounding allowed; resuming exact)
4. learning      one fresh seed of the tiny run falls into the prediction interval of the
                 recorded reference seeds; "worse" and "suspiciously better" both fail

Only the third and fourth import torch, the fourth in worker processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dare.config import RunConfig
from dare.errors import DareError
from dare.reproductions import Reproduction

# Float32: the order of sums differs, the arithmetic does not (measured: below 1e-6).
LOSS_TOLERANCE, WEIGHT_TOLERANCE = 1e-5, 1e-4
FRESH_SEED = 1000


@dataclass(frozen=True)
class CheckResult:
    """One check of one paper; ``detail`` says what was measured."""

    paper: str
    name: str
    passed: bool
    detail: str
    seconds: float


def timed(paper: str, name: str, check: Callable[[], tuple[bool, str]]) -> CheckResult:
    """Run one check; an error of ours or of the module is a failed check with its reason."""
    started = time.monotonic()
    try:
        passed, detail = check()
    except DareError as problem:
        passed, detail = False, str(problem)
    except Exception as problem:
        passed, detail = False, f"{type(problem).__name__}: {problem}"
    return CheckResult(paper, name, passed, detail, time.monotonic() - started)


def metadata(reproduction: Reproduction) -> tuple[bool, str]:
    """Claims and deviations are complete and distinct."""
    claims = [claim.id for claim in reproduction.claims]
    deviations = [deviation.id for deviation in reproduction.deviations]
    doubled = sorted(
        {name for name in claims + deviations if (claims + deviations).count(name) > 1}
    )
    unsourced = [claim.id for claim in reproduction.claims if not claim.source]
    detail = f"{len(claims)} claims, {len(deviations)} deviations"
    if doubled or unsourced:
        detail += f"; doubled: {doubled}; without source: {unsourced}"
    return not doubled and not unsourced and bool(claims), detail


def round_trip(reproduction: Reproduction) -> tuple[bool, str]:
    """Every scale and task resolves, survives JSON, and names options and a protocol that exist."""
    from dare.algorithms import config_class
    from dare.tasks import protocols

    count = 0
    for scale, tasks in reproduction.tasks.items():
        for task in tasks:
            config, _ = reproduction.resolve(scale, task)
            again = RunConfig.model_validate_json(config.model_dump_json())
            if again.digest() != config.digest():
                return False, f"{scale}/{task} changes in a round trip"
            config_class(config.algorithm)(**config.algorithm_options)
            protocols.get(config.task.name, config.task.protocol)
            count += 1
    return count > 0, f"{count} configurations"


def trajectories(reproduction: Reproduction, folder: Path) -> Iterator[CheckResult]:
    """The ci-scale run in every variant that must not matter, against the plain one."""
    from dare.training.equivalence import VARIANTS, Trajectory, trajectory

    config, _ = reproduction.resolve("ci")
    plain: list[Trajectory] = []

    def first() -> tuple[bool, str]:
        plain.append(trajectory(config, "plain", folder / "plain"))
        losses = plain[0].losses
        finite = all(abs(loss) < 1e6 for loss in losses)
        return finite, f"{len(losses)} rollout steps, last loss {losses[-1]:.5f}"

    yield timed(reproduction.name, "trajectory/plain", first)
    for variant in VARIANTS[1:]:

        def compare(variant: str = variant) -> tuple[bool, str]:
            if not plain:
                return False, "the plain trajectory failed"
            other = trajectory(config, variant, folder / variant)
            return _same(plain[0], other, exact=variant == "resumed")

        yield timed(reproduction.name, f"trajectory/{variant}", compare)


def _same(plain: object, other: object, exact: bool) -> tuple[bool, str]:
    from dare.training.equivalence import Trajectory

    assert isinstance(plain, Trajectory)
    assert isinstance(other, Trajectory)
    if exact:
        tail = plain.losses[-len(other.losses) :]
        same = tail == other.losses and bool((plain.weights == other.weights).all())
        return same, "bit for bit" if same else "differs from the uninterrupted run"
    loss, weight = plain.distance(other)
    passed = loss <= LOSS_TOLERANCE and weight <= WEIGHT_TOLERANCE
    return passed, f"largest difference: loss {loss:.1e}, weights {weight:.1e} of the largest"
