"""Agreement of two samplers, by hand and on the embedded model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dare.models.loading import encode_prompt, load_model, load_tokenizer
from dare.sampling.agreement import agreement, compare
from dare.sampling.candidates import SpecialTokens
from dare.sampling.canvas import Generation
from dare.sampling.presets import preset
from dare.tasks import sudoku4

EOS = 9
SPECIAL = SpecialTokens(mask=8, eos=EOS)


def generation(rows: list[list[int]], nfe: list[int]) -> Generation:
    tokens = torch.tensor(rows)
    blank: Tensor = torch.zeros_like(tokens)
    return Generation(tokens, blank, blank.float(), torch.tensor(nfe), torch.ones(len(rows)) > 0)


def test_shares_up_to_the_longer_answer() -> None:
    exact = generation([[1, 2, 3, 4], [1, 2, EOS, 5], [1, EOS, EOS, EOS]], [4, 4, 4])
    ours = generation([[1, 2, 0, 4], [1, 2, EOS, 6], [1, 2, EOS, 7]], [2, 1, 3])
    found = compare(ours, exact, SPECIAL)
    assert found.rows == pytest.approx((3 / 4, 1.0, 2 / 3))
    assert found.mean == pytest.approx((3 / 4 + 1 + 2 / 3) / 3)
    assert found.identical == pytest.approx(1 / 3)
    assert (found.nfe, found.exact_nfe, found.nfe_ratio) == (2.0, 4.0, 0.5)


def test_unequal_lengths_are_refused() -> None:
    model = load_model("tiny-llada")
    with pytest.raises(ValueError, match="unequal length"):
        agreement(model, [], preset("llada", 16), preset("llada", 8))


def test_parallel_decoding_saves_forwards_and_changes_few_tokens() -> None:
    model, tokenizer = load_model("tiny-llada"), load_tokenizer("tiny-llada")
    items = sudoku4.load("validation", 20)
    prompts = [encode_prompt(tokenizer, item.question) for item in items]
    exact = preset("llada", 16)
    assert agreement(model, prompts, exact, exact).rows == (1.0,) * 20
    fast = agreement(model, prompts, preset("fast-dllm", 16), exact)
    assert 0.9 < fast.mean <= 1.0
    assert fast.nfe_ratio < 0.8
    assert agreement(model, [], exact, exact).mean == 1.0
