"""The layout of a conversation, family by family, as text.  Imports neither torch nor transformers.

    render("dream", [{"role": "user", "content": "Hi"}])

These are Jinja templates of our own for the layouts that the families were tuned on.  A checkpoint
that ships a template is rendered with that one; an instruction-tuned one without gets ours.
The layout of LLaDA-MoE is inferred from its tokenizer's kin, the LLaDA2 line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from dare.errors import UsageProblem

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, str]
ROLES = ("system", "user", "assistant")

# Opens with BOS once; the assistant's header always follows, also behind an assistant's turn.
_LLADA = (
    "<|startoftext|>"
    "{% for turn in messages %}"
    "{{ '<|start_header_id|>' ~ turn.role ~ '<|end_header_id|>\n\n' }}"
    "{{ (turn.content | trim) ~ '<|eot_id|>' }}"
    "{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)

_TURN = "{{ '<|im_start|>' ~ turn.role ~ '\n' ~ turn.content ~ '<|im_end|>\n' }}"
_ANSWER = "{{ '<|im_start|>assistant\n' if add_generation_prompt }}"

# ChatML; without a system turn a default one is put in front.
_DREAM = (
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' "
    "if messages[0].role != 'system' }}"
    "{% for turn in messages %}" + _TURN + "{% endfor %}" + _ANSWER
)

# ChatML with thoughts.  Answers before the last question lose theirs; an answer that ends the
# conversation always shows a block of them.  Switched off, thinking leaves an empty block.
_SDAR = (
    "{% set asked = namespace(last=-1) %}"
    "{% for turn in messages %}"
    "{% if turn.role == 'user' %}{% set asked.last = loop.index0 %}{% endif %}"
    "{% endfor %}"
    "{% for turn in messages %}"
    "{% if turn.role == 'assistant' %}"
    "{% set parts = turn.content.split('</think>') %}"
    "{% set thought = parts[0].split('<think>')[-1].strip('\n') if parts[1:] else '' %}"
    "{% set said = parts[-1].lstrip('\n') if parts[1:] else turn.content %}"
    "{{ '<|im_start|>assistant\n' }}"
    "{% if loop.index0 > asked.last and (loop.last or thought) %}"
    "{{ '<think>\n' ~ thought ~ '\n</think>\n\n' ~ said.lstrip('\n') }}"
    "{% else %}{{ said }}{% endif %}"
    "{{ '<|im_end|>\n' }}"
    "{% else %}" + _TURN + "{% endif %}"
    "{% endfor %}"
    + _ANSWER
    + "{{ '<think>\n\n</think>\n\n' if add_generation_prompt and enable_thinking is false }}"
)

# A system turn always stands first and ends with the thinking switch, which is off.
_LING = (
    "{% set names = {'system': 'SYSTEM', 'user': 'HUMAN', 'assistant': 'ASSISTANT'} %}"
    "{% set given = messages[0].role == 'system' %}"
    "<role>SYSTEM</role>"
    "{{ messages[0].content ~ '\n' if given }}"
    "detailed thinking off<|role_end|>"
    "{% for turn in messages[1 if given else 0:] %}"
    "{{ '<role>' ~ names[turn.role] ~ '</role>' ~ turn.content ~ '<|role_end|>' }}"
    "{% endfor %}"
    "{{ '<role>ASSISTANT</role>' if add_generation_prompt }}"
)

TEMPLATES = {
    "llada": _LLADA,
    "llada_moe": _LING,
    "dream": _DREAM,
    "sdar": _SDAR,
    "sdar_moe": _SDAR,
    "llada2_moe": _LING,
}


def render(
    family: str,
    messages: Sequence[Message],
    add_generation_prompt: bool = True,
    thinking: bool | None = None,
) -> str:
    """A conversation in the layout of ``family``, up to where the answer begins.

    ``thinking`` False leaves an empty block of thoughts in front of the answer (SDAR); None is
    the family's default.  Raises ``UsageProblem`` for messages that are none.
    """
    check_messages(messages)
    switch = {} if thinking is None else {"enable_thinking": thinking}
    return _compiled(family).render(
        messages=list(messages), add_generation_prompt=add_generation_prompt, **switch
    )


def check_messages(messages: Sequence[Message]) -> None:
    """Raise ``UsageProblem`` unless there are messages, each with a known role and a text."""
    help_text = 'a message is {"role": "user", "content": "..."}'
    if not messages:
        raise UsageProblem("a conversation needs a message", "there is none", help_text)
    for index, message in enumerate(messages, 1):
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            raise UsageProblem(f"message {index} has no text", "", help_text)
        if message.get("role") not in ROLES:
            raise UsageProblem(
                f"message {index} has the role {message.get('role')!r}",
                f"roles: {', '.join(ROLES)}",
                help_text,
            )


@cache
def _compiled(family: str) -> Template:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # trim_blocks and lstrip_blocks as transformers sets them: a template reads the same in both.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATES[family])
