"""``dare models``: the list, one checkpoint with its memory, folders, Hub ids, what is absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dare.cli import main
from dare.cli.models import size
from dare.models import registry


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def dare(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def document(*words: str) -> Any:
    result = dare(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


# ---- the list ------------------------------------------------------------------------------


def test_the_list_is_that_of_dare_list_models() -> None:
    assert dare("models").stdout == dare("list", "models").stdout
    assert document("models") == document("list", "models")


def test_every_checkpoint_is_one_line(cache: Path) -> None:
    lines = dare("models").stdout.splitlines()
    assert lines[0].split() == ["model", "family", "weights", "GB", "licence", "here", "pin"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert list(rows) == list(registry.names())
    assert rows["llada-8b"] == ["llada", "8.0B", "16.0", "MIT", "no", "strong"]
    assert rows["sdar-30b"] == ["sdar_moe", "31B/3.4B", "61.1", "Apache-2.0", "no", "fair"]
    assert rows["tiny-llada"] == ["llada", "148k", "<0.1", "Apache-2.0", "yes", "-"]
    assert rows["llada2-flash"][1:3] == ["103B/6.2B", "206"]


def test_the_list_as_data(cache: Path) -> None:
    rows = {row["model"]: row for row in document("models")}
    row = rows["sdar-30b"]
    assert (row["parameters"], row["active_parameters"]) == (30_532_122_624, 3_353_032_704)
    assert (row["pin"], row["revision"]) == ("fair", "f5add2a159163a2a8f07e9da7dfcbfaadc73d6d4")
    assert (rows["sdar-4b"]["pin"], rows["sdar-4b"]["revision"]) == ("none", None)


# ---- one checkpoint ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llada2-mini", "tiny-llada"])
def test_dare_show_is_the_same_screen(name: str) -> None:
    one, other = dare("models", "show", name), dare("show", name)
    assert (one.stdout, one.stderr) == (other.stdout, other.stderr)
    assert document("models", "show", name) == document("show", name)


@pytest.mark.parametrize("name", registry.names())
def test_every_checkpoint_can_be_shown_in_80_columns(name: str) -> None:
    result = dare("models", "show", name)
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_memory_on_the_screen(cache: Path) -> None:
    """2, 4 and 16 bytes times 8,015,581,184; LoRA adds 16 x 16,777,216 to the first."""
    result = dare("models", "show", "llada-8b")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for expected in (
        "inference, bfloat16 16.0 GB",
        "inference, float32 32.1 GB",
        "LoRA 16.3 GB",
        "full fine-tuning 128.2 GB",
        "here no",
    ):
        assert expected in lines
    words = " ".join(result.stdout.split())
    assert "16,777,216 adapter weights of rank 16 on q_proj, k_proj, v_proj, attn_out" in words
    assert "not counted: activations, logits, caches, a frozen reference model" in words
    assert result.stderr == (
        "next: dare reproduce d1 --model llada-8b --dry-run\n"
        "      hf download GSAI-ML/LLaDA-8B-Instruct "
        "--revision 08b83a6feb34df1a6011b80c3c00c7563e963b07\n"
    )


def test_the_mixture_on_the_screen() -> None:
    words = " ".join(dare("models", "show", "llada2-mini").stdout.split())
    assert (
        "20 layers of width 2,048, 16 heads of 128, 4 key-value heads, vocabulary 157,184; 19 "
        "layers with 256 experts of width 512 and a shared one of 512, 8 for a token"
    ) in words
    assert "on query_key_value, dense: weight" in words


def test_facts_as_data(cache: Path) -> None:
    facts = document("models", "show", "sdar-30b-a3b-chat-b32")
    assert facts["model"] == "sdar-30b-b32"
    assert (facts["block_length"], facts["sampler"], facts["protocol"]) == (
        32,
        "sdar",
        "not stated",
    )
    assert (facts["here"], facts["commit_here"]) == (None, None)
    assert facts["download"].startswith("hf download JetLM/SDAR-30B-A3B-Chat-b32 --revision c351bb")
    assert facts["memory"]["full"] == 16 * 30_532_122_624
    assert document("models", "show", "sdar-4b")["download"] == "hf download JetLM/SDAR-4B-Chat"


# ---- folders and Hub ids -------------------------------------------------------------------


def tuned(folder: Path) -> Path:
    """A small dense SDAR; ``TUNED`` counts its numbers."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["SDARForCausalLM"], "model_type": "sdar", "hidden_size": 4,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
        "intermediate_size": 6, "vocab_size": 16, "mask_token_id": 15, "eos_token_id": 1,
        "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    return folder


