"""``dare models``: the named checkpoints, and what one of them is and costs.

dare models
dare models show llada-8b
dare models show runs/NAME/model --json
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dare.models.facts import Checkpoint
    from dare.models.shape import Shape

MEMORY = {
    "inference_bfloat16": "inference, bfloat16",
    "inference_float32": "inference, float32",
    "lora": "LoRA",
    "full": "full fine-tuning",
}


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the named checkpoints, or show one.

    WEIGHTS are parameters, for a mixture of experts in all / used by one token. PIN says how well
    the revision is attested; none: the Hub's current commit is taken.
    """
    if context.invoked_subcommand is None:
        from dare.cli.list import show_kinds

        show_kinds(["models"], Path("runs"), as_json)


@command.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(name: str, as_json: bool) -> None:
    """Show all that is known of NAME, and the memory it needs.

    NAME is a registered name, an alias, a Hub id or a checkpoint folder.
    """
    show_facts(facts(name), as_json)


def rows() -> list[dict[str, Any]]:
    """The named checkpoints, and whether their weights are here."""
    from dare.models import registry

    return [
        {
            "model": entry.name,
            "family": entry.family,
            "weights": _weights(entry),
            "parameters": entry.parameters,
            "active_parameters": entry.shape.active_parameters,
            "GB": _gigabytes(entry.bytes),
            "bytes": entry.bytes,
            "licence": entry.licence,
            "here": "yes" if registry.is_available(entry.name) else "no",
            "pin": pin(entry),
            "source": entry.repo_id or "embedded",
            "revision": entry.revision,
            "revision_evidence": entry.evidence,
            "aliases": list(entry.aliases),
        }
        for entry in registry.CHECKPOINTS
    ]


def facts(name: str) -> dict[str, Any]:
    """All that is known of a checkpoint, as one document.

    Raises ``UsageProblem`` for an unknown name and ``Missing`` for a folder that is not there.
    """
    from dataclasses import asdict

    from dare.models import registry
    from dare.models.memory import resting_memory

    folder = registry.locate(name)
    entry = registry.describe(name)
    memory = resting_memory(entry)
    return {
        "model": entry.name,
        "note": entry.note,
        "family": entry.family,
        "repository": _repository(entry),
        "revision": entry.revision,
        "revision_evidence": entry.evidence,
        "here": str(folder) if folder else None,
        "commit_here": registry.snapshot_revision(folder) if folder else None,
        "download": "" if folder else registry.download_line(entry),
        "parameters": entry.parameters,
        "active_parameters": entry.shape.active_parameters,
        "dimensions": _dimensions(entry.shape),
        "bytes": entry.bytes,
        "dtype": entry.dtype,
        "licence": entry.licence,
        "context": entry.shape.max_sequence_length or None,
        "chat": entry.chat,
        "mask_token_id": entry.mask_token_id,
        "eos_token_id": entry.eos_token_id,
        "pad_token_id": entry.pad_token_id,
        "eot_token_id": entry.eot_token_id,
        "block_length": entry.block_length,
        "sampler": entry.sampler,
        "protocol": entry.protocol,
        "aliases": list(entry.aliases),
        "memory": asdict(memory),
        "memory_counts": list(memory.counted()),
    }


def show_facts(document: dict[str, Any], as_json: bool) -> None:
    """Print what :func:`facts` found."""
    from dare.cli._output import heading, next_command, print_json, say, table

    if as_json:
        print_json(document)
        return
    special = ("memory", "memory_counts", "download", "here")
    lines = [
        (name.replace("_", " "), _text(name, value))
        for name, value in document.items()
        if name not in special and value not in ("", None, [])
    ]
    lines.append(("here", document["here"] or "no"))
    table(("", ""), lines, header=False, fixed=("",))
    say()
    heading("Memory at rest, on one device")
    amounts = [(label, size(document["memory"][name])) for name, label in MEMORY.items()]
    table(("", "bytes"), amounts, header=False, right=("bytes",))
    for text in document["memory_counts"]:
        say(text, indent=2)
    after = f"dare reproduce d1 --model {_quoted(document['model'])} --dry-run"
    next_command(after, *([document["download"]] if document["download"] else []))


def pin(entry: Checkpoint) -> str | None:
    """How well the revision is attested, in one word; None where there is nothing to pin."""
    return entry.evidence.partition(":")[0] if entry.repo_id else None


def size(amount: int) -> str:
    """Bytes as gigabytes or megabytes."""
    return f"{amount / 1e9:.1f} GB" if amount >= 1e8 else f"{amount / 1e6:.1f} MB"


def _weights(entry: Checkpoint) -> str:
    active = entry.shape.active_parameters
    every = _counted(entry.parameters)
    return every if active == entry.parameters else f"{every}/{_counted(active)}"


def _counted(amount: int) -> str:
    """Two digits or more: 148k, 8.0B, 103B."""
    if amount < 1e8:
        return f"{amount / 1e3:.0f}k"
    return f"{amount / 1e9:.1f}B" if amount < 1e10 else f"{amount / 1e9:.0f}B"


def _gigabytes(amount: int) -> str:
    if amount < 5e7:
        return "<0.1"
    return f"{amount / 1e9:.1f}" if amount < 1e11 else f"{amount / 1e9:.0f}"


def _dimensions(shape: Shape) -> str:
    text = (
        f"{shape.n_layers} layers of width {shape.d_model:,}, {shape.n_heads} heads of "
        f"{shape.head_size}, {shape.n_kv_heads} key-value heads, vocabulary {shape.vocab_size:,}"
    )
    experts = shape.experts
    if experts is None:
        return f"{text}, MLP {shape.mlp_hidden_size:,}"
    shared = f" and a shared one of {experts.shared_hidden_size:,}" * bool(
        experts.shared_hidden_size
    )
    return (
        f"{text}; {experts.layers} layers with {experts.count} experts of width "
        f"{experts.hidden_size:,}{shared}, {experts.per_token} for a token"
    )


def _repository(entry: Checkpoint) -> str | None:
    """Where it is published; None for a local folder."""
    from dare.models import registry

    if entry.name in registry.names():
        return entry.repo_id or "embedded in the package"
    return entry.repo_id


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    grouped = name in ("parameters", "active_parameters", "bytes", "context")
    return f"{value:,}" if grouped else str(value)


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)
