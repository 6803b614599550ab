"""Named samplers: what is there, what they may run on, and how they are refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dare.errors import UsageProblem
from dare.models import registry
from dare.models.facts import FAMILIES
from dare.sampling import presets
from dare.sampling.config import SamplerConfig
from dare.sampling.preset_table import APPROXIMATE, PAPERS, SETTINGS
from dare.sampling.rules import RULES


@pytest.mark.parametrize("length", [16, 64, 256])
@pytest.mark.parametrize("name", presets.names())
def test_every_preset_has_valid_settings(name: str, length: int) -> None:
    config = presets.preset(name, length)
    assert config.gen_length == length
    assert SamplerConfig.model_validate_json(config.model_dump_json()) == config


def test_every_rule_has_a_preset() -> None:
    used = {presets.preset(name, 16).selection.rule for name in presets.names()}
    assert used == set(RULES)


def test_papers_are_cited() -> None:
    assert {entry[2] for entry in SETTINGS.values()} == set(PAPERS)
    assert all(presets.get(name).arxiv[4] == "." for name in presets.names())
    assert set(APPROXIMATE) < set(presets.names())


def test_the_samplers_of_the_families_are_exact_presets_of_their_kind() -> None:
    for family in FAMILIES.values():
        found = presets.get(family.sampler)
        assert found.exact
        assert (found.kind == "block-causal") == (family.block_length is not None)
    for checkpoint in registry.CHECKPOINTS:
        assert presets.get(checkpoint.sampler).exact


def test_caches_for_bidirectional_models_and_parallel_rules_are_not_exact() -> None:
    for name in presets.names("bidirectional"):
        config = presets.preset(name, 64)
        adaptive = config.selection.rule not in ("schedule", "dream", "origin")
        if adaptive or config.cache != "none":
            assert not presets.get(name).exact, name


@pytest.mark.parametrize(
    ("name", "length", "expected"),
    [
        ("llada", 256, {"steps": 256, "block_length": 256}),
        ("llada-semi-ar", 256, {"steps": 256, "block_length": 32}),
        ("fast-dllm-dual", 256, {"steps": 256, "block_length": 32, "cache": "dual"}),
        ("maskgit", 512, {"steps": 128, "block_length": 128}),
        ("eoser", 128, {"steps": 64, "block_length": 128}),
        ("ass", 100, {"steps": 6, "block_length": 100}),
        ("sdar", 10, {"steps": 12, "block_length": 4, "cache": "block"}),
        ("llada2", 2048, {"steps": 2048, "block_length": 32, "eos_stop": "block"}),
    ],
)
def test_lengths_of_the_authors(name: str, length: int, expected: dict[str, Any]) -> None:
    config = presets.preset(name, length)
    assert {key: getattr(config, key) for key in expected} == expected


def test_settings_of_the_sampler_and_of_its_rule_can_be_overridden() -> None:
    config = presets.preset("fast-dllm", 64, block_length=16, threshold=0.5, temperature=0.3)
    assert (config.block_length, config.steps, config.temperature) == (16, 64, 0.3)
    assert config.selection.model_dump() == {"rule": "threshold", "threshold": 0.5}
    replaced = presets.preset("fast-dllm", 64, selection={"rule": "factor", "factor": 0.8})
    assert replaced.selection.rule == "factor"
    assert presets.preset("fast-dllm", 64).selection.model_dump()["threshold"] == 0.9


@pytest.mark.parametrize(
    ("name", "length", "settings", "words"),
    [
        ("fast-dlm", 16, {}, "did you mean 'fast-dllm'"),
        ("sdar", 16, {"kind": "bidirectional"}, "for block-causal models"),
        ("llada", 16, {"kind": "block-causal"}, "for bidirectional models"),
        ("fast-dllm", 100, {}, "not a multiple of block_length 32"),
        ("fast-dllm", 16, {"treshold": 0.5}, "did you mean 'threshold'"),
        ("fast-dllm", 16, {"threshold": 2}, "less than or equal to 1"),
        ("ass", 16, {"num_blocks": 9}, "no more blocks than that"),
        ("llada", 0, {}, "greater than 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, length: int, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageProblem) as caught:
        presets.preset(name, length, **settings)
    assert words in str(caught.value)
    assert "dare list samplers" in caught.value.help


def test_names_are_read_in_any_spelling() -> None:
    assert presets.get("Fast_dLLM").name == "fast-dllm"
    assert presets.get("llada2.1").name == "llada2.1-quality"


def test_listing_samplers_imports_no_torch() -> None:
    code = "import sys, dare.sampling.presets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
