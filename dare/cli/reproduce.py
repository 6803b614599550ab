"""``dare reproduce PAPER``: baseline, seeds, evaluation, verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dare.config import Origins, RunConfig
    from dare.reproductions import Reproduction
    from dare.training.experiment import Finished


@click.command(help="Reproduce a paper: baseline, training seeds, evaluation, verdict.")
@click.argument("paper")
@click.option("--model", default=None, help="Name, Hub id or folder  [default: the embedded one].")
@click.option("--task", default=None, help="One of the paper's tasks  [default: its first].")
@click.option("--scale", type=click.Choice(["tiny", "ci", "paper"]), default=None)
@click.option("--seeds", default=None, help="0-2 or 0,3,7  [default: the reproduction's].")
@click.option("--control", type=click.Choice(["none", "shuffled-rewards"]), default="none")
@click.option("--sampler", default=None, help="Evaluate with this sampler; see dare list samplers.")
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="Override a value.")
@click.option(
    "--config", "config_file", type=click.Path(dir_okay=False, path_type=Path), default=None,
    help="JSON file of overrides.",
)  # fmt: skip
@click.option("--runs", "root", type=click.Path(file_okay=False, path_type=Path), default="runs")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Workers  [default: cores].")
@click.option("--resume/--no-resume", default=True, help="Continue interrupted runs (default).")
@click.option("--dry-run", is_flag=True, help="Show settings, cost and files; touch nothing.")
@click.option(
    "--record-reference", is_flag=True,
    help="Pin these runs (10 seeds or more) as what later runs are judged against.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(context: click.Context, paper: str, **options: Any) -> int:
    """Run the reproduction; see ``dare reproduce --help``."""
    from dare import reproductions

    reproduction = reproductions.load(paper)
    config, origins = _resolve(reproduction, options)
    seeds = _seeds(reproduction, config, options["seeds"])
    if options["dry_run"]:
        _show_plan(reproduction, config, origins, seeds, options)
        return 0
    _require_means(reproduction, config, origins)
    return _run(reproduction, config, origins, seeds, options)


def _scale(model: str | None, given: str | None) -> str:
    """The scale asked for; without one, a full-size model means the paper's."""
    from dare.models import registry

    if given is not None:
        return given
    if model is None:
        return "tiny"
    return "tiny" if registry.describe(model).shape.parameters < 50e6 else "paper"


def _resolve(reproduction: Reproduction, options: dict[str, Any]) -> tuple[RunConfig, Origins]:
    from dare.config import environment_layer, file_layer, resolve
    from dare.training.experiment import parse_overrides

    layers: dict[str, dict[str, Any]] = {}
    if options["config_file"] is not None:
        layers[f"--config {options['config_file']}"] = file_layer(options["config_file"])
    layers["environment"] = environment_layer()
    layers["--set"] = parse_overrides(options["settings"])
    if options["control"] != "none":
        layers["--control"] = {"control": options["control"]}
    scale = _scale(options["model"], options["scale"])
    values = reproduction.configs(scale, options["task"], options["model"])
    # A flag is stronger than a file or a variable, also where it chose the values to start from.
    if options["model"] is not None:
        layers["--model"] = {"model.name": values["model"]["name"].value}
    if options["task"] is not None:
        layers["--task"] = {"task.name": values["task"]["name"].value}
    if options["sampler"] is not None:
        # The weakest layer: what else is set refines the sampler.
        layers = {"--sampler": _sampler(options["sampler"], values, layers)} | layers
    return resolve(values, layers)


def _sampler(
    name: str, values: dict[str, Any], layers: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The named sampler's settings for evaluation, at the length that is asked for."""
    from dare.config import flatten
    from dare.models import registry
    from dare.sampling.config import SamplerConfig
    from dare.sampling.presets import preset

    length = values["evaluation"]["gen_length"].value
    for layer in layers.values():
        length = layer.get("evaluation.gen_length", length)
    block = registry.describe(values["model"]["name"].value).block_length
    own = {} if block is None else {"block_length": block}
    config = preset(name, length, "bidirectional" if block is None else "block-causal", **own)
    chosen = {field: getattr(config, field) for field in SamplerConfig.model_fields}
    chosen["selection"] = config.selection.model_dump(mode="json")
    # The rule as a whole, in the place of another one, and its parts, which have an origin each.
    chosen |= flatten(chosen["selection"], "selection.")
    return {f"evaluation.{field}": value for field, value in chosen.items()}


def _seeds(reproduction: Reproduction, config: RunConfig, given: str | None) -> tuple[int, ...]:
    from dare.training.experiment import parse_seeds

    return parse_seeds(given) if given else tuple(reproduction.default_seeds[config.scale])


def _require_means(reproduction: Reproduction, config: RunConfig, origins: Origins) -> None:
    """Exit 3 before anything hopeless is started: no weights, or no device for this size."""
    from dare.cli._launch_plan import missing_means

    problem = missing_means(reproduction, config, origins)
    if problem is not None:
        raise problem


def _show_plan(
    reproduction: Reproduction,
    config: RunConfig,
    origins: Origins,
    seeds: tuple[int, ...],
    options: dict[str, Any],
) -> None:
    from dare.cli._launch_plan import plan_document, plan_lines
    from dare.cli._output import next_command, print_json, say

    if options["as_json"]:
        print_json(plan_document(reproduction, config, origins, seeds))
        return
    for line in plan_lines(reproduction, config, origins, seeds, options["root"]):
        say(line)
    next_command(f"dare reproduce {reproduction.name}", f"dare show {reproduction.name} --claims")


def _run(
    reproduction: Reproduction,
    config: RunConfig,
    origins: Origins,
    seeds: tuple[int, ...],
    options: dict[str, Any],
) -> int:
    from dare.cli._reproduce_report import show
    from dare.cli._run_progress import run_with_progress
    from dare.training.experiment import baseline_unit, seed_units

    units = [baseline_unit(config, origins), *seed_units(config, origins, seeds)]
    base, *runs = run_with_progress(
        units, options["root"], options["jobs"], resume=options["resume"]
    )
    if options["record_reference"]:
        _record_reference(reproduction, config, base, runs)
    return show(reproduction, config, base, runs, as_json=options["as_json"])


def _record_reference(
    reproduction: Reproduction, config: RunConfig, base: Finished, runs: list[Finished]
) -> None:
    from dare.cli._output import note
    from dare.results.expectation import from_runs, save_expectation

    expectation = from_runs(
        reproduction.name,
        config,
        (base.record, base.outcomes),
        [(run.record, run.outcomes) for run in runs],
    )
    note(f"reference of {len(runs)} seeds written to {save_expectation(expectation)}")
