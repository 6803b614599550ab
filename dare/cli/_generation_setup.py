"""What ``dare generate`` settles before anything heavy is imported: prompt, sampler, memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dare.errors import Missing, UsageProblem, unknown_name

if TYPE_CHECKING:
    from dare.models.facts import Checkpoint
    from dare.sampling.config import SamplerConfig
    from dare.sampling.presets import Preset

LONGEST_PROMPT = 4_000_000  # bytes; no context is longer
SMALL = 50e6  # parameters; below it is an embedded model, or one trained from it
EXAMPLE = "dare generate tiny-llada 1030040201434001"


@dataclass(frozen=True)
class Sampler:
    """A named sampler as it was asked for.

    reference: the sampler of the checkpoint's family that it is measured against.  approximate:
    how it departs from that, "" if it does not.
    """

    name: str
    config: SamplerConfig
    reference: SamplerConfig
    approximate: str


# ---- the prompt ----------------------------------------------------------------------------


def read_prompt(argument: str | None, file: Path | None) -> str:
    """The prompt: the argument itself, stdin for "-", or a file; without the last line break."""
    if (argument is None) == (file is None):
        what = "there is no prompt" if file is None else "there are two prompts"
        raise UsageProblem(
            what, "give it as the second argument, as - for stdin, or with --file", EXAMPLE
        )
    if file is not None:
        try:
            with file.open("rb") as handle:
                content = handle.read(LONGEST_PROMPT + 1)
        except (OSError, ValueError) as error:
            raise UsageProblem(
                f"cannot read the prompt from {file}", str(error), EXAMPLE
            ) from error
        return _text(content, str(file))
    if argument == "-":
        return _text(_bytes_of(sys.stdin), "stdin")
    assert argument is not None
    return _text(os.fsencode(argument), "the command line", whole=True)


def _bytes_of(stream: IO[str]) -> bytes:
    return stream.buffer.read(LONGEST_PROMPT + 1)  # type: ignore[attr-defined]


def _text(content: bytes, source: str, whole: bool = False) -> str:
    if len(content) > LONGEST_PROMPT:
        raise UsageProblem(
            f"the prompt from {source} is longer than {LONGEST_PROMPT:,} bytes",
            "no model has a context of that length",
            EXAMPLE,
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UsageProblem(
            f"the prompt from {source} is not text", f"it is no UTF-8: {error}", EXAMPLE
        ) from error
    return text if whole else text.removesuffix("\n").removesuffix("\r")


# ---- the sampler ---------------------------------------------------------------------------


def choose_sampler(
    facts: Checkpoint,
    name: str | None,
    flags: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Sampler:
    """The sampler ``name``, or the checkpoint's own, with what was asked for.

    ``flags`` are ``SamplerConfig`` fields, None where not given; ``settings`` are the dotted
    ``sampler.*`` paths of the environment and of ``--set``, weaker than flags.  Raises
    ``UsageProblem`` for an unknown name, one for the other kind of model, and values that do
    not fit each other.
    """
    from dare.sampling import presets

    found = presets.get(name or facts.sampler)
    asked = _asked(settings) | {key: value for key, value in flags.items() if value is not None}
    small = facts.parameters < SMALL
    length = asked.pop("gen_length", 16 if small else 128)
    if facts.block_length is not None:
        asked.setdefault("block_length", facts.block_length)
    kind: presets.Kind = "bidirectional" if facts.block_length is None else "block-causal"
    own = dict(found.settings.get("selection", {"rule": "schedule"}))
    if any(key.startswith("selection.") for key in asked):
        asked = _with_rule(asked, own)
    _check_length(length)
    if kind == "bidirectional":
        _check_blocks(
            length, asked.get("block_length") or min(found.block_length or length, length)
        )
        if small and found.tokens_per_step == 1 and not asked.keys() & {"steps", "selection"}:
            block = asked.get("block_length") or min(found.block_length or length, length)
            asked["steps"] = length // block * max(1, block // 2)  # the tiny recipe's
    config = presets.preset(found.name, length, kind, **asked)
    reference = _reference(facts, found, config)
    approximate = found.approximate or _departure(config, reference)
    return Sampler(found.name, config, reference, approximate)


def _check_length(length: object) -> None:
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise UsageProblem(
            f"the length cannot be {length!r}",
            "it counts tokens, from 1",
            f"{EXAMPLE} --gen-length 16",
        )


def _check_blocks(length: int, block: object) -> None:
    if not isinstance(block, int) or block < 1 or length % block == 0:
        return
    divisor = next(size for size in range(min(block, length), 0, -1) if length % size == 0)
    raise UsageProblem(
        f"{length} tokens are no whole number of blocks of {block}",
        "this sampler fills the completion block by block",
        f"--gen-length {-(-length // block) * block} or --block-length {divisor}",
    )


def _asked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without their "sampler." in front."""
    asked = {}
    for path, value in settings.items():
        section, dot, rest = path.partition(".")
        if section != "sampler" or not rest:
            raise UsageProblem(
                f"'{path}' is not a setting of a sampler",
                "here every setting begins with sampler.",
                f"--set sampler.{rest if dot and rest else path}=VALUE",
            )
        asked[rest] = value
    return asked


