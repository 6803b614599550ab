"""What ``dare generate`` prints: the text on stdout, its measures on stderr, or one document."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dare.cli._generation_setup import Sampler
from dare.cli._model_text import Decode, encodable, safe

if TYPE_CHECKING:
    from rich.text import Text

    from dare.cli._generation import Prompt, Sample, Session
    from dare.sampling.agreement import Agreement
    from dare.sampling.trajectory import Trajectory


def shown_part(session: Session, sample: Sample, keep_special: bool) -> tuple[list[int], Decode]:
    """The tokens to show and how: up to the first stop token, or everything.

    Special tokens are left out, unless they are asked for or masks among them are left over.
    """
    if keep_special:
        return sample.tokens, session.decode
    decode = session.decode_plain if sample.finished else session.decode
    return sample.tokens[: sample.answer], decode


def text_of(session: Session, sample: Sample, keep_special: bool) -> str:
    """The answer as one string."""
    tokens, decode = shown_part(session, sample, keep_special)
    return decode(tokens)


def print_text(text: str) -> None:
    """The model's text on stdout, not wrapped, with escapes for what could drive a terminal."""
    sys.stdout.write(encodable(safe(text), sys.stdout.encoding) + "\n")
    sys.stdout.flush()


def print_coloured(text: Text) -> None:
    """The same, already safe, in its colours."""
    from dare.cli._output import console

    console().print(text, soft_wrap=True)


def measures(sample: Sample, chat: bool) -> list[str]:
    """What is said about one completion; ``chat`` if its end should be marked."""
    length = len(sample.tokens)
    end = "up to the stop token" if sample.stopped else "no stop token"
    share = f", {sample.nfe / sample.answer:.2f} per token" if sample.answer else ""
    said = [
        f"{sample.answer} tokens ({end}) in {sample.seconds:.2f} s of generation: "
        f"{sample.tokens_per_second:.1f} tokens/s",
        f"{sample.nfe} forwards{share}",
    ]
    if not sample.finished:
        said.append(
            f"NOT FINISHED: {sample.masks} of {length} positions still hold a mask; "
            "give it more --steps"
        )
    elif chat and not sample.stopped:
        said.append(f"it may be cut off: --gen-length {2 * length} leaves more room")
    return said


def sampler_line(sampler: Sampler, seed: int) -> str:
    """Which sampler it was, and how it departs from the official one of the model's family."""
    kind = f"approximate: {sampler.approximate}" if sampler.approximate else "exact"
    random = f", seed {seed}" if sampler.config.is_random else ", no randomness"
    return f"sampler {sampler.name} ({kind}){random}"


def agreement_line(found: Agreement) -> str:
    """How far the sampler agrees with the official one, and what it saves."""
    return (
        f"agreement with the official sampler: {100 * found.mean:.1f} % of the tokens; "
        f"{found.nfe:.0f} forwards against {found.exact_nfe:.0f}, ratio {found.nfe_ratio:.2f}"
    )


def next_commands(words: Sequence[str], sampler: Sampler, agreed: bool) -> list[str]:
    """What to do next; ``words`` are those of this call, behind ``dare``."""
    option = "--agreement" if sampler.approximate and not agreed else "--json"
    again = shlex.join(["dare", *words, option])
    # A command of many lines is nothing to copy.
    return [again, "dare list samplers"] if len(again) <= 400 else ["dare list samplers"]


def document(
    session: Session,
    prompt: Prompt,
    sampler: Sampler,
    seed: int,
    samples: Sequence[Sample],
    found: Agreement | None,
    keep_special: bool = False,
) -> dict[str, Any]:
    """Everything, as one JSON document."""
    from dare.models import registry
    from dare.models.weights import weights_sha256

    facts = session.facts
    return {
        "model": {
            "name": facts.name,
            "family": facts.family,
            "revision": registry.snapshot_revision(session.folder) or facts.revision,
            "weights_sha256": weights_sha256(session.folder),
            "dtype": session.dtype,
            "device": session.device,
        },
        "prompt": asdict(prompt),
        "sampler": {
            "name": sampler.name,
            "exact": not sampler.approximate,
            "approximate": sampler.approximate,
            "config": sampler.config.model_dump(mode="json"),
        },
        "seed": seed,
        "agreement": None if found is None else _agreement(found),
        "samples": [_sample(session, sample, keep_special) for sample in samples],
    }


def _agreement(found: Agreement) -> dict[str, Any]:
    return asdict(found) | {"mean": found.mean, "nfe_ratio": found.nfe_ratio}


def _sample(session: Session, sample: Sample, keep_special: bool) -> dict[str, Any]:
    out = sample.generation
    return {
        "index": sample.index,
        "text": text_of(session, sample, keep_special),
        "answer_tokens": sample.answer,
        "tokens": sample.tokens,
        "token_texts": [session.decode([token]) for token in sample.tokens],
        "commit_step": out.commit_step[0].tolist(),
        "confidence": [round(each, 6) for each in out.confidence[0].tolist()],
        "nfe": sample.nfe,
        "finished": sample.finished,
        "stopped": sample.stopped,
        "seconds": sample.seconds,
        "tokens_per_second": sample.tokens_per_second,
        "trajectory": rounds_of(sample.trajectory) if sample.trajectory is not None else [],
    }


def rounds_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """One object per round: what it committed, edited and masked again."""
    return [
        {
            "round": number,
            "committed": [{"position": at, "token": token} for at, token in each.committed.items()],
            "edited": [
                {"position": at, "before": before, "token": after}
                for at, (before, after) in each.edited.items()
            ],
            "remasked": [{"position": at, "token": token} for at, token in each.remasked.items()],
        }
        for number, each in enumerate(trajectory.rounds, 1)
    ]
