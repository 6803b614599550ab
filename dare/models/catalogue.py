"""The named checkpoints.  Data; imports no torch.

A revision was read in public files, not asked from the Hub; ``evidence`` begins with "strong"
(several independent files, or an answer of the Hub), "fair" (two files or one careful list), "weak"
(less; then the revision is not used) or "none".  A number that no file states is called inferred
in the note.

To add an embedded model, put its folder below ``embedded/`` and one ``_embedded(...)`` here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dare.models.facts import FAMILIES, Checkpoint
from dare.models.shape import Experts, Shape


def _embedded(
    name: str, family: str, shape: Shape, size: int, ids: tuple[int, int, int], **fields: Any
) -> Checkpoint:
    """A checkpoint in the package; ``ids`` are mask, eos (also pad) and eot."""
    kind = FAMILIES[family]
    mask, eos, eot = ids
    given: dict[str, Any] = {
        "block_length": kind.block_length, "sampler": kind.sampler, "protocol": "tiny",
        "chat": False, "dtype": "float16", "licence": "Apache-2.0",
    }  # fmt: skip
    return Checkpoint(
        name=name, family=family, shape=shape, bytes=size, mask_token_id=mask, eos_token_id=eos,
        pad_token_id=eos, eot_token_id=eot, **given | fields,
    )  # fmt: skip


def _released(
    name: str, family: str, shape: Shape, repo_id: str, size: int | None = None, **fields: Any
) -> Checkpoint:
    """A checkpoint on the Hub in bfloat16; without ``size``, that of the tensors by ``shape``."""
    kind = FAMILIES[family]
    given: dict[str, Any] = {
        "block_length": kind.block_length, "sampler": kind.sampler, "dtype": "bfloat16",
        "licence": "not stated", "chat": True, "evidence": NONE,
    }  # fmt: skip
    made = Checkpoint(
        name=name, family=family, shape=shape, repo_id=repo_id, bytes=size or 0,
        mask_token_id=kind.mask_token_id, eos_token_id=kind.eos_token_id,
        pad_token_id=kind.pad_token_id, eot_token_id=kind.eot_token_id, **given | fields,
    )  # fmt: skip
    return made if size else replace(made, bytes=made.tensor_bytes)


NONE = "none: no public file that we read names a revision"
COMPUTED = "size computed from the dimensions"

TINY = Shape(
    d_model=64, n_layers=3, n_heads=4, n_kv_heads=4, mlp_hidden_size=168, vocab_size=28,
    max_sequence_length=128, tied=True,
)  # fmt: skip
TINY_DREAM = replace(
    TINY, n_kv_heads=2, head_dim=16, tied=False, qkv_bias=True, naming="separate"
)  # fmt: skip
TINY_SDAR = replace(TINY_DREAM, n_layers=4, qkv_bias=False, qk_norm=True)
TINY_LLADA2 = replace(
    TINY_SDAR, naming="fused",
    experts=Experts(
        count=8, per_token=2, hidden_size=64, layers=3, shared_hidden_size=64, selection_bias=True
    ),
)  # fmt: skip
LLADA_8B = Shape(
    d_model=4096, n_layers=32, n_heads=32, n_kv_heads=32, mlp_hidden_size=12288,
    vocab_size=126464, max_sequence_length=4096, tied=False,
)  # fmt: skip
LLADA_MOE = Shape(
    d_model=2048, n_layers=16, n_heads=16, n_kv_heads=16, head_dim=128, mlp_hidden_size=8192,
    vocab_size=157184, max_sequence_length=8192, tied=False, qk_norm=True, naming="separate",
    experts=Experts(count=64, per_token=8, hidden_size=1024, layers=16),
)  # fmt: skip
DREAM_7B = Shape(
    d_model=3584, n_layers=28, n_heads=28, n_kv_heads=4, head_dim=128, mlp_hidden_size=18944,
    vocab_size=152064, max_sequence_length=131072, tied=False, qkv_bias=True, naming="separate",
)  # fmt: skip
DREAM_LIKE = replace(DREAM_7B, max_sequence_length=0)
SDAR_4B = Shape(
    d_model=2560, n_layers=36, n_heads=32, n_kv_heads=8, head_dim=128, mlp_hidden_size=9728,
    vocab_size=151936, max_sequence_length=32768, tied=False, qk_norm=True, naming="separate",
)  # fmt: skip
SDAR_2B = replace(SDAR_4B, d_model=2048, n_layers=28, n_heads=16, mlp_hidden_size=6144)
SDAR_8B = replace(SDAR_4B, d_model=4096, mlp_hidden_size=12288)
SDAR_30B = replace(
    SDAR_4B, d_model=2048, n_layers=48, n_kv_heads=4, mlp_hidden_size=6144,
    experts=Experts(count=128, per_token=8, hidden_size=768, layers=48),
)  # fmt: skip
LLADA2_MINI = Shape(
    d_model=2048, n_layers=20, n_heads=16, n_kv_heads=4, head_dim=128, mlp_hidden_size=5120,
    vocab_size=157184, max_sequence_length=32768, tied=False, qk_norm=True, naming="fused",
    experts=Experts(
        count=256, per_token=8, hidden_size=512, layers=19, shared_hidden_size=512,
        selection_bias=True,
    ),
)  # fmt: skip
LLADA2_FLASH = replace(
    LLADA2_MINI, d_model=4096, n_layers=32, n_heads=32, mlp_hidden_size=9216,
    max_sequence_length=0,
    experts=Experts(
        count=256, per_token=8, hidden_size=1024, layers=31, shared_hidden_size=1024,
        selection_bias=True,
    ),
)  # fmt: skip

EMBEDDED_MODELS = (
    _embedded(
        "tiny-llada", "llada", TINY, 299_392, (2, 1, 5), aliases=("tiny",),
        note="embedded; a LLaDA of laptop size, pre-trained on 4x4 Sudoku with mixed-quality "
        "demonstrations, so that there is something to improve",
    ),
    _embedded(
        "tiny-dream", "dream", TINY_DREAM, 280_024, (2, 1, 5),
        note="embedded; a Dream of laptop size (grouped heads, biases, shifted head), pre-trained "
        "as tiny-llada",
    ),
    _embedded(
        "tiny-sdar", "sdar", TINY_SDAR, 369_704, (2, 1, 5), block_length=4,
        note="embedded; an SDAR of laptop size, block-causal with one row of the grid a block, "
        "pre-trained as tiny-llada",
    ),
    _embedded(
        "tiny-llada2", "llada2_moe", TINY_LLADA2, 850_800, (2, 1, 5), block_length=8,
        float32_parameters=24,
        note="embedded; a LLaDA2 of laptop size, block-causal with two rows of the grid a block, "
        "8 experts of which a token uses 2, pre-trained as tiny-llada",
    ),
)  # fmt: skip

LLADA = (
    _released(
        "llada-8b", "llada", LLADA_8B, "GSAI-ML/LLaDA-8B-Instruct", 16_031_197_112,
        revision="08b83a6feb34df1a6011b80c3c00c7563e963b07",
        evidence="strong: many independent public files; newest seen on 2026-09-30",
        licence="MIT", aliases=("llada-8b-instruct", "llada"), protocol="d1",
        note="file size taken from the Base checkpoint, which has the same tensors",
    ),
    _released(
        "llada-8b-base", "llada", LLADA_8B, "GSAI-ML/LLaDA-8B-Base", 16_031_197_112,
        revision="0f2787f2d87eac5eed8a087d5ecd24277e6255b2",
        evidence="strong: several independent public files; an older revision exists",
        licence="MIT", chat=False,
    ),
    _released(
        "llada-1.5", "llada", LLADA_8B, "GSAI-ML/LLaDA-1.5", 16_031_197_144,
        revision="84346fd91ba60252d260022201ad6fc5a3468fb2",
        evidence="strong: read in a Hub answer of 2026-06-09; an older revision exists",
        aliases=("llada-1.5-8b",), protocol="d1",
    ),
    _released(
        "llada-moe-7b", "llada_moe", LLADA_MOE, "inclusionAI/LLaDA-MoE-7B-A1B-Instruct",
        14_714_160_432,
        revision="783d3467f108d28ac0a78d3e41af16ab05cabd8d",
        evidence="strong: three independent public files, one with size and hash of each shard",
        aliases=("llada-moe", "llada-moe-7b-a1b", "llada-moe-7b-a1b-instruct"),
        note="head counts and context are inferred; they agree with the released tensor bytes",
    ),
    _released(
        "llada-moe-7b-base", "llada_moe", LLADA_MOE, "inclusionAI/LLaDA-MoE-7B-A1B-Base",
        14_713_761_792,
        aliases=("llada-moe-base", "llada-moe-7b-a1b-base"), chat=False,
        note="head counts and context are inferred; they agree with the released tensor bytes",
    ),
)  # fmt: skip

_AS_DREAM = f"dimensions inferred from Dream-v0-Instruct-7B, context not read; {COMPUTED}"
DREAM = (
    _released(
        "dream-7b", "dream", DREAM_7B, "Dream-org/Dream-v0-Instruct-7B", 15_231_233_024,
        revision="05334cb9faaf763692dcf9d8737c642be2b2a6ae",
        evidence="strong: several independent public files; newest seen on 2026-09-30",
        licence="Apache-2.0", aliases=("dream", "dream-7b-instruct", "dream-v0-instruct-7b"),
    ),
    _released(
        "dream-7b-base", "dream", DREAM_LIKE, "Dream-org/Dream-v0-Base-7B",
        revision="6572adb5535263e4d1a337b56942ba48b6dee2a9",
        evidence="strong: five independent public files",
        licence="Apache-2.0", aliases=("dream-base", "dream-v0-base-7b"), chat=False,
        note=_AS_DREAM,
    ),
    _released(
        "diffucoder", "dream", DREAM_LIKE, "apple/DiffuCoder-7B-Instruct",
        revision="4fdd4580064ca5d11808069ce78f88d068753c96",
        evidence="strong: three independent public files",
        licence="apple-amlr",
        aliases=("diffucoder-7b", "diffucoder-instruct", "diffucoder-7b-instruct"),
        note=_AS_DREAM,
    ),
    _released(
        "diffucoder-base", "dream", DREAM_LIKE, "apple/DiffuCoder-7B-Base",
        revision="a2c33054cbe99b9ab7af074f09b1d13943157ff1",
        evidence="strong: two public files, one of which read the repository's head",
        licence="apple-amlr", aliases=("diffucoder-7b-base",), chat=False, note=_AS_DREAM,
    ),
    _released(
        "diffucoder-cpgrpo", "dream", DREAM_LIKE, "apple/DiffuCoder-7B-cpGRPO",
        evidence="weak: one list names 98bc42bfd871eeec92fd0a8439ab34f75b405204",
        licence="apple-amlr", aliases=("diffucoder-7b-cpgrpo",), note=_AS_DREAM,
    ),
)  # fmt: skip

_B32 = "dimensions and tokens are those of the plain checkpoint (inferred)"
_TRADO = "architecture and block length inferred from the SDAR of its size"
SDAR = (
    _released(
        "sdar-1.7b", "sdar", SDAR_2B, "JetLM/SDAR-1.7B-Chat", licence="Apache-2.0",
        aliases=("sdar-1.7b-chat",), note=COMPUTED,
        evidence="none: only a branch, refs/pr/1, is mentioned",
    ),
    _released(
        "sdar-1.7b-b32", "sdar", SDAR_2B, "JetLM/SDAR-1.7B-Chat-b32", block_length=32,
        aliases=("sdar-1.7b-chat-b32",), note=f"{_B32}; {COMPUTED}",
        evidence="weak: one file names the first seven digits, 2c83c05",
    ),
    _released(
        "sdar-4b", "sdar", SDAR_4B, "JetLM/SDAR-4B-Chat", 8_822_848_512, licence="Apache-2.0",
        aliases=("sdar-4b-chat",),
    ),
    _released(
        "sdar-4b-b32", "sdar", SDAR_4B, "JetLM/SDAR-4B-Chat-b32", block_length=32,
        aliases=("sdar-4b-chat-b32",), note=f"{_B32}; {COMPUTED}",
    ),
    _released(
        "sdar-8b", "sdar", SDAR_8B, "JetLM/SDAR-8B-Chat", 16_381_470_720, licence="Apache-2.0",
        revision="ac4528d2c076b04e02a03e6f430efa4385331ce8",
        evidence="fair: two files of one project", aliases=("sdar", "sdar-8b-chat"),
    ),
    _released(
        "sdar-8b-b32", "sdar", SDAR_8B, "JetLM/SDAR-8B-Chat-b32", block_length=32,
        aliases=("sdar-8b-chat-b32",), note=f"{_B32}; {COMPUTED}",
    ),
    _released(
        "sdar-30b", "sdar_moe", SDAR_30B, "JetLM/SDAR-30B-A3B-Chat", 61_064_245_248,
        revision="f5add2a159163a2a8f07e9da7dfcbfaadc73d6d4",
        evidence="fair: two files of one project", licence="Apache-2.0",
        aliases=("sdar-30b-a3b", "sdar-30b-a3b-chat"),
    ),
    _released(
        "sdar-30b-b32", "sdar_moe", SDAR_30B, "JetLM/SDAR-30B-A3B-Chat-b32", block_length=32,
        revision="c351bbc37d240aa6871f167e8f92d694281b0c22",
        evidence="strong: four independent public files",
        aliases=("sdar-30b-a3b-b32", "sdar-30b-a3b-chat-b32"), note=f"{_B32}; {COMPUTED}",
    ),
    _released(
        "trado-4b", "sdar", SDAR_4B, "Gen-Verse/TraDo-4B-Instruct",
        aliases=("trado-4b-instruct",), note=f"{_TRADO}; {COMPUTED}",
    ),
    _released(
        "trado-8b", "sdar", SDAR_8B, "Gen-Verse/TraDo-8B-Instruct",
        aliases=("trado", "trado-8b-instruct"), note=f"{_TRADO}; {COMPUTED}",
    ),
)  # fmt: skip

_PREVIEW = "dimensions inferred from the released model"
_FLASH = "head size inferred, it agrees with the size of the released files; context not read"
LLADA2 = (
    _released(
        "llada2-mini", "llada2_moe", LLADA2_MINI, "inclusionAI/LLaDA2.0-mini", 32_511_286_784,
        revision="dad945cac317da394b390f82c7b40691d8a881ed",
        evidence="strong: read from the Hub; newest seen on 2026-09-30; two older revisions exist",
        licence="Apache-2.0", aliases=("llada2.0-mini",),
    ),
    _released(
        "llada2-mini-preview", "llada2_moe", replace(LLADA2_MINI, max_sequence_length=16384),
        "inclusionAI/LLaDA2.0-mini-preview", aliases=("llada2.0-mini-preview",),
        evidence="weak: one list names d25d3b2ac0b966b64da11d6c791f8bf4bc31e90c",
        note=f"{_PREVIEW}; {COMPUTED}",
    ),
    _released(
        "llada2-flash", "llada2_moe", LLADA2_FLASH, "inclusionAI/LLaDA2.0-flash",
        205_782_433_824,
        revision="744c3f8c6c8317d2377d6d16d8a3d4be2caef563",
        evidence="strong: four independent public files",
        licence="Apache-2.0", aliases=("llada2.0-flash",), note=_FLASH,
    ),
    _released(
        "llada2-flash-cap", "llada2_moe", LLADA2_FLASH, "inclusionAI/LLaDA2.0-flash-CAP",
        revision="3e65ff386063c389ca498d5ca862a687252d75c6",
        evidence="fair: one file that read it from the Hub", aliases=("llada2.0-flash-cap",),
        note=f"{_PREVIEW}; {COMPUTED}",
    ),
    _released(
        "llada2.1-mini", "llada2_moe", LLADA2_MINI, "inclusionAI/LLaDA2.1-mini", 32_511_296_512,
        revision="20e64e2ad21644d0e5248586ed9c942cdd45de0f",
        evidence="strong: read from the Hub, three more files; two older revisions exist",
        licence="Apache-2.0", sampler="llada2.1",
        float32_parameters=LLADA2_MINI.selection_biases,
    ),
    _released(
        "llada2.1-flash", "llada2_moe", LLADA2_FLASH, "inclusionAI/LLaDA2.1-flash",
        205_782_452_128,
        revision="2bf95e86ade33c1adb5c1e223b7db2a76dc3bdd6",
        evidence="fair: one project that checked the hash of every file",
        licence="Apache-2.0", sampler="llada2.1", note=_FLASH,
        float32_parameters=LLADA2_FLASH.selection_biases,
    ),
)  # fmt: skip

CHECKPOINTS = (*EMBEDDED_MODELS, *LLADA, *DREAM, *SDAR, *LLADA2)
