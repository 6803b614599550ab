"""What a recipe changes when it is run on a model of another family: sampler and adapters.

A sampler for bidirectional models cannot fill a block-causal one, and a fused projection has
another name.  Everything else of a recipe (lengths, steps, temperatures, budget) stays.
"""

from __future__ import annotations

from typing import Any

from dare.config import src
from dare.errors import Missing
from dare.models import registry
from dare.results.claims import Values

_SEQUENCE = ("sequence", "block-causal, blocks start with the prompt")
_CACHE = ("block", "finished blocks are kept, exactly")
_SAMPLERS: dict[str, dict[str, tuple[Any, str]]] = {
    "dream": {
        "selection": ({"rule": "dream"}, "its time grid"),
        "remasking": ("entropy", "the ranking its authors recommend"),
    },
    "sdar": {
        "block_origin": _SEQUENCE,
        "selection": ({"rule": "dynamic", "threshold": 1.0}, "static low confidence"),
        "cache": _CACHE,
    },
    "llada2_moe": {
        "block_origin": _SEQUENCE,
        "selection": ({"rule": "dynamic", "threshold": 0.95}, "its threshold"),
        "cache": _CACHE,
    },
}
_SAMPLERS["sdar_moe"] = _SAMPLERS["sdar"]


def family_sampler(family: str, block_length: int | None) -> Values:
    """The sampler settings that depend on the family; empty for those that decode as LLaDA does.

    ``block_length`` is the checkpoint's own, None for a bidirectional one.
    """
    origin = f"family {family}"
    found: Values = {
        name: {key: src(part, f"{origin}: {why}") for key, part in value.items()}
        if isinstance(value, dict)
        else src(value, f"{origin}: {why}")
        for name, (value, why) in _SAMPLERS.get(family, {}).items()
    }
    if block_length is not None:
        found = {**found, "block_length": src(block_length, f"{origin}: its block")}
    return found


def with_model(values: Values, model: str | None) -> Values:
    """``values`` with another checkpoint, if one is named, sampled in the way of its family."""
    if model is None:
        return values
    model = registry.canonical(model)
    changed = {**values, "model": {**values["model"], "name": src(model, "--model")}}
    try:
        facts = registry.describe(model)
    except Missing:
        return changed  # the run will say so
    sampler = family_sampler(facts.family, facts.block_length)
    lora = values["model"]["lora"]
    if facts.shape.naming == "fused" and isinstance(lora, dict):
        targets = tuple(each.name for each in facts.shape.attention())
        why = f"family {facts.family}: its projections are fused"
        changed["model"] = {
            **changed["model"], "lora": {**lora, "target_modules": src(targets, why)}
        }  # fmt: skip
    return {**changed, **{part: {**values[part], **sampler} for part in ("rollout", "evaluation")}}
