"""``dare generate MODEL "prompt"``: sample from a checkpoint, and watch it denoise.

dare generate tiny-llada 1030040201434001
dare generate llada-8b "Why is the sky blue?" --sampler fast-dllm --agreement
echo 1030040201434001 | dare generate tiny-llada - --json
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dare.cli._shell import Invocation

if TYPE_CHECKING:
    from dare.cli._generation import Prompt, Sample, Session
    from dare.cli._generation_setup import Sampler
    from dare.sampling.canvas import Canvas

SLOW = 2.0  # seconds after which work without a view shows its progress


@click.command()
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Holds the prompt.")
@click.option("--system", metavar="TEXT", help="A system turn in front of the prompt.")
@click.option("--raw", is_flag=True, help="Feed the prompt as it is, without the chat template.")
@click.option(
    "-n", "--num-samples", type=click.IntRange(1, 1000), default=1, show_default=True,
    help="Completions; with a temperature they differ.",
)  # fmt: skip
@click.option("--sampler", metavar="PRESET", help="dare list samplers  [default: the model's].")
@click.option("--gen-length", type=click.IntRange(1), help="Tokens  [default: 128; tiny: 16].")
@click.option("--steps", type=click.IntRange(1), help="Denoising steps  [default: the sampler's].")
@click.option("--block-length", type=click.IntRange(1), help="Tokens of a block.")
@click.option("--temperature", type=click.FloatRange(0), help="0 takes the best token.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Nucleus.")
@click.option("--top-k", type=click.IntRange(1), help="Candidates.")
@click.option("--set", "settings", multiple=True, metavar="sampler.NAME=VALUE", help="Others.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), help="[default: as stored]")
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps, auto  [default: a GPU].")
@click.option("--agreement", is_flag=True, help="Also run the official sampler, and compare.")
@click.option("--keep-special", is_flag=True, help="Show everything, special tokens included.")
@click.option("--force", is_flag=True, help="Try a model that seems too large for the memory.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(context: click.Context, model: str, prompt: str | None, **options: Any) -> None:
    """Sample a completion of PROMPT (- for stdin) from MODEL.

    MODEL is a name, an alias, a Hub id or a checkpoint folder.  On a terminal the masks are seen
    filling in.  The text goes to stdout, what was measured to stderr; control characters in the
    text are shown as escapes.
    """
    from dare.cli._generation_setup import read_prompt

    text = read_prompt(prompt, options["file"])
    sampler, session = _prepare(model, options)
    encoded = _encode(session, text, sampler, options)
    samples = _sample_all(session, encoded, sampler, options)
    invocation = context.find_object(Invocation)
    words = invocation.argv if invocation is not None else ["generate", model, prompt or "-"]
    _conclude(session, encoded, sampler, samples, options, words)


def _prepare(model: str, options: dict[str, Any]) -> tuple[Sampler, Session]:
    """Everything that can be refused is refused before torch is loaded."""
    from dare.cli import _generation_setup as setup
    from dare.cli._generation import check_device, load, on_host
    from dare.cli._output import note
    from dare.config import environment_layer
    from dare.errors import UsageProblem
    from dare.models import registry
    from dare.training.experiment import parse_overrides

    if options["raw"] and options["system"] is not None:
        raise UsageProblem(
            "--raw and --system exclude each other",
            "a system turn needs the chat template",
            "put the text in front of the prompt, or leave out --raw",
        )
    check_device(options["device"])
    registry.locate(model)  # a folder that is not there is named as such
    facts = registry.describe(model)
    variables = {k: v for k, v in environment_layer().items() if k.startswith("sampler.")}
    settings = variables | parse_overrides(options["settings"])
    flags = ("gen_length", "steps", "block_length", "temperature", "top_p", "top_k")
    sampler = setup.choose_sampler(
        facts, options["sampler"], {name: options[name] for name in flags}, settings
    )
    folder = registry.require(model)
    dtype = options["dtype"] or setup.default_dtype(facts)
    if not options["force"] and on_host(options["device"]):
        setup.check_memory(facts, dtype, setup.free_memory(), "this machine")
    note(f"loading torch and {facts.name} ...")
    return sampler, load(model, facts, folder, dtype, options["device"], options["force"])


def _encode(session: Session, text: str, sampler: Sampler, options: dict[str, Any]) -> Prompt:
    from dare.cli._generation import encode
    from dare.cli._generation_setup import EXAMPLE, SMALL
    from dare.cli._output import note

    config = sampler.config
    block = config.block_length if config.block_origin == "sequence" else None
    prompt = encode(session, text, options["system"], options["raw"], config.gen_length, block)
    unknown = prompt.ids.count(session.tokenizer.unk_token_id)
    if unknown:
        example = f"; try: {EXAMPLE}" if session.facts.parameters < SMALL else ""
        note(f"{unknown} of {len(prompt.ids)} prompt tokens are unknown to this model{example}")
    if options["num_samples"] > 1 and not sampler.config.is_random:
        note("without randomness all samples are the same: add --temperature 0.7")
    return prompt


def _sample_all(
    session: Session, prompt: Prompt, sampler: Sampler, options: dict[str, Any]
) -> list[Sample]:
    """The samples one by one, each printed when it is done."""
    from dare.cli._output import note

    count, samples = options["num_samples"], []
    live = is_live(options["as_json"])
    for index in range(count):
        label = f"sample {index + 1}/{count}" if count > 1 else ""
        one = _one(session, prompt, sampler, options, index, label, live)
        samples.append(one)
        if not options["as_json"]:
            if label:
                note(label)
            _print_one(session, one, options, live)
    return samples


def is_live(as_json: bool) -> bool:
    """Whether there is a terminal to draw on, and nobody asked for plain text."""
    plain = as_json or os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return not plain and sys.stdout.isatty() and sys.stderr.isatty()


def _one(
    session: Session,
    prompt: Prompt,
    sampler: Sampler,
    options: dict[str, Any],
    index: int,
    label: str,
    live: bool,
) -> Sample:
    from dare.cli._generation import sample
    from dare.sampling.trajectory import Recorder

    config, seed = sampler.config, options["seed"]
    recorder = Recorder(config.gen_length)
    if live:
        from dare.cli._denoising import Denoising
        from dare.cli._output import error_console

        with Denoising(error_console(), recorder, _painter(session), config, label) as view:
            one = sample(session, prompt, config, seed, index, view, recorder.catch_up)
            if index == 0:
                view.replay(one.seconds)
        return one
    with _progress(label or "generating", config.gen_length) as watch:
        if not options["as_json"]:
            return sample(session, prompt, config, seed, index, watch)

        def record(canvas: Canvas) -> None:
            recorder(canvas)
            watch(canvas)

        return sample(session, prompt, config, seed, index, record, recorder.catch_up)


def _painter(session: Session) -> Any:
    from dare.cli._denoising import Painter

    return Painter(session.decode, set(session.special.stops))


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[Canvas], None]]:
    """A watcher that reports, now and then, how many tokens stand; silent for short work."""
    from dare.cli._output import progress

    with progress() as bars:
        row = bars.add(label, total)
        due = bars.clock() + SLOW

        def watch(canvas: Canvas) -> None:
            nonlocal due
            if bars.clock() >= due:
                row.update(int((canvas.commit_step[0] >= 0).sum()), note="tokens")
                due = bars.clock() + SLOW / 2

        yield watch


def _print_one(session: Session, one: Sample, options: dict[str, Any], live: bool) -> None:
    from dare.cli import _generation_report as report
    from dare.cli._output import error_console, note

    keep = options["keep_special"]
    if live and one.trajectory is not None:
        from dare.cli._denoising import legend

        tokens, decode = report.shown_part(session, one, keep)
        report.print_coloured(_painter(session).answer(one.trajectory, tokens, decode))
        error_console().print(legend(one.trajectory))
    else:
        report.print_text(report.text_of(session, one, keep))
    chat = bool(session.facts.chat)
    for line in report.measures(one, chat):
        note(line)


def _conclude(
    session: Session,
    prompt: Prompt,
    sampler: Sampler,
    samples: list[Sample],
    options: dict[str, Any],
    words: list[str],
) -> None:
    from dare.cli import _generation_report as report
    from dare.cli._generation import agreement_of
    from dare.cli._output import next_command, note, print_json

    found = None
    if options["agreement"]:
        note("running the official sampler ...")
        found = agreement_of(session, prompt, sampler, samples, options["seed"])
    if options["as_json"]:
        keep = options["keep_special"]
        print_json(report.document(session, prompt, sampler, options["seed"], samples, found, keep))
        return
    note(report.sampler_line(sampler, options["seed"]))
    if found is not None:
        note(report.agreement_line(found))
    next_command(*report.next_commands(words, sampler, found is not None))
