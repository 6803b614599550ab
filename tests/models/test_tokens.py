"""Tokenizers without remote code, and conversations as token ids."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from dare.errors import Missing, UsageProblem
from dare.models import registry, tokens
from dare.models.chat import TEMPLATES, render
from dare.models.tokens import encode_chat, encode_prompt, load_tokenizer, special_ids

FILES = runpy.run_path(str(Path(__file__).with_name("tokenizer_files.py")))
ALPHABET, FIRST, SPECIAL, REMOTE = (
    FILES[name] for name in ("ALPHABET", "FIRST", "SPECIAL", "REMOTE")
)
checkpoint, token_id = FILES["checkpoint"], FILES["token_id"]
with_json, with_vocabulary = FILES["with_json"], FILES["with_vocabulary"]

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "And 2+2?"},
]


# ---- loading -------------------------------------------------------------------------------


def test_a_dream_folder_loads_as_qwen2_from_its_vocabulary_and_merges(tmp_path: Path) -> None:
    """Remote code is named and not there: it is never looked for."""
    with_vocabulary(
        tmp_path, "dream", SPECIAL["dream"], bos_token="<|beginoftext|>", mask_token="<|mask|>"
    )
    tokenizer = load_tokenizer(tmp_path)
    assert type(tokenizer).__name__ == "Qwen2Tokenizer"
    start, mask = FIRST + 2 + 1, FIRST + 2 + 4
    encoded = tokenizer("<|im_start|>hi hi<|mask|>", add_special_tokens=False)["input_ids"]
    assert encoded == [start, FIRST, FIRST + 1, mask]
    assert (tokenizer.mask_token_id, tokenizer.bos_token) == (mask, "<|beginoftext|>")
    assert tokenizer("hi")["input_ids"] == [FIRST]


@pytest.mark.parametrize("family", SPECIAL)
def test_a_tokenizer_json_is_read_as_it_is(tmp_path: Path, family: str) -> None:
    tokenizer = load_tokenizer(with_json(tmp_path, family, tokenizer_class="Unheard", **REMOTE))
    text = "".join(SPECIAL[family]) + "a é\n"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids[: len(SPECIAL[family])] == list(range(FIRST, FIRST + len(SPECIAL[family])))
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("family", SPECIAL)
def test_a_mask_that_is_only_in_the_vocabulary_is_declared(tmp_path: Path, family: str) -> None:
    (mask,) = [each for each in SPECIAL[family] if "mask" in each.lower()]
    tokenizer = load_tokenizer(with_json(tmp_path, family))
    assert (tokenizer.mask_token, tokenizer.mask_token_id) == (mask, token_id(family, mask))
    canvas = [tokenizer.mask_token_id, ALPHABET.index("a"), tokenizer.mask_token_id]
    assert tokenizer.decode(canvas, skip_special_tokens=True) == "a"


def test_both_spellings_of_sdars_mask_are_the_trained_token(tmp_path: Path) -> None:
    """tokenizer.json says <MASK>, the settings say <|MASK|>: reading them adds a new token."""
    with_json(tmp_path, "sdar", mask_token="<|MASK|>")
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace("<|MASK|>", "<MASK>"))
    tokenizer = load_tokenizer(tmp_path)
    trained = FIRST + 5
    assert tokenizer.convert_tokens_to_ids("<|MASK|>") == trained + 1
    assert (tokenizer.mask_token, tokenizer.mask_token_id) == ("<MASK>", trained)
    assert (
        special_ids({"vocab_size": 300, "eos_token_id": 1}, tokenizer, "sdar", "x").mask == trained
    )
    assert tokenizer.decode([trained, trained + 1], skip_special_tokens=True) == ""


def test_added_tokens_may_be_spelt_otherwise_than_in_the_settings(tmp_path: Path) -> None:
    """As the small SDARs are released: ids by added_tokens.json, names by the settings."""
    spelt = [*SPECIAL["sdar"][:-1], "<MASK>"]
    decoder = {
        str(FIRST + 2 + index): {
            "content": token, "special": True, "lstrip": False, "rstrip": False,
            "normalized": False, "single_word": False,
        }
        for index, token in enumerate(SPECIAL["sdar"])
    }  # fmt: skip
    with_vocabulary(
        tmp_path, "sdar", spelt, mask_token="<|MASK|>", added_tokens_decoder=decoder,
        tokenizer_class="Qwen2Tokenizer",
    )  # fmt: skip
    assert load_tokenizer(tmp_path).mask_token_id == FIRST + 2 + 5


@pytest.mark.parametrize("absent", ["tokenizer.json", "vocab.json", "merges.txt"])
def test_a_folder_without_a_tokenizer(tmp_path: Path, absent: str) -> None:
    if absent != "tokenizer.json":
        with_vocabulary(tmp_path, "dream", SPECIAL["dream"])
        (tmp_path / absent).unlink()
    else:
        checkpoint(tmp_path, "llada")
    with pytest.raises(Missing, match="there is no tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"model": 3}'])
def test_a_damaged_tokenizer_is_a_usage_error(tmp_path: Path, text: str) -> None:
    with_json(tmp_path, "llada")
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UsageProblem, match="cannot be read"):
        load_tokenizer(tmp_path)


# ---- templates -----------------------------------------------------------------------------


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Put a folder where the registry looks for the weights of a registered name."""

    def place(name: str, **settings: Any) -> None:
        folder = with_json(tmp_path / name, registry.get(name).family, **settings)
        monkeypatch.setattr(registry, "_cached_snapshot", lambda repo, revision: folder)

    return place


