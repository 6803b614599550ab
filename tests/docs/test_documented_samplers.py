"""docs/samplers.md against the presets and against the model that it was measured on."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from dare.models.loading import encode_prompt, load_model, load_tokenizer
from dare.sampling import presets
from dare.sampling.agreement import agreement
from dare.tasks import sudoku4

DOCS = runpy.run_path(str(Path(__file__).with_name("documents.py")))
TEXT = str((DOCS["ROOT"] / "docs" / "samplers.md").read_text())
ALL = DOCS["table"](TEXT, "sampler")
MEASURED = {row[0].strip("`"): row[1:] for row in DOCS["table"](TEXT, "approximate sampler")}


def test_all_samplers_are_listed_as_they_are() -> None:
    shown = [[row[0].strip("`"), *row[1:]] for row in ALL]
    assert shown == [
        [each.name, each.kind, each.what, each.approximate or "exact", each.arxiv]
        for each in presets.PRESETS.values()
    ]


def test_every_approximate_sampler_of_the_embedded_model_was_measured() -> None:
    approximate = [name for name in presets.names("bidirectional") if not presets.get(name).exact]
    assert list(MEASURED) == [name for name in approximate if "dream" not in name]


def test_the_example_runs() -> None:
    (code,) = [block.text for block in DOCS["blocks"](TEXT) if block.language == "python"]
    names: dict[str, object] = {}
    exec(compile(code, "docs/samplers.md", "exec"), names)
    config = presets.preset("fast-dllm-dual", 256, block_length=64, threshold=0.8)
    assert names["config"] == config


@pytest.mark.parametrize("name", ["ass", "fast-dllm-factor"])
def test_the_measured_agreement(name: str) -> None:
    """Two rows, all 200 puzzles; the others take the same path."""
    model, tokenizer = load_model("tiny-llada"), load_tokenizer("tiny-llada")
    items = sudoku4.load("validation", 200)
    prompts = [encode_prompt(tokenizer, item.question) for item in items]
    block, tokens, identical, forwards = (float(cell) for cell in MEASURED[name])
    config = presets.preset(name, 16, block_length=int(block))
    exact = presets.preset("llada-semi-ar", 16, block_length=int(block))
    found = agreement(model, prompts, config, exact)
    # A near-tie may fall otherwise on another machine.
    assert 100 * found.mean == pytest.approx(tokens, abs=1.0)
    assert 100 * found.identical == pytest.approx(identical, abs=4.0)
    assert found.nfe == pytest.approx(forwards, abs=0.1)
    assert found.exact_nfe == 16
