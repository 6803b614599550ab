"""What every reproduction module must satisfy; a new paper is covered by being there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dare import reproductions, tasks
from dare.algorithms import canonical_name, config_class
from dare.config import Sourced, TrainingConfig, flatten
from dare.errors import UsageProblem
from dare.models import registry
from dare.reproductions import Reproduction

PAPERS = reproductions.names()
CELLS = [
    (name, scale, task)
    for name in PAPERS
    for scale, names in reproductions.load(name).tasks.items()
    for task in names
]


@pytest.fixture(params=PAPERS)
def paper(request: pytest.FixtureRequest) -> Reproduction:
    return reproductions.load(request.param)


def test_the_papers_are_there() -> None:
    assert {"d1", "spg"} <= set(PAPERS)


def test_metadata_loads_without_the_heavy_packages() -> None:
    heavy = ("torch", "transformers", "trl", "datasets", "pandas", "numpy")
    code = (
        "import sys\nfrom dare import reproductions\n"
        "for name in reproductions.names():\n"
        "    paper = reproductions.load(name)\n"
        "    [paper.resolve(s, t) for s, ts in paper.tasks.items() for t in ts]\n"
        f"print([n for n in {heavy!r} if n in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- claims --------------------------------------------------------------------------------


def test_claim_ids_are_unique_and_carry_the_paper(paper: Reproduction) -> None:
    ids = [claim.id for claim in paper.claims]
    assert len(set(ids)) == len(ids)
    assert all(claim_id.startswith(f"{paper.name}/") for claim_id in ids)


def test_a_claim_id_spells_task_and_length(paper: Reproduction) -> None:
    for claim in paper.claims:
        parts = claim.id.split("/")
        assert len(parts) in (3, 4), claim.id
        assert parts[-2] == claim.task
        if claim.gen_length is not None:
            assert parts[-1] == str(claim.gen_length)
        else:
            assert not parts[-1].isdigit(), claim.id


def test_claims_have_a_source_and_a_possible_value(paper: Reproduction) -> None:
    for claim in paper.claims:
        assert claim.source, claim.id
        assert claim.unit in ("percent", "minutes"), claim.id
        assert 0 < claim.value < 100, claim.id


def test_claims_name_known_models_and_existing_baselines(paper: Reproduction) -> None:
    ids = {claim.id for claim in paper.claims}
    for claim in paper.claims:
        assert claim.model in registry.names(), claim.id
        assert claim.baseline is None or claim.baseline in ids, claim.id


def test_every_claim_is_found_by_its_id(paper: Reproduction) -> None:
    for claim in paper.claims:
        assert reproductions.find_claim(claim.id) is claim
    assert paper.claim(paper.headline).id == paper.headline


# ---- configurations ------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "scale", "task"), CELLS)
def test_configurations_are_valid(name: str, scale: str, task: str) -> None:
    config, origins = reproductions.load(name).resolve(scale, task)
    assert (config.paper, config.scale, config.task.name) == (name, scale, task)
    assert config.task.protocol in tasks.get(config.task.name).protocols
    assert config.model.name in registry.names()
    training = config.training
    assert training is not None
    assert training.seed in reproductions.load(name).default_seeds[scale]
    assert training.max_steps % training.num_iterations == 0
    assert set(flatten(config.model_dump(mode="json"))) <= set(origins) | {
        path for path in flatten(config.model_dump(mode="json")) if "." in path
    }


@pytest.mark.parametrize(("name", "scale", "task"), CELLS)
def test_the_algorithm_accepts_its_options(name: str, scale: str, task: str) -> None:
    config, _ = reproductions.load(name).resolve(scale, task)
    assert canonical_name(config.algorithm) == config.algorithm
    options = config_class(config.algorithm)(**config.algorithm_options)
    for option, value in config.algorithm_options.items():
        assert getattr(options, option) == value


@pytest.mark.parametrize(("name", "scale", "task"), CELLS)
def test_every_value_names_its_source(name: str, scale: str, task: str) -> None:
    leaves = flatten(reproductions.load(name).configs(scale, task))
    assert leaves
    for path, leaf in leaves.items():
        assert isinstance(leaf, Sourced), path
        assert leaf.source.strip(), path


@pytest.mark.parametrize("name", PAPERS)
def test_paper_scale_leaves_no_optimiser_value_to_the_defaults(name: str) -> None:
    """A default that changes must not change what a paper is said to have done."""
    leaves = flatten(reproductions.load(name).configs("paper"))
    missing = {f"training.{field}" for field in TrainingConfig.model_fields} - set(leaves)
    assert missing == {"training.min_lr_ratio"}  # constant schedules do not use it


@pytest.mark.parametrize("name", PAPERS)
def test_tiny_methods_spend_the_same(name: str) -> None:
    """``dare compare`` needs equal budgets: same rollouts, updates, sampler and data."""
    config, _ = reproductions.load(name).resolve("tiny")
    reference, _ = reproductions.load("d1").resolve("tiny")
    assert config.rollout == reference.rollout
    assert config.evaluation == reference.evaluation
    assert config.task == reference.task
    assert config.model == reference.model
    assert config.training is not None
    assert reference.training is not None
    spent = {"max_steps", "num_generations", "num_iterations", "per_device_train_batch_size",
             "gradient_accumulation_steps", "num_processes"}  # fmt: skip
    assert config.training.model_dump(include=spent) == reference.training.model_dump(include=spent)


def test_another_model_is_put_in_with_its_origin(paper: Reproduction) -> None:
    config, origins = paper.resolve("tiny", model="llada-8b")
    assert config.model.name == "llada-8b"
    assert origins["model.name"] == "--model"


@pytest.mark.parametrize("scale", ["tiny", "ci", "paper"])
@pytest.mark.parametrize(
    ("model", "family", "expected"),
    [
        ("dream-7b", "dream", {"selection.rule": "dream", "remasking": "entropy"}),
        ("sdar-8b", "sdar", {"block_origin": "sequence", "block_length": 4, "cache": "block"}),
        ("llada2-mini", "llada2_moe", {"block_length": 32, "selection.threshold": 0.95}),
    ],
)
def test_another_family_brings_its_sampler(
    paper: Reproduction, scale: str, model: str, family: str, expected: dict[str, object]
) -> None:
    config, origins = paper.resolve(scale, model=model)
    plain, _ = paper.resolve(scale)
    for part in ("rollout", "evaluation"):
        found = flatten(getattr(config, part).model_dump())
        assert {name: found[name] for name in expected} == expected
        assert all(origins[f"{part}.{name}"].startswith(f"family {family}: ") for name in expected)
        kept = {"gen_length", "steps", "temperature", "cfg_scale"}
        assert getattr(config, part).model_dump(include=kept) == getattr(plain, part).model_dump(
            include=kept
        )


def test_fused_projections_get_the_adapters(paper: Reproduction) -> None:
    config, origins = paper.resolve("paper", model="llada2-mini")
    assert config.model.lora is not None
    assert config.model.lora.target_modules == ("query_key_value", "dense")
    assert origins["model.lora.target_modules"].startswith("family llada2_moe: ")


def test_the_same_family_keeps_the_sampler_of_the_recipe(paper: Reproduction) -> None:
    config, _ = paper.resolve("tiny", model="llada-8b")
    plain, _ = paper.resolve("tiny")
    assert (config.rollout, config.evaluation) == (plain.rollout, plain.evaluation)


def test_flags_win_over_the_paper(paper: Reproduction) -> None:
    config, origins = paper.resolve("paper", layers={"--set": {"training.learning_rate": 1e-5}})
    assert config.training is not None
    assert config.training.learning_rate == 1e-5
    assert origins["training.learning_rate"] == "--set"


# ---- deviations ----------------------------------------------------------------------------


def test_deviations_are_unique_and_cover_every_scale(paper: Reproduction) -> None:
    ids = [deviation.id for deviation in paper.deviations]
    assert len(set(ids)) == len(ids)
    assert {deviation.scale for deviation in paper.deviations} == {"all", "paper", "tiny", "ci"}
    assert all(each.what and each.why for each in paper.deviations)


def test_switches_are_config_paths(paper: Reproduction) -> None:
    for deviation in paper.deviations:
        if deviation.switch is None:
            continue
        scale = "tiny" if deviation.scale in ("tiny", "ci") else "paper"
        paths = flatten(paper.configs(scale))
        assert any(
            path == deviation.switch or path.startswith(f"{deviation.switch}.") for path in paths
        ), deviation


# ---- loading -------------------------------------------------------------------------------


@pytest.mark.parametrize("alias", ["grpo", "diffu-grpo", "diffu_grpo", "GRPO", "D1"])
def test_an_algorithms_name_finds_its_paper(alias: str) -> None:
    assert reproductions.load(alias).name == "d1"


def test_aliases_lead_to_papers() -> None:
    assert reproductions.aliases()["grpo"] == "d1"
    assert set(reproductions.aliases().values()) <= set(PAPERS)


@pytest.mark.parametrize(
    ("call", "told", "nearest"),
    [
        (lambda: reproductions.load("spgg"), "no paper is called 'spgg'", "'spg'"),
        (lambda: reproductions.find_claim("d1/gsm8k/250"), "no claim is called", "'d1/gsm8k/256'"),
        (lambda: reproductions.find_claim("d3/gsm8k/256"), "no paper is called 'd3'", "'d1'"),
        (lambda: reproductions.find_claim("d1"), "'d1' is not a claim id", ""),
        (lambda: reproductions.load("d1").configs("papre"), "no scale of d1", "'paper'"),
        (lambda: reproductions.load("d1").configs("paper", "gsm8"), "no task of d1", "'gsm8k'"),
        (lambda: reproductions.load("d1").configs("tiny", "gsm8k"), "no task of d1", ""),
    ],
)
def test_unknown_names(call, told: str, nearest: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        call()
    assert told in caught.value.what
    assert nearest in caught.value.help


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second tree of reproductions, searched as the real one is."""
    real = reproductions.tree("reproductions")
    for file in real.glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    monkeypatch.setattr(reproductions, "tree", lambda name: tmp_path)
    monkeypatch.setattr(reproductions, "__path__", [*reproductions.__path__, str(tmp_path)])
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch, stem: str) -> None:
    """Undo an import when the test ends."""
    monkeypatch.delitem(sys.modules, f"dare.reproductions.{stem}", raising=False)