def test_a_chat_checkpoint_without_a_template_gets_its_familys(named) -> None:
    named("dream-7b")
    assert load_tokenizer("dream-7b").chat_template == TEMPLATES["dream"]


def test_the_checkpoints_own_template_is_used(named) -> None:
    named("dream-7b", chat_template="{% for m in messages %}[{{ m.content }}]{% endfor %}")
    tokenizer = load_tokenizer("dream-7b")
    assert tokens.chat_text(tokenizer, CHAT) == "[Be brief.][1+1?][2][And 2+2?]"


def test_a_base_checkpoint_is_prompted_with_plain_text(named) -> None:
    named("llada-8b-base", chat_template="[{{ messages[0].content }}]")
    tokenizer = load_tokenizer("llada-8b-base")
    assert tokenizer.chat_template is None
    assert encode_prompt(tokenizer, "ab") == [ALPHABET.index("a"), ALPHABET.index("b")]


def test_a_folder_keeps_what_it_has(tmp_path: Path) -> None:
    assert load_tokenizer(with_json(tmp_path / "none", "dream")).chat_template is None
    folder = with_json(tmp_path / "own", "dream", chat_template="{{ messages[0].content }}")
    assert load_tokenizer(folder).chat_template == "{{ messages[0].content }}"


def test_a_template_survives_saving(named, tmp_path: Path) -> None:
    named("dream-7b")
    load_tokenizer("dream-7b").save_pretrained(tmp_path / "tuned")
    checkpoint(tmp_path / "tuned", "dream")
    assert load_tokenizer(tmp_path / "tuned").chat_template == TEMPLATES["dream"]


# ---- conversations as ids ------------------------------------------------------------------


def ready(tmp_path: Path, family: str, **settings: Any):
    tokenizer = load_tokenizer(with_json(tmp_path, family, **settings))
    tokenizer.chat_template = TEMPLATES[family]
    return tokenizer


@pytest.mark.parametrize("family", SPECIAL)
def test_the_ids_of_a_conversation_are_those_of_its_text(tmp_path: Path, family: str) -> None:
    tokenizer = ready(tmp_path, family)
    ids = encode_chat(tokenizer, CHAT)
    text = render(family, CHAT)
    assert tokenizer.decode(ids) == text
    for token in SPECIAL[family]:
        assert ids.count(token_id(family, token)) == text.count(token)


def test_ids_of_a_llada_prompt_one_by_one(tmp_path: Path) -> None:
    """BOS, header of the user, text, end of turn, header of the assistant."""
    bos, start, end, eot = (
        token_id("llada", f"<|{name}|>")
        for name in ("startoftext", "start_header_id", "end_header_id", "eot_id")
    )
    newline = [ALPHABET.index("Ċ")] * 2

    def spell(text: str) -> list[int]:
        return [ALPHABET.index(character) for character in text]

    expected = [
        bos, start, *spell("user"), end, *newline, *spell("hi"), eot,
        start, *spell("assistant"), end, *newline,
    ]  # fmt: skip
    assert encode_prompt(ready(tmp_path, "llada"), "hi") == expected


def test_there_is_exactly_one_bos_even_if_the_tokenizer_adds_its_own(tmp_path: Path) -> None:
    tokenizer = ready(tmp_path, "llada", adds_bos=True, bos_token="<|startoftext|>")
    bos = token_id("llada", "<|startoftext|>")
    assert tokenizer("a")["input_ids"] == [bos, ALPHABET.index("a")]
    ids = encode_chat(tokenizer, CHAT)
    assert ids[0] == bos
    assert ids.count(bos) == 1


def test_the_beginning_of_the_answer_follows_the_header(tmp_path: Path) -> None:
    tokenizer = ready(tmp_path, "dream")
    ids = encode_chat(tokenizer, CHAT, assistant_prefix="4 b")
    assert ids == encode_chat(tokenizer, CHAT) + tokenizer("4 b")["input_ids"]


def test_thinking_is_switched_off_for_a_template_that_knows_it(tmp_path: Path) -> None:
    tokenizer = ready(tmp_path, "sdar")
    text = tokenizer.decode(encode_chat(tokenizer, CHAT, thinking=False))
    assert text == render("sdar", CHAT, thinking=False)
    assert text.endswith("<think>\n\n</think>\n\n")


def test_without_a_template_the_texts_stand_one_below_the_other(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(with_json(tmp_path, "llada"))
    assert tokenizer.decode(encode_chat(tokenizer, CHAT[:2])) == "Be brief.\n\n1+1?"


def test_a_conversation_that_the_template_refuses(tmp_path: Path) -> None:
    tokenizer = ready(tmp_path, "dream")
    tokenizer.chat_template = "{{ raise_exception('turns must alternate') }}"
    with pytest.raises(UsageProblem, match="does not accept the conversation") as caught:
        encode_chat(tokenizer, CHAT)
    assert caught.value.why == "turns must alternate"
    with pytest.raises(UsageProblem, match="a conversation needs a message"):
        encode_chat(tokenizer, [])


def test_a_prompt_of_the_embedded_model_is_its_characters() -> None:
    tokenizer = load_tokenizer("tiny-llada")
    assert tokenizer.chat_template is None
    assert encode_prompt(tokenizer, "0120") == tokenizer.convert_tokens_to_ids(list("0120"))


def test_a_template_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer("tiny-llada")
    # Long enough, and over before it slows the other tests down.
    loop = "{% for a in range(2000) %}"
    tokenizer.chat_template = f"{loop}{loop}{{% endfor %}}{{% endfor %}}"
    monkeypatch.setattr(tokens, "TEMPLATE_SECONDS", 0.01)
    with pytest.raises(UsageProblem, match="does not come to an end"):
        encode_prompt(tokenizer, "1")