def _with_rule(asked: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``asked`` with one value for all of ``selection``; ``own`` is the preset's."""
    from dare.config import unflatten
    from dare.sampling.config import SamplerConfig
    from dare.sampling.rules import RULES

    top = {key: value for key, value in asked.items() if key in SamplerConfig.model_fields}
    rest = {key: value for key, value in asked.items() if key not in top}
    plain = {key.removeprefix("selection."): value for key, value in rest.items()}
    rule = plain.get("rule", own["rule"])
    if rule not in RULES:
        raise unknown_name("selection rule", str(rule), RULES, "dare list samplers")
    for key in plain:
        if key.partition(".")[0] not in RULES[rule].model_fields:
            raise unknown_name(
                f"setting of the rule '{rule}'", key, RULES[rule].model_fields, "dare list samplers"
            )
    start = dict(own) if rule == own["rule"] else {"rule": rule}
    for key, value in unflatten(plain).items():
        nested = isinstance(value, dict) and isinstance(start.get(key), dict)
        start[key] = start[key] | value if nested else value
    return top | {"selection": start}


def _reference(facts: Checkpoint, found: Preset, config: SamplerConfig) -> SamplerConfig:
    """The official sampler of the checkpoint's family in blocks of the same size, at the
    number of steps, temperature and guidance that go with it.

    Of several official ones it is the one that was asked for, else the checkpoint's own.
    """
    from dare.sampling import presets

    own = presets.get(facts.sampler)
    official = found if found.exact and found.paper == own.paper else own
    return official.config(
        config.gen_length,
        block_length=config.block_length,
        temperature=config.temperature,
        cfg_scale=config.cfg_scale,
    )


def _departure(config: SamplerConfig, reference: SamplerConfig) -> str:
    """In what ``config`` departs from the official sampler; "" where it does not."""
    said = []
    if config.cache in ("prefix", "dual"):
        said.append(f"keeps stale keys and values (cache '{config.cache}')")
    if config.selection.rule != reference.selection.rule:
        said.append(
            f"commits by the rule '{config.selection.rule}', not '{reference.selection.rule}'"
        )
    elif config.selection != reference.selection:
        said.append(f"has other settings of the rule '{config.selection.rule}'")
    elif config.steps != reference.steps:
        said.append(f"takes {config.steps} steps, not {reference.steps}")
    if config.remasking != reference.remasking:
        said.append(f"ranks positions by '{config.remasking}', not '{reference.remasking}'")
    return "; ".join(said)


# ---- memory --------------------------------------------------------------------------------


def default_dtype(facts: Checkpoint) -> str:
    """The stored precision; float32 where that is another than bfloat16."""
    return "bfloat16" if facts.dtype.removeprefix("torch.") == "bfloat16" else "float32"


def weight_bytes(facts: Checkpoint, dtype: str) -> int:
    """What the weights take once they are loaded."""
    from dare.models.memory import resting_memory

    memory = resting_memory(facts)
    return memory.inference_bfloat16 if dtype == "bfloat16" else memory.inference_float32


def check_memory(facts: Checkpoint, dtype: str, available: int | None, where: str) -> None:
    """Raise ``Missing`` when the weights alone are larger than what is free."""
    needed = weight_bytes(facts, dtype)
    if available is None or needed <= available:
        return
    half = "--dtype bfloat16 halves it\n" if dtype == "float32" else ""
    raise Missing(
        f"'{facts.name}' does not fit into the memory of {where}",
        f"its weights take {needed / 1e9:.1f} GB as {dtype}, and {available / 1e9:.1f} GB are free",
        f"{half}to try all the same, add --force\nsmaller models: dare models",
    )


def free_memory() -> int | None:
    """Bytes that this process may still take, None where the system does not say."""
    known = [each for each in (_free_on_machine(), _free_in_group()) if each is not None]
    return min(known, default=None)


def _free_on_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(line for line in lines if line.startswith("MemAvailable:")).split()[1]
        return int(kilobytes) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _free_in_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What the container's limit leaves; pages of files that were read can be given back."""
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return limit - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):  # no such files, or the limit is "max"
        return None