def test_a_new_file_is_a_new_paper(extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (extra / "spg.py").read_text()
    text = text.replace('id="spg"', 'id="new-method"').replace('"spg/', '"new-method/')
    text = text.replace('paper="spg"', 'paper="new-method"')
    text = text.replace('ResultsTable(\n    "spg"', 'ResultsTable(\n    "new-method"')
    (extra / "new_method.py").write_text(text)
    forget(monkeypatch, "new_method")
    assert "new-method" in reproductions.names()
    paper = reproductions.load("new_method")
    assert paper.claim("new-method/gsm8k/256").value == 86.1
    forget(monkeypatch, "new_method")


@pytest.mark.parametrize(
    ("stem", "text", "told"),
    [
        ("hollow_paper", "", "PAPER is not a Paper"),
        ("crashing_paper", "1 / 0", "ZeroDivisionError"),
        ("typo_paper", "def", "SyntaxError"),
    ],
)
def test_a_broken_module_is_named_and_harms_no_other(
    extra: Path, monkeypatch: pytest.MonkeyPatch, stem: str, text: str, told: str
) -> None:
    (extra / f"{stem}.py").write_text(text)
    with pytest.raises(UsageProblem) as caught:
        reproductions.load(stem)
    assert f"reproductions/{stem}.py" in caught.value.what
    assert told in caught.value.why
    assert reproductions.load("grpo").name == "d1"
    forget(monkeypatch, stem)


def test_a_module_with_a_claim_twice_is_refused(
    extra: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (extra / "twice.py").write_text(
        "from dare.reproductions.d1 import *\n"
        "from dare.reproductions.d1 import PAPER as _P, CLAIMS as _C, configs\n"
        "PAPER = _P.model_copy(update={'id': 'twice'})\n"
        "CLAIMS = (_C[0].model_copy(update={'id': 'twice/gsm8k/128'}),) * 2\n"
        "HEADLINE = 'twice/gsm8k/128'\n"
    )
    with pytest.raises(UsageProblem) as caught:
        reproductions.load("twice")
    assert "claim ids used twice: twice/gsm8k/128" in caught.value.why
    forget(monkeypatch, "twice")
