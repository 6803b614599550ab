"""Names, options and start-up cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dare.algorithms import ALGORITHMS, ALIASES, canonical_name, config_class, make
from dare.errors import UsageProblem


@pytest.mark.parametrize("name", ["grpo", "d1", "diffu-grpo", "diffu_grpo", "Diffu-GRPO"])
def test_spellings(name):
    assert canonical_name(name) == "diffu-grpo"


@pytest.mark.parametrize("name", [*ALGORITHMS, *ALIASES])
def test_every_name_makes_an_algorithm_of_its_own_name(name):
    algorithm = make(name)
    assert algorithm.name == canonical_name(name)
    assert type(algorithm.config) is config_class(name)


def test_defaults_are_the_published_settings():
    d1, spg = make("d1").config, make("spg").config
    assert (d1.epsilon, d1.beta, d1.p_mask_prompt, d1.scale_rewards) == (0.5, 0.04, 0.15, False)
    assert (spg.mc_samples, spg.eubo_beta, spg.omega) == (2, 1.5, 0.5)
    assert (spg.negative_term, spg.masking, spg.block_length) == ("mix", "block_random", 32)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UsageProblem, match="did you mean 'spg'"):
        make("sgp")


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("spg", {"beta": 0.04}, "SPG has no KL term"),
        ("spg", {"eubo_beta": 0.5}, "eubo_beta: "),
        ("spg", {"negative_term": "none"}, "negative_term: "),
        ("grpo", {"p_mask_prompt": 1.5}, "p_mask_prompt: "),
        ("grpo", {"betta": 0.04}, "betta: "),
    ],
)
def test_a_bad_option_is_named(name, options, why):
    with pytest.raises(UsageProblem) as caught:
        make(name, options)
    assert why in caught.value.why
    assert "options: " in caught.value.help


def test_configs_need_no_torch():
    code = (
        "import sys; from dare.algorithms import ALGORITHMS, make;"
        "[make(name) for name in ALGORITHMS];"
        "sys.exit(bool({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
