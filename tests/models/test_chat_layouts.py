"""The text of a conversation in every family's layout, written out by hand."""

from __future__ import annotations

import pytest

from dare.errors import UsageProblem
from dare.models.chat import TEMPLATES, render
from dare.models.facts import FAMILIES

ASK = {"role": "user", "content": "1+1?"}
SYSTEM = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "2"}
AGAIN = {"role": "user", "content": "And 2+2?"}

CHATS = {
    "single": [ASK],
    "system": [SYSTEM, ASK],
    "turns": [ASK, ANSWER, AGAIN],
    "system and turns": [SYSTEM, ASK, ANSWER, AGAIN],
}


def header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


LLADA_ASK = f"{header('user')}1+1?<|eot_id|>"
LLADA_TURNS = (
    f"{LLADA_ASK}{header('assistant')}2<|eot_id|>{header('user')}And 2+2?<|eot_id|>"
    f"{header('assistant')}"
)
LLADA_SYSTEM = f"{header('system')}Be brief.<|eot_id|>"
LLADA = {
    "single": f"<|startoftext|>{LLADA_ASK}{header('assistant')}",
    "system": f"<|startoftext|>{LLADA_SYSTEM}{LLADA_ASK}{header('assistant')}",
    "turns": f"<|startoftext|>{LLADA_TURNS}",
    "system and turns": f"<|startoftext|>{LLADA_SYSTEM}{LLADA_TURNS}",
}

CHATML_ASK = "<|im_start|>user\n1+1?<|im_end|>\n"
CHATML_SYSTEM = "<|im_start|>system\nBe brief.<|im_end|>\n"
CHATML_DEFAULT = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
CHATML_MORE = "<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\nAnd 2+2?<|im_end|>\n"
OPEN = "<|im_start|>assistant\n"
DREAM = {
    "single": f"{CHATML_DEFAULT}{CHATML_ASK}{OPEN}",
    "system": f"{CHATML_SYSTEM}{CHATML_ASK}{OPEN}",
    "turns": f"{CHATML_DEFAULT}{CHATML_ASK}{CHATML_MORE}{OPEN}",
    "system and turns": f"{CHATML_SYSTEM}{CHATML_ASK}{CHATML_MORE}{OPEN}",
}
SDAR = {
    "single": f"{CHATML_ASK}{OPEN}",
    "system": f"{CHATML_SYSTEM}{CHATML_ASK}{OPEN}",
    "turns": f"{CHATML_ASK}{CHATML_MORE}{OPEN}",
    "system and turns": f"{CHATML_SYSTEM}{CHATML_ASK}{CHATML_MORE}{OPEN}",
}

LING_SYSTEM = "<role>SYSTEM</role>Be brief.\ndetailed thinking off<|role_end|>"
LING_DEFAULT = "<role>SYSTEM</role>detailed thinking off<|role_end|>"
LING_ASK = "<role>HUMAN</role>1+1?<|role_end|>"
LING_MORE = (
    "<role>ASSISTANT</role>2<|role_end|><role>HUMAN</role>And 2+2?<|role_end|>"
    "<role>ASSISTANT</role>"
)
LING = {
    "single": f"{LING_DEFAULT}{LING_ASK}<role>ASSISTANT</role>",
    "system": f"{LING_SYSTEM}{LING_ASK}<role>ASSISTANT</role>",
    "turns": f"{LING_DEFAULT}{LING_ASK}{LING_MORE}",
    "system and turns": f"{LING_SYSTEM}{LING_ASK}{LING_MORE}",
}
EXPECTED = {
    "llada": LLADA,
    "llada_moe": LING,
    "dream": DREAM,
    "sdar": SDAR,
    "sdar_moe": SDAR,
    "llada2_moe": LING,
}


def test_every_family_has_a_layout() -> None:
    assert set(TEMPLATES) == set(EXPECTED) == set(FAMILIES)


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("family", EXPECTED)
def test_layout(family: str, chat: str) -> None:
    assert render(family, CHATS[chat]) == EXPECTED[family][chat]


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("family", EXPECTED)
def test_the_same_through_a_tokenizer(family: str, chat: str) -> None:
    """A tokenizer that carries the template renders what we render."""
    from transformers.utils.chat_template_utils import render_jinja_template

    (text,), _ = render_jinja_template(
        [CHATS[chat]], chat_template=TEMPLATES[family], add_generation_prompt=True
    )
    assert text == EXPECTED[family][chat]


def test_contents_are_trimmed_in_lladas_layout_only() -> None:
    padded = [{"role": "user", "content": "\n 1+1? \n"}]
    assert render("llada", padded) == LLADA["single"]
    assert "user\n\n 1+1? \n<|im_end|>" in render("dream", padded)
    assert "</role>\n 1+1? \n<|role_end|>" in render("llada2_moe", padded)


def test_lladas_assistant_header_follows_even_a_finished_conversation() -> None:
    text = render("llada", [ASK, ANSWER], add_generation_prompt=False)
    assert (
        text == f"<|startoftext|>{LLADA_ASK}{header('assistant')}2<|eot_id|>{header('assistant')}"
    )


@pytest.mark.parametrize("family", ["dream", "sdar", "llada2_moe"])
def test_without_a_generation_prompt_the_text_ends_with_the_last_turn(family: str) -> None:
    opening = "<role>ASSISTANT</role>" if family == "llada2_moe" else OPEN
    expected = EXPECTED[family]["turns"].removesuffix(opening)
    assert render(family, CHATS["turns"], add_generation_prompt=False) == expected


# ---- thoughts (SDAR) -----------------------------------------------------------------------


def test_thinking_switched_off_leaves_an_empty_block() -> None:
    plain = SDAR["single"]
    assert render("sdar", [ASK], thinking=False) == f"{plain}<think>\n\n</think>\n\n"
    assert render("sdar", [ASK], thinking=True) == plain
    assert render("sdar", [ASK], add_generation_prompt=False, thinking=False) == CHATML_ASK


def test_thoughts_of_earlier_answers_are_dropped() -> None:
    thoughtful = {"role": "assistant", "content": "<think>\none and one\n</think>\n\n2"}
    assert render("sdar", [ASK, thoughtful, AGAIN]) == SDAR["turns"]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("<think>\none and one\n</think>\n\n2", "<think>\none and one\n</think>\n\n2"),
        ("2", "<think>\n\n</think>\n\n2"),
    ],
)
def test_a_last_answer_shows_its_thoughts(content: str, shown: str) -> None:
    chat = [ASK, {"role": "assistant", "content": content}]
    text = render("sdar", chat, add_generation_prompt=False)
    assert text == f"{CHATML_ASK}<|im_start|>assistant\n{shown}<|im_end|>\n"


# ---- hostile and wrong ---------------------------------------------------------------------


@pytest.mark.parametrize("family", EXPECTED)
def test_contents_are_not_templates(family: str) -> None:
    assert "{{ 7 * 6 }}{% for" in render(family, [{"role": "user", "content": "{{ 7 * 6 }}{% for"}])


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "a conversation needs a message"),
        ([{"role": "user"}], "message 1 has no text"),
        ([ASK, {"role": "user", "content": None}], "message 2 has no text"),
        (["1+1?"], "message 1 has no text"),
        ([{"role": "tool", "content": "2"}], "message 1 has the role 'tool'"),
        ([{"content": "2"}], "message 1 has the role None"),
    ],
)
def test_what_is_no_conversation_is_a_usage_error(messages, told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        render("dream", messages)
