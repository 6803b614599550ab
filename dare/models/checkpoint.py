"""Whether a checkpoint's files hold exactly the tensors of a model.  Reads headers only.

transformers would start a missing tensor from random numbers, and leave a surplus one out, with
a warning; either means that the numbers are not the released model's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from dare.errors import UsageProblem
from dare.models.base import DiffusionLM
from dare.models.experts import one_by_one

Shapes = dict[str, tuple[int, ...]]
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_HEADS = ("lm_head.weight", "model.transformer.ff_out.weight")
_SHOWN = 5


def official_shapes(model_class: type[DiffusionLM], config: Any) -> Shapes:
    """Names and shapes of the tensors that a released checkpoint of this shape has."""
    with torch.device("meta"):
        model = model_class(config)
    state = one_by_one(model.state_dict())
    if config.tie_word_embeddings:
        state = {name: tensor for name, tensor in state.items() if name not in _HEADS}
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def stored_shapes(folder: Path) -> Shapes:
    """Names and shapes of the tensors in a folder's safetensors, sharded or not.

    Raises ``UsageProblem`` for files that cannot be read and for an index that disagrees.
    """
    listed: dict[str, str] | None = None
    found: Shapes = {}
    try:
        if (folder / _INDEX).is_file():
            listed = json.loads((folder / _INDEX).read_text())["weight_map"]
        for file in sorted(set(listed.values())) if listed is not None else [_SINGLE]:
            with safe_open(folder / file, "pt") as shard:
                for name in shard.keys():  # noqa: SIM118 - not a mapping
                    if listed is None or listed.get(name) == file:
                        found[name] = tuple(shard.get_slice(name).get_shape())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise UsageProblem(
            f"the weights in {folder} cannot be read",
            f"{type(error).__name__}: {error}",
            "fetch the checkpoint again, or name another: dare models",
        ) from error
    return found


def check_tensors(folder: Path, model_class: type[DiffusionLM], config: Any) -> None:
    """Raise ``UsageProblem``, naming tensors, unless the files hold exactly the model's.

    A head that is tied to the embedding may be stored too.
    """
    expected, found = official_shapes(model_class, config), stored_shapes(folder)
    missing = [name for name in expected if name not in found]
    surplus = [name for name in found if name not in expected]
    if config.tie_word_embeddings:
        surplus = [name for name in surplus if name not in _HEADS]
    both = [name for name in expected if name in found and expected[name] != found[name]]
    wrong = [f"{name} is {found[name]} and should be {expected[name]}" for name in both]
    problems = [
        f"{len(names)} {what}: {', '.join(names[:_SHOWN])}{' ...' if len(names) > _SHOWN else ''}"
        for what, names in (
            ("missing", missing),
            ("unexpected", surplus),
            ("of other shape", wrong),
        )
        if names
    ]
    if problems:
        raise UsageProblem(
            f"{folder} does not hold the tensors of the {model_class.__name__} that it says it is",
            "; ".join(problems),
            "fetch the checkpoint again, or name another: dare models",
        )
