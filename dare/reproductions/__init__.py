"""Reproductions: one module per paper in the top-level ``reproductions/`` tree.

    load("d1").claims            # the published numbers
    load("grpo").paper.id        # "d1": an algorithm's name finds the paper that brought it
    load("d1").resolve("tiny")   # (RunConfig, origin of every value)

A module is found because its file is there; nothing is registered.  It defines

    PAPER: Paper                       CLAIMS: tuple[Claim, ...]
    ALGORITHM: str                     DEVIATIONS: tuple[Deviation, ...]
    TASKS: {scale: (task, ...)}        DEFAULT_SEEDS: {scale: (seed, ...)}
    configs(scale, task=None, model=None) -> nested dict with Sourced leaves

and may define ALIASES (other names), HEADLINE (the claim id to aim at first) and RATES
({scale: dare.results.plan.Rate}, what an update costs and who measured it).

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dare._layout import tree
from dare.errors import DareError, UsageProblem, unknown_name

if TYPE_CHECKING:
    from dare.config import Origins, RunConfig
    from dare.results.claims import Claim, Deviation, Paper, Values
    from dare.results.plan import Rate

__path__.append(str(tree("reproductions")))

LISTING = "dare list papers"
SCALES = ("tiny", "ci", "paper")


@dataclass(frozen=True)
class Reproduction:
    """One paper, checked: the contents of its module under lower-case names."""

    name: str
    paper: Paper
    claims: tuple[Claim, ...]
    deviations: tuple[Deviation, ...]
    algorithm: str
    tasks: Mapping[str, tuple[str, ...]]
    default_seeds: Mapping[str, tuple[int, ...]]
    configs: Callable[..., Values]
    headline: str
    aliases: tuple[str, ...] = ()
    rates: Mapping[str, Rate] = field(default_factory=dict)

    def resolve(
        self,
        scale: str,
        task: str | None = None,
        model: str | None = None,
        layers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> tuple[RunConfig, Origins]:
        """The typed config of a scale and task, with every value's origin."""
        from dare.config import resolve

        return resolve(self.configs(scale, task, model), layers)

    def claim(self, claim_id: str) -> Claim:
        """The claim with this id; ``UsageProblem`` with the nearest one."""
        for claim in self.claims:
            if claim.id == claim_id:
                return claim
        known = [claim.id for claim in self.claims]
        raise unknown_name("claim", claim_id, known, f"dare show {self.name} --claims")


def names() -> tuple[str, ...]:
    """The papers, by their files; nothing is imported."""
    files = tree("reproductions").glob("[!_]*.py")
    return tuple(sorted(path.stem.replace("_", "-") for path in files))


def aliases() -> dict[str, str]:
    """Other name -> paper.  A module that cannot be loaded contributes none."""
    found: dict[str, str] = {}
    for name in names():
        try:
            reproduction = load(name)
        except DareError:
            continue
        for alias in reproduction.aliases:
            found.setdefault(alias, name)
    return found


def load(name: str) -> Reproduction:
    """The reproduction called ``name`` (a paper, or an alias), checked against the contract.

    Raises ``UsageProblem`` for an unknown name, with the nearest one, and for a module that
    breaks the contract.
    """
    wanted = name.lower().replace("_", "-")
    if wanted not in names():
        others = aliases()
        if wanted not in others:
            raise unknown_name("paper", name, [*names(), *others], LISTING)
        wanted = others[wanted]
    stem = wanted.replace("-", "_")
    try:
        module = import_module(f"dare.reproductions.{stem}")
    except DareError:
        raise
    except Exception as error:
        raise UsageProblem(
            f"reproductions/{stem}.py cannot be loaded",
            f"{type(error).__name__}: {error}",
            f"python -c 'import dare.reproductions.{stem}' shows where",
        ) from error
    return _checked(wanted, module)


def find_claim(claim_id: str) -> Claim:
    """The claim ``paper/[row/]task/length`` of any paper."""
    paper, slash, _ = claim_id.partition("/")
    if not slash:
        raise UsageProblem(
            f"'{claim_id}' is not a claim id",
            "an id is paper/[row/]task/length, such as d1/gsm8k/256",
            "dare show PAPER --claims",
        )
    return load(paper).claim(claim_id)


def _checked(name: str, module: ModuleType) -> Reproduction:
    """The module's contents, or a ``UsageProblem`` that says what is wrong with them."""
    problems = _contract_problems(name, module)
    if problems:
        raise UsageProblem(
            f"reproductions/{name.replace('-', '_')}.py is not a complete reproduction",
            "; ".join(problems),
            "compare it with reproductions/d1.py",
        )
    claims: tuple[Claim, ...] = module.CLAIMS
    return Reproduction(
        name=name,
        paper=module.PAPER,
        claims=claims,
        deviations=module.DEVIATIONS,
        algorithm=module.ALGORITHM,
        tasks=module.TASKS,
        default_seeds=module.DEFAULT_SEEDS,
        configs=module.configs,
        headline=getattr(module, "HEADLINE", claims[0].id if claims else ""),
        aliases=tuple(getattr(module, "ALIASES", ())),
        rates=getattr(module, "RATES", {}),
    )


def _contract_problems(name: str, module: ModuleType) -> list[str]:
    from dare.results.claims import Claim, Deviation, Paper

    problems = []
    single: dict[str, type] = {"PAPER": Paper, "ALGORITHM": str, "TASKS": dict}
    for attribute, kind in (single | {"DEFAULT_SEEDS": dict}).items():
        if not isinstance(getattr(module, attribute, None), kind):
            problems.append(f"{attribute} is not a {kind.__name__}")
    for attribute, kind in (("CLAIMS", Claim), ("DEVIATIONS", Deviation)):
        value = getattr(module, attribute, None)
        if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
            problems.append(f"{attribute} is not a tuple of {kind.__name__}")
    if not callable(getattr(module, "configs", None)):
        problems.append("configs is not a function")
    return problems or _content_problems(name, module)


def _content_problems(name: str, module: ModuleType) -> list[str]:
    problems = []
    if module.PAPER.id != name:
        problems.append(f"PAPER.id is '{module.PAPER.id}', the file is '{name}'")
    ids = [claim.id for claim in module.CLAIMS]
    repeated = sorted({claim_id for claim_id in ids if ids.count(claim_id) > 1})
    if repeated:
        problems.append(f"claim ids used twice: {', '.join(repeated)}")
    foreign = [claim_id for claim_id in ids if not claim_id.startswith(f"{name}/")]
    if foreign:
        problems.append(f"claim ids of another paper: {', '.join(foreign)}")
    headline = getattr(module, "HEADLINE", None)
    if headline is not None and headline not in ids:
        problems.append(f"HEADLINE '{headline}' is not one of the claims")
    unknown = sorted({*module.TASKS, *module.DEFAULT_SEEDS} - set(SCALES))
    if unknown:
        problems.append(f"unknown scales: {', '.join(unknown)}")
    if set(module.TASKS) != set(module.DEFAULT_SEEDS):
        problems.append("TASKS and DEFAULT_SEEDS name different scales")
    if not all(module.TASKS.values()) or not all(module.DEFAULT_SEEDS.values()):
        problems.append("a scale without tasks or without seeds")
    return problems
