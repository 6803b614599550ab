"""Parameter counts against the tensor bytes of released files."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from dare.models import registry
from dare.models.memory import resting_memory
from dare.models.shape import Experts, Shape

# Tensor bytes of the released files, as their indices or cards give them.
TENSOR_BYTES = {
    "llada-8b": 16_031_162_368,
    "llada-8b-base": 16_031_162_368,
    "llada-1.5": 16_031_162_368,
    "llada-moe-7b": 2 * 7_356_880_896,
    "llada-moe-7b-base": 14_713_761_792,
    "dream-7b": 15_231_233_024,
    "sdar-4b": 8_822_848_512,
    "sdar-8b": 16_381_470_720,
    "sdar-30b": 61_064_245_248,
    "llada2-mini": 32_511_286_784,
    "llada2.1-mini": 32_511_296_512,
}
# Sizes of all files together, and the number of tensors in them.
FILE_BYTES = {
    "llada-8b-base": (16_031_197_112, 291),
    "llada-1.5": (16_031_197_144, 291),
    "llada-moe-7b": (14_714_160_432, 3_219),
    "llada2-flash": (205_782_433_824, 24_161),
    "llada2.1-flash": (205_782_452_128, 24_161),
}
FIXTURES = ("dream", "llada", "llada20", "llada21", "llada_moe", "sdar", "sdar_moe")


@pytest.mark.parametrize(("name", "expected"), TENSOR_BYTES.items())
def test_the_dimensions_fill_the_released_tensors_to_the_byte(name: str, expected: int) -> None:
    assert registry.get(name).tensor_bytes == expected


@pytest.mark.parametrize(("name", "facts"), FILE_BYTES.items())
def test_files_are_the_tensors_and_a_header_of_a_line_per_tensor(
    name: str, facts: tuple[int, int]
) -> None:
    """A safetensors header says name, dtype, shape and offsets: 110 to 130 bytes a tensor."""
    size, tensors = facts
    entry = registry.get(name)
    assert entry.bytes == size
    assert 110 * tensors < size - entry.tensor_bytes < 130 * tensors


def test_the_selection_bias_of_2_1_is_in_float32() -> None:
    """19 layers of 256 numbers, two bytes more for each."""
    old, new = registry.get("llada2-mini"), registry.get("llada2.1-mini")
    assert new.tensor_bytes - old.tensor_bytes == 19 * 256 * 2 == 9_728


def test_a_size_that_no_file_gives_is_that_of_the_tensors() -> None:
    for name in ("sdar-1.7b", "diffucoder", "llada2-flash-cap"):
        entry = registry.get(name)
        assert entry.bytes == entry.tensor_bytes
        assert "computed" in entry.note


# ---- what a token uses ---------------------------------------------------------------------


def test_active_parameters_by_hand() -> None:
    """SDAR-30B-A3B: 120 of 128 experts of 3 x 2048 x 768 are idle in each of 48 layers."""
    shape = registry.get("sdar-30b").shape
    assert shape.parameters - shape.active_parameters == 48 * 120 * 3 * 2048 * 768
    assert shape.active_parameters == 3_353_032_704


def test_llada_moe_is_an_a1b_without_its_embedding() -> None:
    """Attention, router, 8 experts and norms in 16 layers, a last norm, the head: 1.4 G."""
    shape = registry.get("llada-moe-7b").shape
    layer = 4 * 2048 * 2048 + 2048 * 64 + 8 * 3 * 2048 * 1024 + 2 * 2048 + 2 * 128
    expected = 16 * layer + 2048 + 157_184 * 2048
    assert shape.active_parameters - shape.embedding_parameters == expected == 1_397_823_488


def test_a_dense_model_uses_all_it_has() -> None:
    shape = registry.get("dream-7b").shape
    assert shape.active_parameters == shape.parameters


def test_weights_multiplied_with_every_token_of_llada2_mini() -> None:
    """Layer 0 dense; in the others router, eight experts and the shared one; then the head."""
    shape = registry.get("llada2-mini").shape
    attention = 20 * (2048 * (16 + 2 * 4) * 128 + 2048 * 2048)
    mlp = 3 * 2048 * 5120 + 19 * (2048 * 256 + (8 + 1) * 3 * 2048 * 512)
    assert shape.matmul_parameters == attention + mlp + 157_184 * 2048
    assert shape.mlp_width_per_token == 5120 + 19 * (8 + 1) * 512


# ---- a small one of every kind, by hand ----------------------------------------------------

SMALL = Shape(
    d_model=8, n_layers=2, n_heads=3, n_kv_heads=1, head_dim=4, mlp_hidden_size=10, vocab_size=16,
    max_sequence_length=32, tied=False, naming="separate",
)  # fmt: skip
ATTENTION = 8 * 12 + 2 * 8 * 4 + 12 * 8
REST = 2 * 16 * 8 + 5 * 8


def test_an_explicit_head_size_is_not_width_over_heads() -> None:
    assert SMALL.parameters == 2 * (ATTENTION + 3 * 8 * 10) + REST


def test_biases_and_norms_of_queries_and_keys() -> None:
    plain = SMALL.parameters
    assert replace(SMALL, qkv_bias=True).parameters == plain + 2 * (12 + 4 + 4)
    assert replace(SMALL, qk_norm=True).parameters == plain + 2 * 2 * 4
    assert replace(SMALL, tied=True).parameters == plain - 16 * 8


def test_a_mixture_by_hand() -> None:
    """One dense layer of 10, one with 4 experts of 6 of which 2 are used, and a shared 5."""
    mixture = replace(
        SMALL, experts=Experts(4, 2, 6, layers=1, shared_hidden_size=5, selection_bias=True)
    )
    mixed = 8 * 4 + 4 + 4 * 3 * 8 * 6 + 3 * 8 * 5
    assert mixture.parameters == 2 * ATTENTION + 3 * 8 * 10 + mixed + REST
    assert mixture.active_parameters == mixture.parameters - 2 * 3 * 8 * 6
    active = 2 * ATTENTION + 3 * 8 * 10 + 8 * 4 + 2 * 3 * 8 * 6 + 3 * 8 * 5
    assert mixture.matmul_parameters == active + 16 * 8
    assert mixture.quantised_parameters == 2 * ATTENTION + 3 * 8 * 10 + 3 * 8 * 5


@pytest.mark.parametrize(
    ("naming", "names"),
    [
        ("llada", ["q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out"]),
        ("separate", ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
        ("fused", ["query_key_value", "dense", "gate_proj", "up_proj", "down_proj"]),
    ],
)
def test_linear_layers_carry_the_released_names(naming, names: list[str]) -> None:
    shape = replace(SMALL, naming=naming)
    assert [each.name for each in shape.linears()] == names
    assert shape.parameters == SMALL.parameters


def test_adapters_reach_the_shared_expert_and_dense_layers_only() -> None:
    mixture = replace(SMALL, experts=Experts(4, 2, 6, layers=1, shared_hidden_size=5))
    assert mixture.adapter_parameters(3, ("up_proj", "absent")) == 3 * ((8 + 10) + (8 + 5))
    assert mixture.adapter_parameters(3, ("gate",)) == 0


# ---- the tiny official-shaped checkpoints --------------------------------------------------


def stored_numbers(path: Path) -> int:
    """How many numbers a safetensors file holds, from its header."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return sum(prod(each["shape"]) for name, each in header.items() if name != "__metadata__")


@pytest.mark.parametrize("name", FIXTURES)
def test_every_stored_number_is_counted(shared_dir: Path, name: str) -> None:
    folder = shared_dir / "models" / "fixtures" / name
    assert registry.describe(str(folder)).parameters == stored_numbers(folder / "model.safetensors")


# ---- memory at rest ------------------------------------------------------------------------


def test_memory_of_llada_8b_at_rest() -> None:
    """bfloat16 weights; 16 bytes a trained weight; rank 16 on four 4096 x 4096 matrices."""
    memory = resting_memory(registry.get("llada-8b"))
    weights, adapters = 8_015_581_184, 32 * 16 * 4 * (4096 + 4096)
    assert memory.inference_bfloat16 == 2 * weights == 16_031_162_368
    assert memory.inference_float32 == 4 * weights
    assert memory.lora_parameters == adapters == 16_777_216
    assert memory.lora == 2 * weights + 16 * adapters
    assert memory.full == 16 * weights
    assert memory.lora_targets == ("q_proj", "k_proj", "v_proj", "attn_out")


def test_numbers_kept_in_float32_cost_four_bytes() -> None:
    assert resting_memory(registry.get("llada2.1-mini")).inference_bfloat16 == 32_511_296_512
