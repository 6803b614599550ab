"""Named checkpoints: pins, facts, and finding weights without the network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dare.errors import Missing, UsageProblem
from dare.models import registry

SHAPE = {
    "model_type": "llada",
    "d_model": 8,
    "n_layers": 2,
    "n_heads": 2,
    "n_kv_heads": 1,
    "mlp_hidden_size": 12,
    "vocab_size": 30,
    "embedding_size": 32,
    "max_sequence_length": 64,
    "weight_tying": False,
    "mask_token_id": 31,
    "eos_token_id": 1,
    "torch_dtype": "float32",
}


def checkpoint(folder: Path, **changes: object) -> Path:
    """A folder that looks like a small checkpoint of one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPE | changes))
    (folder / "model.safetensors").write_bytes(b"12345678")
    return folder


def sharded(folder: Path) -> Path:
    """A checkpoint of two shards with an index."""
    checkpoint(folder)
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-1-of-2.safetensors").write_bytes(b"1")
    (folder / "model-2-of-2.safetensors").write_bytes(b"2")
    return folder


# ---- facts ---------------------------------------------------------------------------------


def test_parameters_of_llada_8b_fill_its_published_tensor_bytes() -> None:
    """The released index has 16,031,162,368 bytes of bfloat16 tensors."""
    assert registry.get("llada-8b").parameters * 2 == 16_031_162_368


def test_trunk_and_head_of_llada_8b() -> None:
    """6.98 G weights in the blocks, 0.518 G in the head."""
    shape = registry.get("llada-8b").shape
    assert shape.block_parameters == 32 * (4 * 4096**2 + 3 * 4096 * 12288) == 6_979_321_856
    assert shape.embedding_parameters == 126464 * 4096 == 517_996_544
    assert shape.matmul_parameters == 7_497_318_400


def test_parameters_of_the_tiny_model_by_hand() -> None:
    """28 x 64 tied embedding; per block 4 x 64 x 64 + 3 x 64 x 168 + 2 norms; a last norm."""
    expected = 28 * 64 + 3 * (4 * 64 * 64 + 3 * 64 * 168 + 2 * 64) + 64
    assert registry.get("tiny-llada").parameters == expected == 148_160


def test_tiny_facts_agree_with_the_embedded_configuration() -> None:
    path = registry.EMBEDDED / "tiny-llada" / "config.json"
    if not path.is_file():
        pytest.skip("the embedded checkpoint has not been made in this tree")
    facts, entry = registry.describe(str(path.parent)), registry.get("tiny-llada")
    assert facts.shape == entry.shape
    assert (facts.mask_token_id, facts.eos_token_id) == (entry.mask_token_id, entry.eos_token_id)


def test_revisions_are_full_hashes_with_their_evidence() -> None:
    for entry in registry.CHECKPOINTS:
        assert (entry.repo_id is None) == (entry.evidence == "")
        strength = entry.evidence.partition(":")[0]
        assert (entry.revision is not None) == (strength in ("strong", "fair")), entry.name
        assert entry.revision is None or re.fullmatch(r"[0-9a-f]{40}", entry.revision)
        assert strength in ("strong", "fair", "weak", "none", "")
    assert registry.get("llada-8b").revision == "08b83a6feb34df1a6011b80c3c00c7563e963b07"
    assert registry.get("llada-8b-base").revision == "0f2787f2d87eac5eed8a087d5ecd24277e6255b2"
    assert registry.get("llada-1.5").revision == "84346fd91ba60252d260022201ad6fc5a3468fb2"


def test_pins_are_those_of_the_reference_material(shared_dir: Path) -> None:
    """Strong is A, fair is B; C and worse are not used."""
    text = (shared_dir / "models" / "pins.md").read_text()
    letters = {"strong": "A", "fair": "B"}
    pinned = [entry for entry in registry.CHECKPOINTS if entry.revision]
    assert len(pinned) == 16
    for entry in pinned:
        letter = letters[entry.evidence.partition(":")[0]]
        assert f"| {entry.repo_id} | `{entry.revision}` | {letter} |" in text, entry.name


def test_special_tokens_of_llada() -> None:
    entry = registry.get("llada-8b")
    assert (entry.mask_token_id, entry.eos_token_id) == (126336, 126081)


