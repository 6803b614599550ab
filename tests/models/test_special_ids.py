"""Where the ids of mask, end of text, end of turn and padding come from."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dare.errors import UsageProblem
from dare.models.special import SpecialTokens
from dare.models.tokens import load_tokenizer, special_ids

FILES = runpy.run_path(str(Path(__file__).with_name("tokenizer_files.py")))
SPECIAL, token_id, with_json = FILES["SPECIAL"], FILES["token_id"], FILES["with_json"]

RELEASED = {
    "llada": SpecialTokens(126336, 126081, 126348, 126081, (126081, 126348)),
    "llada_moe": SpecialTokens(156895, 156892, None, 156892, (156892,)),
    "dream": SpecialTokens(151666, 151643, 151645, 151643, (151643, 151645)),
    "sdar": SpecialTokens(151669, 151643, 151645, 151643, (151643, 151645)),
    "sdar_moe": SpecialTokens(151669, 151643, 151645, 151643, (151643, 151645)),
    "llada2_moe": SpecialTokens(156895, 156892, None, 156892, (156892,)),
}


@pytest.mark.parametrize("family", RELEASED)
def test_the_family_knows_what_config_and_tokenizer_lack(family: str) -> None:
    """As SDAR-30B and LLaDA2.x are released: no mask id in the config."""
    assert special_ids({"vocab_size": 157_184}, None, family, "x") == RELEASED[family]


def test_the_config_goes_first(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(with_json(tmp_path, "llada"))
    config = {
        "vocab_size": 448, "mask_token_id": 431, "eos_token_id": 427, "eot_token_id": 5,
        "pad_token_id": 0,
    }  # fmt: skip
    assert special_ids(config, tokenizer, "llada", "x") == SpecialTokens(431, 427, 5, 0, (427, 5))
    assert special_ids(SimpleNamespace(**config), tokenizer, "llada", "x").mask == 431


@pytest.mark.parametrize("family", SPECIAL)
def test_the_tokenizer_goes_second(tmp_path: Path, family: str) -> None:
    tokenizer = load_tokenizer(with_json(tmp_path, family))
    ends = {"llada": "<|eot_id|>", "llada2_moe": "<|role_end|>"}
    found = special_ids({"vocab_size": 157_184}, tokenizer, family, "x")
    assert found.eos == found.pad == token_id(family, "<|endoftext|>")
    assert found.eot == token_id(family, ends.get(family, "<|im_end|>"))
    assert found.mask == tokenizer.mask_token_id
    assert found.stop == (found.eos, found.eot)


def test_an_embedding_may_have_more_rows_than_the_vocabulary() -> None:
    config = {"vocab_size": 10, "embedding_size": 20, "mask_token_id": 15, "eos_token_id": 1}
    assert special_ids(config, None, "llada", "x").mask == 15


def test_several_ends_of_text_all_stop() -> None:
    config = {"vocab_size": 20, "mask_token_id": 15, "eos_token_id": [3, 4], "eot_token_id": 4}
    assert special_ids(config, None, "sdar", "x").stop == (3, 4)


def test_one_of_end_and_padding_serves_for_both() -> None:
    config = {"vocab_size": 20, "mask_token_id": 15, "pad_token_id": 3}
    found = special_ids(config, None, "llada2_moe", "x")
    assert (found.eos, found.pad, found.stop) == (3, 3, (3,))
    found = special_ids(config | {"pad_token_id": None, "eos_token_id": 7}, None, "llada", "x")
    assert (found.eos, found.pad) == (7, 7)


def test_an_unknown_mask_says_what_to_set(tmp_path: Path) -> None:
    config = {"vocab_size": 448, "pad_token_id": 427}
    with pytest.raises(UsageProblem) as caught:
        special_ids(config, None, "llada2_moe", "mine")
    assert caught.value.what == "the mask token id of 'mine' is not known"
    assert caught.value.why == (
        "its config.json has no mask_token_id, and 156895, which the released llada2_moe models "
        "have, is outside its vocabulary of 448"
    )
    assert caught.value.help == 'set "mask_token_id" in its config.json'
    with pytest.raises(UsageProblem, match="the mask token id") as caught:
        special_ids({"vocab_size": 448, "eos_token_id": 1}, tokenizer_without_mask(tmp_path),
                    "sdar", "mine")  # fmt: skip
    assert "its tokenizer has no <|MASK|>, <MASK>" in caught.value.why


def tokenizer_without_mask(tmp_path: Path):
    folder = with_json(tmp_path / "maskless", "dream")
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("<|mask|>", "<|other|>"))
    return load_tokenizer(folder)


def test_an_unknown_end_of_text() -> None:
    with pytest.raises(UsageProblem, match="the eos token id of 'mine' is not known"):
        special_ids({"vocab_size": 448, "mask_token_id": 4}, None, "dream", "mine")


@pytest.mark.parametrize("wrong", [448, -1, True, "4", 4.0, [3, 448]])
def test_an_id_outside_the_vocabulary_is_refused(wrong: Any) -> None:
    config = {"vocab_size": 448, "mask_token_id": wrong, "eos_token_id": 1}
    with pytest.raises(UsageProblem, match="the mask token id of 'mine' is") as caught:
        special_ids(config, None, "llada", "mine")
    assert "0 to 447" in caught.value.why


def test_a_config_without_a_vocabulary() -> None:
    with pytest.raises(UsageProblem, match="the vocabulary of 'mine' is not known"):
        special_ids({}, None, "llada", "mine")
