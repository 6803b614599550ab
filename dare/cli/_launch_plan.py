"""What a reproduction would take, and what to say when it cannot run here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dare.errors import Missing

if TYPE_CHECKING:
    from dare.config import Origins, RunConfig
    from dare.reproductions import Reproduction
    from dare.results.plan import Plan


def _plan(reproduction: Reproduction, config: RunConfig) -> Plan:
    from dare.models import registry
    from dare.results.plan import estimate

    facts = registry.describe(config.model.name)
    # The rate was measured on the reproduction's own model; another one has another.
    measured = reproduction.resolve(config.scale)[0].model.name
    rate = reproduction.rates.get(config.scale) if config.model.name == measured else None
    return estimate(config, facts, rate=rate)


def plan_lines(
    reproduction: Reproduction,
    config: RunConfig,
    origins: Origins,
    seeds: tuple[int, ...],
    root: Path,
) -> list[str]:
    """The screen of ``--dry-run``."""
    from dare.results.plan import render_plan

    name = f"{root}/<date>-{reproduction.name}-{config.task.name}-<hash8>/"
    files = [
        f"{name}{file}  (one folder per seed)"
        for file in ("config.json", "events.jsonl", "outcomes.jsonl", "record.json", "model/")
    ]
    head = [
        f"{reproduction.paper.title}",
        f"scale {config.scale}, task {config.task.name}, model {config.model.name}, "
        f"seeds {', '.join(map(str, seeds))}",
        f"config digest {config.digest()[:16]}",
        "",
    ]
    lines = head + render_plan(_plan(reproduction, config), config, origins, files)
    if config.scale == "paper":
        lines += ["", "Launch", f"  {launch_command(config)}"]
    return lines


def launch_command(config: RunConfig) -> str:
    """The exact torchrun line on one machine with eight devices."""
    from dare.results.plan import torchrun_line

    return torchrun_line(config)


def plan_document(
    reproduction: Reproduction, config: RunConfig, origins: Origins, seeds: tuple[int, ...]
) -> dict[str, Any]:
    """The same as one JSON document."""
    from dataclasses import asdict

    return {
        "paper": reproduction.name,
        "config": config.model_dump(mode="json"),
        "config_digest": config.digest(),
        "origins": origins,
        "seeds": list(seeds),
        "plan": asdict(_plan(reproduction, config)),
        "launch": launch_command(config) if config.scale == "paper" else None,
    }


def missing_means(
    reproduction: Reproduction, config: RunConfig, origins: Origins
) -> Missing | None:
    """Why this cannot run here, with the plan and the alternatives; None when it can."""
    from dare.cli._output import duration
    from dare.models import registry

    lacking = []
    if registry.locate(config.model.name) is None:
        weights = registry.absent(config.model.name)
        lacking.append(f"weights: {weights.why}; {weights.help}")
    if config.scale == "paper" and not _has_accelerator():
        lacking.append("device: no CUDA GPU here; the paper used 8 x A100-80G")
    if not lacking:
        return None
    plan = _plan(reproduction, config)
    gigabytes = (plan.memory.lora or plan.memory.full) / 1e9
    cost = (
        f"{plan.updates:,} updates, {plan.completions:,} completions, {plan.nfe_rollout:,} rollout "
        f"forwards, {gigabytes:.0f} GB per process"
    )
    if plan.seconds is not None:
        cost += f", about {duration(plan.seconds)} ({plan.time_basis})"
    paper, model = reproduction.name, config.model.name
    why = "\n        ".join([*lacking, f"plan: {cost}"])
    help_text = "\n        ".join(
        [
            f"where 8 GPUs and the weights are: dare reproduce {paper} --model {model} --dry-run "
            "--json > plan.json",
            launch_command(config),
            f"here and now, minutes on a laptop: dare reproduce {paper}",
            "here and now, the paper's own outputs: dare rescore FILE --task gsm8k --protocol d1",
        ]
    )
    return Missing(
        f"'{paper}' at {config.scale} scale on {model} cannot run on this machine", why, help_text
    )


def _has_accelerator() -> bool:
    """Whether a CUDA device is visible, without importing torch."""
    return bool(list(Path("/proc/driver/nvidia/gpus").glob("*"))) or Path("/dev/nvidia0").exists()