# Embedding and head, q and output of 8, k and v of 4, three of 6, norms of 4, two head norms.
TUNED = 2 * 16 * 4 + 2 * 4 * 8 + 2 * 4 * 4 + 3 * 4 * 6 + 3 * 4 + 2 * 4


@pytest.mark.parametrize("command", [("models", "show"), ("show",)])
def test_a_folder_is_shown(tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = tuned(tmp_path / "mine")
    facts = document(*command, str(folder))
    assert (facts["model"], facts["here"]) == (str(folder), str(folder))
    assert (facts["family"], facts["block_length"]) == ("sdar", 4)
    assert (facts["parameters"], facts["bytes"]) == (TUNED, 100)
    assert (facts["repository"], facts["download"]) == (None, "")
    assert facts["memory"]["inference_bfloat16"] == 2 * TUNED


def test_a_hub_id_in_the_cache_is_shown_with_its_commit(cache: Path) -> None:
    commit = "3" * 40
    folder = tuned(cache / "models--someone--tuned-sdar" / "snapshots" / commit)
    refs = cache / "models--someone--tuned-sdar" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    facts = document("models", "show", "someone/tuned-sdar")
    assert (facts["repository"], facts["commit_here"]) == ("someone/tuned-sdar", commit)
    assert (facts["here"], facts["revision"]) == (str(folder), None)
    assert facts["note"] == "not in the catalogue"


def test_a_folder_with_a_hostile_name_cannot_drive_the_shell(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "a; rm -rf b")
    result = dare("models", "show", str(folder))
    assert result.stderr == f"next: dare reproduce d1 --model '{folder}' --dry-run\n"


# ---- what is not there ---------------------------------------------------------------------


def test_an_unknown_name_suggests_the_nearest() -> None:
    result = dare("models", "show", "sdar8b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no model is called 'sdar8b'" in result.stderr
    assert "did you mean 'sdar-8b'?" in result.stderr


def test_a_hub_id_that_is_not_here(cache: Path) -> None:
    for command in (("models", "show"), ("show",), ("reproduce", "d1", "--model")):
        result = dare(*command, "someone/tuned-dream")
        assert (result.exit_code, result.stdout) == (3, "")
        assert "hf download someone/tuned-dream" in result.stderr


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = dare("models", "show", str(tmp_path / "nothing"))
    assert result.exit_code == 3
    assert "the folder does not exist" in result.stderr


def test_a_folder_of_another_family(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "mine")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["LlamaForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))
    result = dare("models", "show", str(folder))
    assert result.exit_code == 2
    assert "is not a diffusion language model that dare can load" in " ".join(result.stderr.split())
    assert "LlamaForCausalLM" in result.stderr


def test_absent_weights_are_one_error_in_every_command(cache: Path) -> None:
    """Exit status 3 with the line that fetches them, without a revision where none is pinned."""
    for words in (("compare", "grpo", "spg", "--model", "sdar-4b"), ("reproduce", "d1", "--model",
                  "sdar-4b")):  # fmt: skip
        result = dare(*words)
        assert result.exit_code == 3
        assert "hf download JetLM/SDAR-4B-Chat" in " ".join(result.stderr.split())
        assert "--revision" not in result.stderr


@pytest.mark.parametrize(
    ("amount", "text"), [(299_392, "0.3 MB"), (10**8, "0.1 GB"), (16_031_162_368, "16.0 GB")]
)
def test_sizes(amount: int, text: str) -> None:
    assert size(amount) == text
