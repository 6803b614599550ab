"""The work of ``dare generate``: load a checkpoint, encode the prompt, sample completions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dare.cli._generation_setup import Sampler, check_memory
from dare.errors import Missing, UsageProblem

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from dare.diffusion.keys import Key
    from dare.models.base import DiffusionLM
    from dare.models.facts import Checkpoint
    from dare.sampling.agreement import Agreement
    from dare.sampling.candidates import SpecialTokens
    from dare.sampling.canvas import Generation, Watch
    from dare.sampling.config import SamplerConfig
    from dare.sampling.trajectory import Trajectory

DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?|mps|auto")


@dataclass(frozen=True)
class Prompt:
    """What was asked, the text that it became, and its token ids."""

    text: str
    system: str | None
    raw: bool
    rendered: str
    ids: list[int]


@dataclass(frozen=True)
class Session:
    """A loaded checkpoint."""

    facts: Checkpoint
    folder: Path
    dtype: str
    device: str
    model: DiffusionLM
    tokenizer: PreTrainedTokenizerFast
    special: SpecialTokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of ``tokens``, special ones included."""
        return self._decode(tokens, False)

    def decode_plain(self, tokens: Sequence[int]) -> str:
        """The text of ``tokens`` without special ones."""
        return self._decode(tokens, True)

    def _decode(self, tokens: Sequence[int], skip: bool) -> str:
        decode = self.tokenizer.decode
        return str(
            decode(list(tokens), skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        )


@dataclass(frozen=True)
class Sample:
    """One completion of N tokens.

    answer: how many stand before the first stop token.  masks: positions that still hold one.
    seconds: of generation alone.
    trajectory: None unless the rounds were recorded.
    """

    index: int
    generation: Generation
    tokens: list[int]
    answer: int
    nfe: int
    masks: int
    seconds: float
    trajectory: Trajectory | None

    @property
    def finished(self) -> bool:
        return not self.masks

    @property
    def stopped(self) -> bool:
        """Whether there is a stop token."""
        return self.answer < len(self.tokens)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the answer, without what stands at and behind the stop token."""
        return self.answer / self.seconds if self.seconds > 0 else 0.0


def check_device(device: str | None) -> None:
    """Raise ``UsageProblem`` for a word that names no kind of device."""
    if device is not None and not DEVICE.fullmatch(device):
        raise UsageProblem(
            f"'--device' cannot be '{device}'",
            "known: cpu, cuda, cuda:1, mps, auto (layers spread over all GPUs)",
            "--device cpu",
        )


def load(
    name: str, facts: Checkpoint, folder: Path, dtype: str, device: str | None, force: bool
) -> Session:
    """The checkpoint ``name`` on ``device``, by default a GPU if there is one.

    Raises ``Missing`` for a device that is not here, or too small unless ``force``.
    """
    from dare.models.loading import load_model, load_tokenizer
    from dare.models.tokens import special_ids

    tokenizer = load_tokenizer(name)
    chosen = _present(device)
    placing: dict[str, Any] = {"device": chosen}
    if chosen.startswith("cuda"):
        # Straight to the GPU: the host's memory need not hold the weights.
        placing = {"device_map": {"": chosen}}
        if not force:
            check_memory(facts, dtype, _free_on(chosen), chosen)
    elif chosen == "auto":
        placing = {"device_map": "auto"}
    model = load_model(name, dtype, **placing)
    special = special_ids(model.config, tokenizer, facts.family, name)
    return Session(facts, folder, dtype, chosen, model, tokenizer, special)


def _present(device: str | None) -> str:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device is None:
        return "cuda:0" if gpus else "cpu"
    kind, _, number = device.partition(":")
    here = {"cuda": int(number or 0) < gpus, "auto": gpus > 0}.get(kind, True)
    if kind == "mps":
        here = torch.backends.mps.is_available()
    if not here:
        raise Missing(
            f"there is no device '{device}' here",
            f"torch {torch.__version__} sees {gpus} CUDA devices",
            "leave out --device, or: --device cpu",
        )
    return f"cuda:{int(number or 0)}" if kind == "cuda" else device


def _free_on(device: str) -> int:
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def on_host(device: str | None) -> bool:
    """Whether the weights will lie in the machine's own memory, as far as that can be told
    before torch is loaded."""
    from dare.cli._launch_plan import _has_accelerator

    return device in ("cpu", "mps") or (device is None and not _has_accelerator())


def encode(
    session: Session, text: str, system: str | None, raw: bool, length: int, block: int | None
) -> Prompt:
    """The prompt as the model reads it: through its chat template, unless ``raw``; ``block`` is
    the block length of a block-causal model.

    Raises ``UsageProblem`` when prompt and completion do not fit into the context.
    """
    from dare.models.tokens import chat_text

    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": text})
    rendered = text if raw else chat_text(session.tokenizer, messages)
    ids = list(session.tokenizer(rendered, add_special_tokens=False, verbose=False)["input_ids"])
    context = session.facts.shape.max_sequence_length
    # A block-causal model fills whole blocks, of which the prompt takes part.
    room = (context - context % block if block else context) - len(ids)
    if context and length > room:
        raise UsageProblem(
            "prompt and completion do not fit into the context",
            f"{len(ids)} + {length} tokens; '{session.facts.name}' was made for {context}",
            f"--gen-length {room} or less" if room > 0 else "shorten the prompt",
        )
    return Prompt(text, system, raw, rendered, ids)


def key_of(seed: int, index: int) -> Key:
    """The randomness of one sample, whatever the other samples are."""
    from dare.diffusion.keys import RunKey

    return RunKey(seed).at("eval", sample=index)


def sample(
    session: Session,
    prompt: Prompt,
    config: SamplerConfig,
    seed: int,
    index: int,
    watch: Watch | None,
    trajectory: Callable[[], Trajectory] | None = None,
) -> Sample:
    """One completion; ``trajectory`` gives its rounds when it is done."""
    from dare.sampling.decode import generate

    began = time.perf_counter()
    out = generate(
        session.model, [prompt.ids], config, [key_of(seed, index)], session.special, watch
    )
    tokens: list[int] = out.tokens[0].tolist()  # waits for the device
    seconds = time.perf_counter() - began
    stops = set(session.special.stops)
    answer = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
    return Sample(
        index=index,
        generation=out,
        tokens=tokens,
        answer=answer,
        nfe=int(out.nfe[0]),
        masks=tokens.count(session.special.mask),
        seconds=seconds,
        trajectory=trajectory() if trajectory is not None else None,
    )


def agreement_of(
    session: Session,
    prompt: Prompt,
    sampler: Sampler,
    samples: Sequence[Sample],
    seed: int,
) -> Agreement:
    """How far ``samples`` agree with the official sampler under the same seeds."""
    from dare.sampling.agreement import Agreement, compare
    from dare.sampling.decode import generate

    keys = [key_of(seed, one.index) for one in samples]
    each = [
        compare(
            one.generation,
            generate(session.model, [prompt.ids], sampler.reference, [key], session.special),
            session.special,
        )
        for one, key in zip(samples, keys, strict=True)
    ]
    count = len(each)
    return Agreement(
        rows=tuple(row for one in each for row in one.rows),
        identical=sum(one.identical for one in each) / count,
        nfe=sum(one.nfe for one in each) / count,
        exact_nfe=sum(one.exact_nfe for one in each) / count,
    )
