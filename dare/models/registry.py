"""Checkpoints by name: where they are, which revision, what they cost.  Imports no torch.

    registry.get("llada-8b").repo_id        # "GSAI-ML/LLaDA-8B-Instruct"
    registry.require("tiny-llada")          # the embedded folder
    registry.describe("runs/x/model")       # the facts of a local folder
    registry.require("someone/tuned-dream") # a Hub id, if it is in the local cache

A name is a registered one, an alias, a Hub id or the path of a checkpoint folder.  The network
is never used: what is not on this machine costs a ``Missing`` with the line that fetches it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from dare.errors import Missing, unknown_name
from dare.models.catalogue import CHECKPOINTS
from dare.models.describe import facts_of_folder
from dare.models.facts import FAMILIES, LISTING, Checkpoint, Family, family_of
from dare.models.shape import Experts, Shape

__all__ = [
    "CHECKPOINTS", "EMBEDDED", "FAMILIES", "LISTING", "Checkpoint", "Experts", "Family", "Shape",
    "absent", "canonical", "describe", "download_line", "family_of", "get", "is_available",
    "locate", "names", "require", "snapshot_revision",
]  # fmt: skip

EMBEDDED = Path(__file__).resolve().parent / "embedded"
_HUB_ID = re.compile(r"[\w][\w.-]{0,95}/[\w][\w.-]{0,95}", re.ASCII)


def names() -> tuple[str, ...]:
    """The names: the embedded models first, then family by family."""
    return tuple(checkpoint.name for checkpoint in CHECKPOINTS)


def get(name: str) -> Checkpoint:
    """The checkpoint called ``name``: a name, an alias or a Hub id, in any case.

    Raises ``UsageProblem`` with the nearest name.
    """
    found = _registered(name)
    if found is None:
        raise unknown_name("model", name, spellings("/" in name), LISTING)
    return found


def spellings(with_hub_ids: bool = True) -> tuple[str, ...]:
    """Everything :func:`get` answers to, in lower case."""
    every = (each for checkpoint in CHECKPOINTS for each in _spellings(checkpoint))
    return tuple(each for each in every if with_hub_ids or "/" not in each)


def _registered(name: str) -> Checkpoint | None:
    wanted = name.lower()
    return next((each for each in CHECKPOINTS if wanted in _spellings(each)), None)


def _spellings(checkpoint: Checkpoint) -> tuple[str, ...]:
    hub = (checkpoint.repo_id.lower(),) if checkpoint.repo_id else ()
    return (checkpoint.name, *checkpoint.aliases, *hub)


def locate(name: str) -> Path | None:
    """The local folder of ``name``, or None when its weights are not on this machine.

    Looks at the embedded models, the path and the Hugging Face cache.  Raises ``UsageProblem``
    for a name that is nothing of these, ``Missing`` for a path that is not there.
    """
    if _is_path(name):
        folder = Path(name).expanduser()
        if not _is_complete(folder):
            raise Missing(
                f"there is no checkpoint at {folder}",
                _what_is_missing(folder),
                f"name a folder with config.json and safetensors, or see: {LISTING}",
            )
        return folder
    found = _folder(name)
    return found if found is not None and _is_complete(found) else None


def require(name: str) -> Path:
    """The local folder of ``name``.

    Raises ``Missing``, with the command that fetches them, when the weights are not here.
    """
    found = locate(name)
    if found is None:
        raise absent(name)
    return found


def absent(name: str) -> Missing:
    """What to say when the weights of ``name`` are not here."""
    entry = _registered(name)
    cached = _folder(name)
    if entry is not None and entry.repo_id is None:
        why = f"this copy of dare comes without {cached}"
        remedy = "install dare again"
    elif entry is not None:
        why = f"{entry.repo_id} is {entry.bytes / 1e9:.1f} GB and is not in the local cache"
        remedy = download_line(entry)
    else:
        known = {each.repo_id.lower(): each.repo_id for each in CHECKPOINTS if each.repo_id}
        near = get_close_matches(name.lower(), known, n=1, cutoff=0.8)
        why = "it is no folder, and as a Hub id it is neither registered nor in the local cache"
        meant = f"did you mean {known[near[0]]}? if not: " if near else ""
        remedy = f"{meant}hf download {name}"
    if cached is not None and cached.is_dir():
        why = f"its download is not complete: {_what_is_missing(cached)}"
    return Missing(f"the weights of '{name}' are not on this machine", why, remedy)


def download_line(entry: Checkpoint) -> str:
    """The command that fetches a released checkpoint; empty for the others."""
    if entry.repo_id is None:
        return ""
    pin = f" --revision {entry.revision}" if entry.revision else ""
    return f"hf download {entry.repo_id}{pin}"


def snapshot_revision(folder: Path) -> str | None:
    """The Hub commit of a folder in the Hugging Face cache; None for any other folder."""
    of_cache = folder.parent.name == "snapshots" and re.fullmatch(r"[0-9a-f]{40}", folder.name)
    return folder.name if of_cache else None


def is_available(name: str) -> bool:
    """Whether the weights of ``name`` are on this machine; a missing path counts as no."""
    try:
        return locate(name) is not None
    except Missing:
        return False


def canonical(name: str) -> str:
    """The registered name behind an alias or a Hub id; a path or another Hub id stays as it is."""
    if _is_path(name) or _is_foreign(name):
        return name
    return get(name).name


def describe(name: str) -> Checkpoint:
    """The facts of a registered name, of a local folder or of a Hub id in the local cache."""
    if _is_path(name):
        return facts_of_folder(Path(name).expanduser())
    if _is_foreign(name):
        return facts_of_folder(require(name), name)
    return get(name)


def _is_path(name: str) -> bool:
    """A registered name wins over a folder of the same name."""
    if _registered(name) is not None:
        return False
    # os.path.isdir answers False where Path.is_dir raises: names too long or with a NUL byte.
    return "\0" not in name and (name.startswith((".", "/", "~")) or os.path.isdir(name))


def _is_foreign(name: str) -> bool:
    """Whether ``name`` can only be the id of a Hub repository that is not registered."""
    return _registered(name) is None and not _is_path(name) and _is_hub_id(name)


def _is_hub_id(name: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    if not _HUB_ID.fullmatch(name):
        return False
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _folder(name: str) -> Path | None:
    """Where the weights of a registered name or Hub id would be; None: nothing in the cache."""
    if _is_foreign(name):
        return _cached_snapshot(name, None)
    checkpoint = get(name)
    if checkpoint.repo_id is None:
        return EMBEDDED / checkpoint.name
    return _cached_snapshot(checkpoint.repo_id, checkpoint.revision)


def _cached_snapshot(repo_id: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo_id, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def _is_complete(folder: Path) -> bool:
    return not _what_is_missing(folder)


def _what_is_missing(folder: Path) -> str:
    """What a checkpoint folder lacks, in words; empty when nothing (a partial download lacks)."""
    if not folder.is_dir():
        return "the folder does not exist"
    if not (folder / "config.json").is_file():
        return "config.json is not there"
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return "" if any(folder.glob("*.safetensors")) else "no safetensors file is there"
    try:
        shards = set(json.loads(index.read_text())["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return f"{index.name} cannot be read"
    return _listed(str(shard) for shard in shards if not (folder / str(shard)).is_file())


def _listed(files: Iterable[str]) -> str:
    absent_files = sorted(files)
    if not absent_files:
        return ""
    more = f" and {len(absent_files) - 3} more" if len(absent_files) > 3 else ""
    return f"not there: {', '.join(absent_files[:3])}{more}"
