"""What a recorder says about rounds, by hand and on a real generation."""

from __future__ import annotations

import pytest
import torch

from dare.models.loading import load_model, load_tokenizer
from dare.sampling.candidates import SpecialTokens
from dare.sampling.canvas import Canvas
from dare.sampling.config import SamplerConfig
from dare.sampling.decode import generate
from dare.sampling.presets import preset
from dare.sampling.trajectory import BATCH, Changes, Recorder, Trajectory

MASK = 9


def test_rounds_commit_edit_and_mask_again() -> None:
    seen = Trajectory.blank(MASK, 4)
    for tokens in ([1, MASK, 2, MASK], [1, 3, 4, MASK], [MASK, 3, 4, 5], [6, 3, 4, 5]):
        seen.see(tokens)
    assert seen.rounds == [
        Changes({0: 1, 2: 2}, {}, {}),
        Changes({1: 3}, {2: (2, 4)}, {}),
        Changes({3: 5}, {}, {0: 1}),
        Changes({0: 6}, {}, {}),
    ]
    assert (seen.tokens, seen.written) == ([6, 3, 4, 5], [4, 2, 2, 3])
    assert (seen.edited, seen.remasked, seen.filled) == ({2}, set(), 4)


def test_a_mask_that_was_a_token_is_remembered_until_it_is_filled() -> None:
    seen = Trajectory.blank(MASK, 2)
    seen.see([1, MASK])
    seen.see([MASK, MASK])
    assert (seen.remasked, seen.filled, seen.written) == ({0}, 0, [0, 0])
    again = Trajectory.blank(MASK, 2)
    for changes in seen.rounds:
        again.apply(changes)
    assert again == seen


def test_many_rounds_are_read_in_batches_and_in_order() -> None:
    length = BATCH + 5
    config = SamplerConfig(gen_length=length, steps=length, block_length=length)
    special = SpecialTokens(mask=MASK, eos=None)
    canvas = Canvas.start([[1, 2, 3]], config, special, [length], torch.device("cpu"))
    recorder = Recorder(length)
    for position in range(length):
        canvas.ids[0, 3 + position] = 4
        recorder(canvas)
    assert [list(each.committed) for each in recorder.catch_up().rounds] == [
        [position] for position in range(length)
    ]


@pytest.mark.parametrize("name", ["llada", "saber", "fast-dllm-dual"])
def test_a_real_generation_is_retraced(name: str) -> None:
    model, tokenizer = load_model("tiny-llada"), load_tokenizer("tiny-llada")
    prompt = tokenizer("1030040201434001", add_special_tokens=False)["input_ids"]
    recorder = Recorder(16)
    out = generate(model, [prompt], preset(name, 16), watch=recorder)
    seen = recorder.catch_up()
    assert seen.tokens == out.tokens[0].tolist()
    assert len(seen.rounds) == int(out.nfe[0])
    # A later commit step is a later round, and equal ones are the same round.
    steps = out.commit_step[0].tolist()
    order = sorted(set(steps))
    assert [sorted(set(seen.written)).index(each) for each in seen.written] == [
        order.index(step) for step in steps
    ]
