"""``dare generate`` as a user meets it: real runs of the embedded model, and refusals."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dare.cli import _generation_setup as setup
from dare.cli import main
from dare.errors import Missing
from dare.models import registry
from dare.models.loading import encode_prompt, load_model, load_tokenizer
from dare.models.weights import weights_sha256
from dare.sampling.decode import generate
from dare.sampling.presets import preset

PUZZLE = "1030040201434001"
TINY = registry.EMBEDDED / "tiny-llada"


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def dare(*words: object, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["generate", *map(str, words)], input=given)


def document(*words: object, given: str | None = None) -> dict[str, Any]:
    done = dare(*words, "--json", given=given)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def greedy() -> str:
    """What the loop itself gives for the puzzle, in 8 steps."""
    tokenizer = load_tokenizer("tiny-llada")
    config = preset("llada", 16, steps=8)
    out = generate(load_model("tiny-llada"), [encode_prompt(tokenizer, PUZZLE)], config)
    return str(tokenizer.decode(out.tokens[0].tolist()))


# ---- what it prints ------------------------------------------------------------------------


def test_the_text_is_on_stdout_and_its_measures_on_stderr(greedy: str) -> None:
    done = dare("tiny-llada", PUZZLE)
    assert (done.exit_code, done.stdout) == (0, f"{greedy}\n")
    lines = done.stderr.splitlines()
    assert lines[0] == "loading torch and tiny-llada ..."
    assert lines[1].startswith("16 tokens (no stop token) in 0.")
    assert lines[1].endswith(" tokens/s")
    assert lines[2:] == [
        "8 forwards, 0.50 per token",
        "sampler llada (approximate: takes 8 steps, not 16), no randomness",
        f"next: dare generate tiny-llada {PUZZLE} --agreement",
        "      dare list samplers",
    ]


@pytest.mark.parametrize("way", ["stdin", "file", "raw", "alias"])
def test_a_prompt_comes_from_anywhere(way: str, greedy: str, tmp_path: Path) -> None:
    file = tmp_path / "prompt"
    file.write_text(f"{PUZZLE}\r\n")
    words: dict[str, tuple[object, ...]] = {
        "stdin": ("tiny-llada", "-"),
        "file": ("tiny-llada", "--file", file),
        "raw": ("tiny-llada", PUZZLE, "--raw"),
        "alias": ("TINY", PUZZLE),
    }
    assert dare(*words[way], given=f"{PUZZLE}\n").stdout == f"{greedy}\n"


def test_the_document_holds_all_that_is_needed_to_repeat_it(greedy: str) -> None:
    found = document("tiny-llada", PUZZLE)
    tokenizer = load_tokenizer("tiny-llada")
    ids = encode_prompt(tokenizer, PUZZLE)
    assert list(found) == ["model", "prompt", "sampler", "seed", "agreement", "samples"]
    assert found["model"] == {
        "name": "tiny-llada", "family": "llada", "revision": None,
        "weights_sha256": weights_sha256(TINY), "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    assert found["prompt"] == {
        "text": PUZZLE, "system": None, "raw": False, "rendered": PUZZLE, "ids": ids,
    }  # fmt: skip
    assert (found["sampler"]["name"], found["sampler"]["exact"]) == ("llada", False)
    assert found["sampler"]["approximate"] == "takes 8 steps, not 16"
    assert found["sampler"]["config"] == preset("llada", 16, steps=8).model_dump(mode="json")
    (one,) = found["samples"]
    assert one["text"] == "".join(one["token_texts"]) == tokenizer.decode(one["tokens"]) == greedy
    assert (one["answer_tokens"], one["nfe"], one["finished"], one["stopped"]) == (
        16, 8, True, False,
    )  # fmt: skip
    assert one["tokens_per_second"] == pytest.approx(16 / one["seconds"])
    assert all(0 < each <= 1 for each in one["confidence"])


def test_the_trajectory_leads_to_the_tokens() -> None:
    (one,) = document("tiny-llada", PUZZLE, "--sampler", "saber")["samples"]
    assert len(one["trajectory"]) == one["nfe"]
    canvas: dict[int, int] = {}
    for number, each in enumerate(one["trajectory"], 1):
        assert each["round"] == number
        for change in (*each["committed"], *each["edited"]):
            canvas[change["position"]] = change["token"]
        for change in each["remasked"]:
            assert canvas.pop(change["position"]) == change["token"]
    assert [canvas[position] for position in range(16)] == one["tokens"]
    assert any(each["remasked"] for each in one["trajectory"])


@pytest.mark.parametrize("name", [each.name for each in registry.CHECKPOINTS if not each.repo_id])
def test_every_family_generates_with_its_own_sampler(name: str) -> None:
    found = document(name, PUZZLE)
    (one,) = found["samples"]
    assert found["model"]["family"] == registry.get(name).family
    assert found["sampler"]["name"].startswith(registry.get(name).sampler)
    assert found["sampler"]["approximate"] in ("", "takes 8 steps, not 16")
    assert len(one["text"]) == 16
    assert set(one["text"]) <= set("1234")
    assert one["finished"]
    assert sum(len(each["committed"]) for each in one["trajectory"]) == 16


def test_a_sample_depends_on_seed_and_number_alone() -> None:
    def tokens(*words: object) -> list[list[int]]:
        found = document("tiny-llada", "0" * 16, "--temperature", 1, *words)
        return [one["tokens"] for one in found["samples"]]

    three = tokens("-n", 3, "--seed", 5)
    assert tokens("-n", 2, "--seed", 5) == three[:2]
    assert three[0] != three[1]
    assert tokens("--seed", 6)[0] != three[0]


def test_samples_that_must_be_equal_are_announced() -> None:
    done = dare("tiny-llada", PUZZLE, "-n", 2)
    first, second = done.stdout.splitlines()
    assert first == second
    assert "all samples are the same: add --temperature" in done.stderr
    assert "sample 2/2" in done.stderr


def test_agreement_with_the_official_sampler() -> None:
    same = document("tiny-llada", PUZZLE, "--steps", 16, "--agreement")["agreement"]
    assert (same["mean"], same["identical"], same["nfe_ratio"]) == (1.0, 1.0, 1.0)
    words = ("tiny-llada", PUZZLE, "--sampler", "fast-dllm", "--agreement")
    found = document(*words)
    nfe = found["samples"][0]["nfe"]
    assert (found["agreement"]["nfe"], found["agreement"]["exact_nfe"]) == (nfe, 16)
    done = dare(*words)
    assert "sampler fast-dllm (approximate: fixes several positions" in done.stderr
    assert f"{nfe} forwards against 16, ratio {nfe / 16:.2f}" in " ".join(done.stderr.split())


# ---- settings ------------------------------------------------------------------------------


def test_flags_are_stronger_than_set_and_set_than_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DARE_SAMPLER__TEMPERATURE", "0.5")
    monkeypatch.setenv("DARE_SAMPLER__TOP_K", "3")
    monkeypatch.setenv("DARE_SAMPLER__STEPS", "4")
    words = ("--set", "sampler.top_k=2", "--set", "sampler.steps=8", "--steps", 16)
    config = document("tiny-llada", PUZZLE, *words)["sampler"]["config"]
    assert (config["temperature"], config["top_k"], config["steps"]) == (0.5, 2, 16)


def test_settings_of_the_rule() -> None:
    facts = registry.describe("tiny-llada")

    def rule(name: str, **settings: Any) -> dict[str, Any]:
        paths = {f"sampler.{key}": value for key, value in settings.items()}
        chosen = setup.choose_sampler(facts, name, {}, paths)
        return chosen.config.selection.model_dump()

    wanted = {"rule": "threshold", "threshold": 0.5}
    assert rule("fast-dllm", threshold=0.5) == wanted
    assert rule("fast-dllm", **{"selection.threshold": 0.5}) == wanted
    assert rule("llada", **{"selection.rule": "threshold", "threshold": 0.5}) == wanted
    kept = rule("eoser", **{"selection.eos_rejection.g_min": 0.1})
    assert kept["eos_rejection"] == {"g_min": 0.1, "g_max": 1.0}


@pytest.mark.parametrize(
    ("name", "path", "value", "said"),
    [
        ("llada", "sampler.steps", 8, "takes 8 steps, not 16"),
        ("llada", "sampler.cache", "dual", "stale keys and values (cache 'dual')"),
        ("llada", "sampler.selection.rule", "threshold", "the rule 'threshold', not 'schedule'"),
        ("llada", "sampler.remasking", "margin", "by 'margin', not 'low_confidence'"),
        ("dream", "sampler.steps", 16, "by the rule 'dream', not 'schedule'"),
        ("fast-dllm", "sampler.top_k", 1, "fixes several positions from one forward"),
        ("llada", "sampler.top_k", 1, ""),
    ],
)
def test_a_sampler_that_was_changed_is_no_longer_exact(
    name: str, path: str, value: object, said: str
) -> None:
    facts = registry.describe("tiny-llada")
    settings = {"sampler.steps": 16, path: value}  # one token a step but for what is set
    found = setup.choose_sampler(facts, name, {}, settings).approximate
    assert said in found
    assert bool(said) == bool(found)


def test_lengths_that_suit_the_model() -> None:
    def lengths(name: str, **flags: Any) -> tuple[int, int, int]:
        config = setup.choose_sampler(registry.describe(name), None, flags, {}).config
        return config.gen_length, config.steps, config.block_length

    assert lengths("tiny-llada") == (16, 8, 16)
    assert lengths("tiny-llada", gen_length=16) == (16, 8, 16)
    assert lengths("tiny-llada", gen_length=24) == (24, 12, 24)
    assert lengths("tiny-llada", gen_length=24, block_length=3) == (24, 8, 3)
    assert lengths("llada-8b") == (128, 128, 128)
    assert lengths("llada-8b", gen_length=64, steps=32) == (64, 32, 64)
    assert lengths("sdar-8b")[::2] == (128, 4)
    assert lengths("sdar-8b-b32")[::2] == (128, 32)


# ---- refusals ------------------------------------------------------------------------------

REFUSED = [
    (("tiny-lada", "x"), 2, "did you mean 'tiny-llada'"),
    (("tiny-llada", "x", "--sampler", "fastdllm"), 2, "did you mean 'fast-dllm'"),
    (("tiny-llada", "x", "--sampler", "sdar"), 2, "'sdar' is for block-causal models"),
    (("sdar-8b", "x", "--sampler", "llada"), 2, "'llada' is for bidirectional models"),
    (("tiny-llada", "x", "--gen-length", 20, "--block-length", 8), 2,
     "help: --gen-length 24 or --block-length 5"),
    (("tiny-llada", "x", "--block-length", 4, "--steps", 6), 2,
     "steps 6 is not a multiple of the 4 blocks"),
    (("tiny-llada", "x", "--temperature", -1), 2, "--temperature"),
    (("tiny-llada", "x", "--set", "temperature=1"), 2, "--set sampler.temperature=VALUE"),
    (("tiny-llada", "x", "--set", "sampler.temprature=1"), 2, "did you mean 'temperature'"),
    (("tiny-llada", "x", "--set", "sampler.selection.rule=tresh"), 2, "did you mean 'thr"),
    (("tiny-llada", "x", "--set", "sampler.selection.thr=1"), 2, "known: eos_rejection, rule"),
    (("tiny-llada", "x", "--set", "sampler.gen_length=x"), 2, "length cannot be 'x'"),
    (("tiny-llada",), 2, "there is no prompt"),
    (("tiny-llada", "x", "--file", "y"), 2, "there are two prompts"),
    (("tiny-llada", "--file", "no/such/file"), 2, "cannot read the prompt from no/such/file"),
    (("tiny-llada", "x", "--raw", "--system", "y"), 2, "exclude each other"),
    (("tiny-llada", "x", "--device", "gpu"), 2, "known: cpu, cuda"),
    (("./no-such-folder", "x"), 3, "there is no checkpoint at no-such-folder"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "status", "said"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_loaded(
    words: tuple[object, ...], status: int, said: str
) -> None:
    done = dare(*words)
    assert (done.exit_code, done.stdout) == (status, "")
    assert said in " ".join(done.stderr.split())
    assert "help: " in done.stderr
    assert "loading" not in done.stderr


def test_missing_weights_cost_3_with_the_line_that_fetches_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_cached_snapshot", lambda *_: None)
    done = dare("llada-8b", "hello")
    assert done.exit_code == 3
    assert "help: hf download GSAI-ML/LLaDA-8B-Instruct --revision 08b83a6f" in done.stderr


def test_a_prompt_that_is_no_text_or_too_long_is_refused(tmp_path: Path) -> None:
    assert "it is no UTF-8" in dare("tiny-llada", "-", given=b"\xff\xfe").stderr
    huge = tmp_path / "huge"
    huge.write_bytes(b"1" * (setup.LONGEST_PROMPT + 1))
    said = " ".join(dare("tiny-llada", "--file", huge).stderr.split())
    assert "longer than 4,000,000 bytes" in said
    done = dare("tiny-llada", "1" * 120)
    assert done.exit_code == 2
    assert "120 + 16 tokens; 'tiny-llada' was made for 128" in done.stderr
    assert "help: --gen-length 8 or less" in done.stderr


def test_characters_outside_the_vocabulary_are_announced() -> None:
    said = " ".join(dare("tiny-llada", "Why 1?").stderr.split())
    assert "4 of 6 prompt tokens are unknown to this model; try: dare generate tiny" in said


def test_a_model_that_does_not_fit_is_refused_unless_forced(
    monkeypatch: pytest.MonkeyPatch, greedy: str
) -> None:
    monkeypatch.setattr(setup, "free_memory", lambda: 500_000)
    words = ("tiny-llada", PUZZLE, "--device", "cpu")
    done = dare(*words)
    assert done.exit_code == 3
    assert "loading" not in done.stderr
    assert "take 0.0 GB as float32, and 0.0 GB are free" in done.stderr
    assert dare(*words, "--force").stdout == f"{greedy}\n"


def test_memory_needed_and_free(tmp_path: Path) -> None:
    big = registry.describe("llada-8b")
    assert setup.default_dtype(big) == "bfloat16"
    setup.check_memory(big, "bfloat16", 2 * big.parameters, "x")
    setup.check_memory(big, "bfloat16", None, "x")
    with pytest.raises(Missing, match="does not fit into the memory of x") as caught:
        setup.check_memory(big, "float32", 4 * big.parameters - 1, "x")
    assert caught.value.help.startswith("--dtype bfloat16 halves it\n")
    assert setup._free_in_group(tmp_path) is None
    for name, text in {"memory.max": "1000", "memory.current": "700"}.items():
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert setup._free_in_group(tmp_path) == 450
    (tmp_path / "memory.max").write_text("max\n")
    assert setup._free_in_group(tmp_path) is None


def test_help_and_refusals_import_no_torch() -> None:
    code = (
        "import sys\n"
        "from dare.cli import main\n"
        "for words in (['--help'], ['tiny-llada', 'x', '--sampler', '?']):\n"
        "    try: main(['generate', *words])\n"
        "    except SystemExit: pass\n"
        "print([n for n in ('torch', 'transformers', 'numpy') if n in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "no sampler is called '?'" in done.stderr


# ---- hostile models ------------------------------------------------------------------------


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """The embedded model with a vocabulary that attacks the terminal, markup and reading order."""
    folder = tmp_path / "hostile"
    shutil.copytree(TINY, folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    for old, new in {"2": "\x1b[2J\x07", "3": "\u202e", "4": "[bold red]"}.items():
        vocabulary[new] = vocabulary.pop(old)
    file.write_text(json.dumps(content))
    return folder


def test_hostile_text_is_escaped_on_stdout_and_kept_in_the_document(hostile: Path) -> None:
    done = dare(hostile, PUZZLE)
    assert done.exit_code == 0, done.stderr
    assert set(done.stdout) >= set("\\x1b[2J\\x07\\u202e[bold red]")
    assert not set(done.stdout + done.stderr) & set("\x1b\x07\u202e")
    assert "\u202e" in document(hostile, PUZZLE)["samples"][0]["text"]


def test_what_follows_a_stop_token_is_shown_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, greedy: str
) -> None:
    from dare.models.tokens import special_ids

    digit = load_tokenizer("tiny-llada").convert_tokens_to_ids(greedy[5])

    def with_stop(*words: Any) -> Any:
        return dataclasses.replace(special_ids(*words), stop=(digit,))

    monkeypatch.setattr("dare.models.tokens.special_ids", with_stop)
    cut = greedy[: greedy.index(greedy[5])]
    done = dare("tiny-llada", PUZZLE)
    assert done.stdout == f"{cut}\n"
    assert f"{len(cut)} tokens (up to the stop token)" in done.stderr
    assert dare("tiny-llada", PUZZLE, "--keep-special").stdout == f"{greedy}\n"
