"""Named checkpoints: where they are, which revision, what they cost.  Data; imports no torch.

    registry.get("llada-8b").repo_id        # "GSAI-ML/LLaDA-8B-Instruct"
    registry.locate("tiny-llada")           # the embedded folder
    registry.describe("runs/x/checkpoint")  # the facts of a local folder

A revision was read in public files, not asked from the Hub; ``evidence`` says how well it is
attested.  Loading it fails loudly if the Hub does not know it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dare.errors import Missing, UsageProblem, unknown_name

EMBEDDED = Path(__file__).resolve().parent / "embedded"
LISTING = "dare list models"


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a dense LLaDA-style model; ``vocab_size`` counts embedding rows."""

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    mlp_hidden_size: int
    vocab_size: int
    max_sequence_length: int
    tied: bool

    def linears(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of the linear layers of one block, by their released names."""
        d, hidden = self.d_model, self.mlp_hidden_size
        kv = self.n_kv_heads * (d // self.n_heads)
        return {
            "q_proj": (d, d),
            "k_proj": (d, kv),
            "v_proj": (d, kv),
            "attn_out": (d, d),
            "ff_proj": (d, hidden),
            "up_proj": (d, hidden),
            "ff_out": (hidden, d),
        }

    @property
    def block_parameters(self) -> int:
        """Weights of all linear layers inside the blocks."""
        return self.n_layers * sum(i * o for i, o in self.linears().values())

    @property
    def embedding_parameters(self) -> int:
        return self.vocab_size * self.d_model

    @property
    def parameters(self) -> int:
        """All weights: blocks, norms, embedding and, unless tied, the head."""
        norms = (2 * self.n_layers + 1) * self.d_model
        return self.block_parameters + norms + self.embedding_parameters * (1 if self.tied else 2)

    @property
    def matmul_parameters(self) -> int:
        """Weights every token is multiplied with: blocks and head, not the embedding."""
        return self.block_parameters + self.embedding_parameters


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One named checkpoint.

    ``repo_id`` and ``revision`` are None for the embedded one.  ``evidence``: how well the
    revision is attested.  ``bytes`` is the size of the weight files.
    """

    name: str
    family: str
    shape: Shape
    bytes: int
    dtype: str
    licence: str
    mask_token_id: int
    eos_token_id: int
    repo_id: str | None = None
    revision: str | None = None
    evidence: str = ""
    aliases: tuple[str, ...] = ()
    note: str = ""

    @property
    def parameters(self) -> int:
        return self.shape.parameters


_LLADA_8B = Shape(
    d_model=4096,
    n_layers=32,
    n_heads=32,
    n_kv_heads=32,
    mlp_hidden_size=12288,
    vocab_size=126464,
    max_sequence_length=4096,
    tied=False,
)
_TINY = Shape(
    d_model=64,
    n_layers=3,
    n_heads=4,
    n_kv_heads=4,
    mlp_hidden_size=168,
    vocab_size=28,
    max_sequence_length=128,
    tied=True,
)

CHECKPOINTS = (
    Checkpoint(
        name="tiny-llada",
        family="llada",
        shape=_TINY,
        bytes=299_392,
        dtype="float16",
        licence="Apache-2.0",
        mask_token_id=2,
        eos_token_id=1,
        aliases=("tiny",),
        note="embedded; a LLaDA of laptop size, pre-trained on 4x4 Sudoku with mixed-quality "
        "demonstrations, so that there is something to improve",
    ),
    Checkpoint(
        name="llada-8b",
        family="llada",
        shape=_LLADA_8B,
        bytes=16_031_197_112,
        dtype="bfloat16",
        licence="MIT",
        mask_token_id=126336,
        eos_token_id=126081,
        repo_id="GSAI-ML/LLaDA-8B-Instruct",
        revision="08b83a6feb34df1a6011b80c3c00c7563e963b07",
        evidence="strong: many independent public files; newest seen on 2026-09-30",
        aliases=("llada-8b-instruct", "llada"),
        note="file size taken from the Base checkpoint, which has the same tensors",
    ),
    Checkpoint(
        name="llada-8b-base",
        family="llada",
        shape=_LLADA_8B,
        bytes=16_031_197_112,
        dtype="bfloat16",
        licence="MIT",
        mask_token_id=126336,
        eos_token_id=126081,
        repo_id="GSAI-ML/LLaDA-8B-Base",
        revision="0f2787f2d87eac5eed8a087d5ecd24277e6255b2",
        evidence="strong: several independent public files; an older revision exists",
    ),
    Checkpoint(
        name="llada-1.5",
        family="llada",
        shape=_LLADA_8B,
        bytes=16_031_197_144,
        dtype="bfloat16",
        licence="not stated",
        mask_token_id=126336,
        eos_token_id=126081,
        repo_id="GSAI-ML/LLaDA-1.5",
        revision="84346fd91ba60252d260022201ad6fc5a3468fb2",
        evidence="strong: read in a Hub answer of 2026-06-09; an older revision exists",
        aliases=("llada-1.5-8b",),
    ),
)


def names() -> tuple[str, ...]:
    """The names, smallest model first."""
    return tuple(checkpoint.name for checkpoint in CHECKPOINTS)


def get(name: str) -> Checkpoint:
    """The checkpoint called ``name``: a name, an alias or a Hub id, in any case.

    Raises ``UsageProblem`` with the nearest name.
    """
    wanted = name.lower()
    for checkpoint in CHECKPOINTS:
        if wanted in _spellings(checkpoint):
            return checkpoint
    known = [spelling for checkpoint in CHECKPOINTS for spelling in _spellings(checkpoint)]
    raise unknown_name("model", name, known, LISTING)


def _spellings(checkpoint: Checkpoint) -> tuple[str, ...]:
    hub = (checkpoint.repo_id.lower(),) if checkpoint.repo_id else ()
    return (checkpoint.name, *checkpoint.aliases, *hub)


def locate(name: str) -> Path | None:
    """The local folder of ``name``, or None when its weights are not on this machine.

    ``name`` is a registered name or the path of a checkpoint folder.  Looks at the embedded
    models, the path and the Hugging Face cache; never at the network.  Raises
    ``UsageProblem`` for a name that is neither, ``Missing`` for a path that is not there.
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
    checkpoint = get(name)
    if checkpoint.repo_id is None:
        folder = EMBEDDED / checkpoint.name
    else:
        cached = _cached_snapshot(checkpoint.repo_id, checkpoint.revision)
        if cached is None:
            return None
        folder = cached
    return folder if _is_complete(folder) else None


def is_available(name: str) -> bool:
    """Whether the weights of ``name`` are on this machine; a missing path counts as no."""
    try:
        return locate(name) is not None
    except Missing:
        return False


def canonical(name: str) -> str:
    """The registered name behind an alias or a Hub id; a path stays as it is."""
    return name if _is_path(name) else get(name).name


def describe(name: str) -> Checkpoint:
    """The facts of a registered name or of a local checkpoint folder, for cost estimates."""
    return _facts_of_folder(Path(name).expanduser()) if _is_path(name) else get(name)


def _is_path(name: str) -> bool:
    """A registered name wins over a folder of the same name."""
    if any(name.lower() in _spellings(checkpoint) for checkpoint in CHECKPOINTS):
        return False
    # os.path.isdir answers False where Path.is_dir raises: names too long or with a NUL byte.
    return "\0" not in name and (name.startswith((".", "/", "~")) or os.path.isdir(name))


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
    absent = sorted(str(shard) for shard in shards if not (folder / str(shard)).is_file())
    return f"not there: {', '.join(absent)}" if absent else ""


def _facts_of_folder(folder: Path) -> Checkpoint:
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        heads = int(config["n_heads"])
        shape = Shape(
            d_model=int(config["d_model"]),
            n_layers=int(config["n_layers"]),
            n_heads=heads,
            n_kv_heads=int(config.get("n_kv_heads") or heads),
            mlp_hidden_size=int(
                config.get("mlp_hidden_size") or config["mlp_ratio"] * config["d_model"]
            ),
            vocab_size=int(config.get("embedding_size") or config["vocab_size"]),
            max_sequence_length=int(config.get("max_sequence_length", 0)),
            tied=bool(config.get("weight_tying", False)),
        )
        ids = int(config["mask_token_id"]), int(config["eos_token_id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageProblem(
            f"{folder} is not a checkpoint that dare can describe",
            f"config.json: {type(error).__name__}: {error}",
            LISTING,
        ) from error
    return Checkpoint(
        name=str(folder),
        family=str(config.get("model_type", "unknown")),
        shape=shape,
        bytes=sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "unknown"),
        licence="not stated",
        mask_token_id=ids[0],
        eos_token_id=ids[1],
        note="a local folder",
    )
