"""Named samplers: the settings of published decoding methods.  Imports no torch.

    config = preset("fast-dllm-dual", gen_length=256)
    config = preset("fast-dllm", gen_length=256, block_length=64, threshold=0.8)

``approximate`` is empty for the official samplers of a family, which are reproduced token for
token (the block cache included), and says of every other one where it departs from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from dare.errors import UsageProblem, unknown_name
from dare.sampling.config import SamplerConfig
from dare.sampling.preset_table import APPROXIMATE, PAPERS, SETTINGS
from dare.sampling.rules import RULES

Kind = Literal["bidirectional", "block-causal"]
LISTING = "dare list samplers"
# Names under which the checkpoints' own samplers are known, besides those of the presets.
ALIASES = {"llada2.1": "llada2.1-quality"}


@dataclass(frozen=True, slots=True)
class Preset:
    """One named sampler.

    kind: the models it runs on.  paper, arxiv: its title and id.  approximate: "" or a sentence.
    source: where the settings were read.  block_length: the authors', None for a single block.
    tokens_per_step: positions per step on average, None where the rule decides.  settings:
    everything else, in ``SamplerConfig``'s names.
    """

    name: str
    what: str
    kind: Kind
    paper: str
    arxiv: str
    approximate: str
    source: str
    block_length: int | None
    tokens_per_step: int | None
    settings: Mapping[str, Any]

    @property
    def exact(self) -> bool:
        return not self.approximate

    def config(self, gen_length: int, **overrides: Any) -> SamplerConfig:
        """The sampler for completions of that many tokens.

        The authors' block is shortened to ``gen_length`` where it is longer.  Overrides are
        settings of ``SamplerConfig`` or of the preset's rule.  Raises ``UsageProblem``.
        """
        block = overrides.get("block_length") or min(self.block_length or gen_length, gen_length)
        values: dict[str, Any] = {"gen_length": gen_length, "block_length": block}
        if self.tokens_per_step is not None and isinstance(block, int) and block > 0:
            blocks = -(-gen_length // block)
            values["steps"] = blocks * max(1, block // self.tokens_per_step)
        values |= self.settings
        rule = dict(values.get("selection", {"rule": "schedule"}))
        for name, value in overrides.items():
            if name in SamplerConfig.model_fields:
                values[name] = value
            elif name in RULES[rule["rule"]].model_fields:
                rule[name] = value
            else:
                known = [*SamplerConfig.model_fields, *RULES[rule["rule"]].model_fields]
                raise unknown_name(f"setting of sampler '{self.name}'", name, known, LISTING)
        if "selection" not in overrides:
            values["selection"] = rule
        try:
            return SamplerConfig.model_validate(values)
        except ValidationError as error:
            raise UsageProblem(
                f"sampler '{self.name}' cannot have these settings",
                "; ".join(_problem(item) for item in error.errors()),
                LISTING,
            ) from error


def _problem(item: Any) -> str:
    """One finding of the validation, with the field it is about."""
    # Behind "selection" pydantic names the rule as well as its field.
    parts = [str(part) for part in item["loc"]]
    where = ".".join(parts[:1] + parts[2:] if parts[:1] == ["selection"] else parts)
    text = str(item["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def _presets() -> dict[str, Preset]:
    found = {}
    for name, (what, kind, paper, source, block, per_step, settings) in SETTINGS.items():
        title, arxiv = PAPERS[paper]
        found[name] = Preset(
            name=name, what=what, kind=kind, paper=title, arxiv=arxiv,
            approximate=APPROXIMATE.get(name, ""), source=source, block_length=block,
            tokens_per_step=per_step, settings=settings,
        )  # fmt: skip
    return found


PRESETS = _presets()


def names(kind: Kind | None = None) -> list[str]:
    """The presets that run on models of that kind, or all."""
    return [name for name, each in PRESETS.items() if kind in (None, each.kind)]


def get(name: str) -> Preset:
    """The preset of that name; an unknown one is answered with the nearest."""
    plain = name.lower().replace("_", "-")
    plain = ALIASES.get(plain, plain)
    if plain not in PRESETS:
        raise unknown_name("sampler", name, [*PRESETS, *ALIASES], LISTING)
    return PRESETS[plain]


def preset(name: str, gen_length: int, kind: Kind | None = None, **overrides: Any) -> SamplerConfig:
    """The settings of a named sampler; ``kind`` is that of the model, where it is known.

    Raises ``UsageProblem`` for an unknown name, for a sampler of the other kind of model, and for
    settings that do not fit each other.
    """
    found = get(name)
    if kind not in (None, found.kind):
        raise UsageProblem(
            f"sampler '{found.name}' is for {found.kind} models",
            f"this model is {kind}",
            LISTING,
        )
    return found.config(gen_length, **overrides)
