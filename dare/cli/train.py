"""``dare train base``: make an embedded base checkpoint by its pinned recipe."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dare.errors import UsageProblem
    from dare.training.recipes import BaseRecipe


class _StepsCommand(click.Command):
    """Says in three parts what ``--steps`` takes; the parser only counts its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter:
            raise
        except click.UsageError as error:
            short = isinstance(error, click.BadOptionUsage) and error.option_name == "--steps"
            if not short:
                raise
            raise _bad_steps(" ".join(given).partition("--steps")[2].lstrip(" =")) from error


def _bad_steps(given: str) -> UsageProblem:
    from dare.errors import UsageProblem

    return UsageProblem(
        f"'--steps' cannot be '{given}'",
        "it takes two numbers, CLEAN and MIXED steps, each 0 or more and not both 0",
        "dare train base --steps 1000 150",
    )


@click.group(help="Train the base checkpoints of the embedded task.")
def command() -> None:
    pass


@command.command("base", cls=_StepsCommand)
@click.option("--model", default="tiny-llada", show_default=True, help="Embedded model to make.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="New folder for the checkpoint  [default: runs/base-MODEL].",
)
@click.option("--seed", type=int, default=None, help="Another seed than the recipe's.")
@click.option("--steps", type=int, nargs=2, default=None, help="CLEAN and MIXED steps instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def base(
    model: str, out: Path | None, seed: int | None, steps: tuple[int, int] | None, as_json: bool
) -> None:
    """Pre-train MODEL from scratch: two to five minutes of one core.

    Interrupted, it continues where it stopped when called again.  The result is compared with
    the shipped checkpoint.
    """
    from dare.errors import UsageProblem, unknown_name
    from dare.training.recipes import RECIPES

    model = model.lower()
    if model not in RECIPES:
        raise unknown_name("embedded model", model, tuple(RECIPES), "dare models")
    if steps is not None and (min(steps) < 0 or sum(steps) == 0):
        raise _bad_steps(f"{steps[0]} {steps[1]}")
    folder = out or Path("runs") / f"base-{model}"
    if (folder / "model.safetensors").exists():
        raise UsageProblem(
            f"{folder} already holds a checkpoint",
            "a finished checkpoint is never overwritten",
            "dare train base --out NEW_FOLDER",
        )
    facts = _train(model, folder, seed, steps)
    _show(facts, folder, as_json)


def _train(
    model: str, folder: Path, seed: int | None, steps: tuple[int, int] | None
) -> dict[str, Any]:
    from dare.cli._output import note, progress

    note("loading torch ...")
    import torch

    from dare.training.base import make_base

    torch.set_num_threads(1)
    recipe = _recipe(model, seed, steps)
    with progress() as bars, _deferred_interrupt() as interrupted:
        row = bars.add(f"base {model}", total=recipe.clean_steps + recipe.mixed_steps)

        def show(done: int, _: int, facts: dict[str, Any]) -> None:
            if row.completed == 0 and done > 1:
                note(f"continuing behind step {done - 1}")
                row.resume(done - 1)
            row.update(done, f"loss {facts['loss']:.3f}")
            if interrupted():
                raise KeyboardInterrupt

        return make_base(recipe, folder, show)


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is remembered, and told by the call that this gives, so that work can stop between
    two steps; the second one stops at once."""
    seen: list[int] = []

    def remember(number: int, _: object) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)


def _recipe(model: str, seed: int | None, steps: tuple[int, int] | None) -> BaseRecipe:
    from dare.training.recipes import RECIPES

    changes: dict[str, int] = {}
    if seed is not None:
        changes["seed"] = seed
    if steps is not None:
        changes |= {"clean_steps": steps[0], "mixed_steps": steps[1]}
    return RECIPES[model].model_copy(update=changes)


def _show(facts: dict[str, Any], folder: Path, as_json: bool) -> None:
    from dare.cli._output import next_command, print_json, say, table

    if as_json:
        print_json(facts | {"folder": str(folder)})
        return
    say(f"wrote {folder}")
    table(
        ["stage", "greedy accuracy on validation puzzles, %"],
        [
            ["clean (strong mode)", f"{100 * facts['clean_accuracy']:.1f}"],
            ["mixed (the base)", f"{100 * facts['accuracy']:.1f}"],
        ],
    )
    say("SHA-256 over the weight files' names and contents:")
    say(facts["weights_sha256"], indent=2)
    say(facts["against_shipped"])
    if facts["recipe"]["mixed_steps"]:
        say("The base is handicapped on purpose: half of the last demonstrations were weak.")
    next_command(f"dare reproduce d1 --model {folder}")