# ---- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("llada-8b", "GSAI-ML/LLaDA-8B-Instruct"),
        ("LLaDA-8B", "GSAI-ML/LLaDA-8B-Instruct"),
        ("llada-8b-instruct", "GSAI-ML/LLaDA-8B-Instruct"),
        ("GSAI-ML/LLaDA-8B-Instruct", "GSAI-ML/LLaDA-8B-Instruct"),
        ("llada", "GSAI-ML/LLaDA-8B-Instruct"),
        ("llada-moe", "inclusionAI/LLaDA-MoE-7B-A1B-Instruct"),
        ("dream", "Dream-org/Dream-v0-Instruct-7B"),
        ("dream-7b-base", "Dream-org/Dream-v0-Base-7B"),
        ("diffucoder-7b", "apple/DiffuCoder-7B-Instruct"),
        ("sdar-30b-a3b", "JetLM/SDAR-30B-A3B-Chat"),
        ("jetlm/sdar-30b-a3b-chat-b32", "JetLM/SDAR-30B-A3B-Chat-b32"),
        ("trado", "Gen-Verse/TraDo-8B-Instruct"),
        ("llada2.0-mini", "inclusionAI/LLaDA2.0-mini"),
        ("llada2.0-flash", "inclusionAI/LLaDA2.0-flash"),
        ("llada2.1-mini", "inclusionAI/LLaDA2.1-mini"),
    ],
)
def test_every_spelling_finds_the_checkpoint(name: str, found: str) -> None:
    assert registry.get(name).repo_id == found


def test_no_spelling_belongs_to_two_checkpoints() -> None:
    spellings = [s for entry in registry.CHECKPOINTS for s in registry._spellings(entry)]
    assert len(set(spellings)) == len(spellings)
    assert all(spelling == spelling.lower() for spelling in spellings)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageProblem) as caught:
        registry.get("lada-8b")
    assert caught.value.exit_status == 2
    assert "did you mean 'llada-8b'?" in caught.value.help
    with pytest.raises(UsageProblem):
        registry.locate("lada-8b")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("sdar8b", "sdar-8b"), ("dream7b", "dream-7b"), ("lada2-mini", "llada2-mini"),
     ("trado4b", "trado-4b"), ("dif-coder", "diffucoder")],
)  # fmt: skip
def test_the_nearest_name_of_every_family(name: str, nearest: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        registry.get(name)
    assert f"did you mean '{nearest}'?" in caught.value.help


def test_the_registry_imports_neither_torch_nor_the_hub() -> None:
    code = (
        "import sys\nfrom dare.models import registry\nregistry.get('llada-8b')\n"
        "print([n for n in ('torch', 'transformers', 'huggingface_hub') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- finding weights -----------------------------------------------------------------------


def test_a_local_folder_is_found_and_described(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "mine")
    assert registry.locate(str(folder)) == folder
    assert registry.is_available(str(folder))
    facts = registry.describe(str(folder))
    assert [(each.inputs, each.outputs) for each in facts.shape.attention()] == [
        (8, 8), (8, 4), (8, 4), (8, 8),
    ]  # fmt: skip
    # Two blocks: q, k, v, out, three MLP matrices; five norms; embedding and head of 32 rows.
    assert facts.parameters == 2 * (64 + 32 + 32 + 64 + 3 * 96) + 5 * 8 + 2 * 32 * 8
    assert (facts.bytes, facts.mask_token_id, facts.dtype) == (8, 31, "float32")


def test_relative_folders_need_no_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert registry.locate("mine") == Path("mine")
    assert registry.locate("./mine") == Path("./mine")


def test_a_registered_name_wins_over_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path / "llada-8b")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_cached_snapshot", lambda repo, revision: None)
    assert registry.locate("llada-8b") is None
    assert registry.describe("llada-8b").shape.d_model == 4096


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json is not there"),
        (lambda f: (f / "model-2-of-2.safetensors").unlink(), "model-2-of-2.safetensors"),
        (lambda f: (f / "model.safetensors.index.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "model.safetensors.index.json").write_text("[1]"), "cannot be read"),
    ],
)
def test_an_incomplete_folder_is_missing(tmp_path: Path, spoil, why: str) -> None:
    folder = sharded(tmp_path / "part")
    assert registry.locate(str(folder)) == folder
    spoil(folder)
    assert not registry.is_available(str(folder))
    with pytest.raises(Missing) as caught:
        registry.locate(str(folder))
    assert why in caught.value.why


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Missing) as caught:
        registry.locate(str(tmp_path / "nowhere"))
    assert caught.value.exit_status == 3
    assert "does not exist" in caught.value.why


@pytest.mark.parametrize("changes", [
    {"n_heads": 0}, {"n_heads": -2}, {"n_kv_heads": 3}, {"d_model": "wide"}, {"vocab_size": None,
    "embedding_size": None}, {"mask_token_id": []}, {"n_layers": float("inf")},
    {"d_model": float("nan")}, {"mask_token_id": "x"},
])  # fmt: skip
def test_a_folder_with_senseless_dimensions_cannot_be_described(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    folder = checkpoint(tmp_path / "odd", **changes)
    if changes == {"mask_token_id": []}:
        assert registry.describe(str(folder)).mask_token_id is None
        return
    with pytest.raises(UsageProblem, match="is not a checkpoint that dare can describe"):
        registry.describe(str(folder))


@pytest.mark.parametrize("text", ["{", "[]", "[" * 200_000, '{"a": ' + "9" * 10_000 + "}", ""])
def test_a_config_that_is_no_object_cannot_be_described(tmp_path: Path, text: str) -> None:
    folder = checkpoint(tmp_path / "odd")
    (folder / "config.json").write_text(text)
    with pytest.raises(UsageProblem, match="is not a checkpoint that dare can describe"):
        registry.describe(str(folder))


# ---- the Hub's cache -----------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache.  The layout is the Hub client's own, so its look-up is tested."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def snapshot(cache: Path, repo_id: str, revision: str, head: bool = False) -> Path:
    """A folder for a downloaded revision; ``head``: fetched without naming it."""
    repository = cache / f"models--{repo_id.replace('/', '--')}"
    if head:
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(revision)
    return repository / "snapshots" / revision


def test_the_hub_cache_is_used_only_when_complete(cache: Path) -> None:
    assert registry.locate("llada-1.5") is None
    folder = snapshot(cache, "GSAI-ML/LLaDA-1.5", registry.get("llada-1.5").revision or "")
    sharded(folder)
    assert registry.locate("llada-1.5") == registry.require("llada-1.5") == folder
    (folder / "model-1-of-2.safetensors").unlink()
    assert registry.locate("llada-1.5") is None
    assert not registry.is_available("llada-1.5")
    with pytest.raises(Missing) as caught:
        registry.require("llada-1.5")
    assert caught.value.why == "its download is not complete: not there: model-1-of-2.safetensors"


def test_another_revision_in_the_cache_does_not_count(cache: Path) -> None:
    checkpoint(snapshot(cache, "GSAI-ML/LLaDA-1.5", "0" * 40))
    assert registry.locate("llada-1.5") is None


def test_without_a_pin_the_current_commit_counts_and_can_be_told(cache: Path) -> None:
    """Nobody attests a revision of SDAR-4B: what the Hub calls main is taken."""
    assert registry.get("sdar-4b").revision is None
    folder = checkpoint(snapshot(cache, "JetLM/SDAR-4B-Chat", "1" * 40, head=True))
    assert registry.require("sdar-4b") == folder
    assert registry.snapshot_revision(folder) == "1" * 40


def test_other_folders_have_no_commit(tmp_path: Path) -> None:
    assert registry.snapshot_revision(registry.EMBEDDED / "tiny-llada") is None
    assert registry.snapshot_revision(tmp_path / ("1" * 40)) is None
    assert registry.snapshot_revision(tmp_path / "snapshots" / "main") is None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "llada-8b",
            "hf download GSAI-ML/LLaDA-8B-Instruct "
            "--revision 08b83a6feb34df1a6011b80c3c00c7563e963b07",
        ),
        ("sdar-4b", "hf download JetLM/SDAR-4B-Chat"),
        ("someone/tuned-llada", "hf download someone/tuned-llada"),
    ],
)
def test_absent_weights_cost_exit_3_with_the_download_line(
    cache: Path, name: str, line: str
) -> None:
    with pytest.raises(Missing) as caught:
        registry.require(name)
    assert (caught.value.exit_status, caught.value.help) == (3, line)
    assert caught.value.what == f"the weights of '{name}' are not on this machine"


def test_a_misspelt_hub_id_suggests_the_registered_one(cache: Path) -> None:
    with pytest.raises(Missing) as caught:
        registry.require("GSAI-ML/LLaDA-8B-Instuct")
    assert caught.value.help.startswith("did you mean GSAI-ML/LLaDA-8B-Instruct? ")


def test_a_hub_id_that_is_not_registered_is_described_by_its_config(cache: Path) -> None:
    folder = checkpoint(
        snapshot(cache, "someone/tuned-llada", "2" * 40, head=True), architectures=["LLaDAModelLM"]
    )
    assert registry.locate("someone/tuned-llada") == folder
    assert registry.canonical("someone/tuned-llada") == "someone/tuned-llada"
    facts = registry.describe("someone/tuned-llada")
    assert (facts.name, facts.family, facts.revision) == ("someone/tuned-llada", "llada", None)
    assert (facts.repo_id, facts.licence, facts.chat) == ("someone/tuned-llada", "not stated", None)


def test_a_hub_id_that_is_not_here_cannot_be_described(cache: Path) -> None:
    with pytest.raises(Missing, match="the weights of 'someone/tuned-llada'"):
        registry.describe("someone/tuned-llada")


@pytest.mark.parametrize("name", ["a/b/c", "a--b/c", "a/b.git", "someone/", "/".join("ab") + "?"])
def test_what_cannot_be_a_hub_id_is_an_unknown_name(cache: Path, name: str) -> None:
    with pytest.raises(UsageProblem, match="no model is called"):
        registry.locate(name)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, ""])
def test_hostile_names_are_usage_errors(name: str) -> None:
    with pytest.raises(UsageProblem):
        registry.locate(name)
