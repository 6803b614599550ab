"""Tokenizers of every family, conversations as token ids, and the ids that mean something.

    tokenizer = load_tokenizer("dream-7b")
    ids = encode_chat(tokenizer, [{"role": "user", "content": "Hi"}])
    special = special_ids(model.config, tokenizer, "dream", "dream-7b")

No remote code is ever run: the tokenizer classes are chosen here, by the files that a checkpoint
has, and ``auto_map`` is ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

from dare.errors import Missing, UsageProblem
from dare.models import registry
from dare.models.chat import TEMPLATES, Message, check_messages
from dare.models.facts import FAMILIES, Family
from dare.models.special import SpecialTokens

TEMPLATE_SECONDS = 20.0
Config = Any  # a mapping, or a transformers configuration


# ---- loading -------------------------------------------------------------------------------


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerFast:
    """The tokenizer that stands beside the checkpoint ``name``.

    Its mask token is declared where the files only contain it.  An instruction-tuned checkpoint
    without a chat template gets its family's; a registered base checkpoint has none, whatever
    its files say: its prompts are plain text.

    Raises ``Missing`` when the checkpoint or its tokenizer is not here and ``UsageProblem`` for
    files that are not a tokenizer.
    """
    folder, facts = registry.require(str(name)), registry.describe(str(name))
    tokenizer = _read(folder)
    _declare_mask(tokenizer, FAMILIES[facts.family])
    if facts.chat is False:
        tokenizer.chat_template = None
    elif facts.chat and not tokenizer.chat_template:
        tokenizer.chat_template = TEMPLATES[facts.family]
    return tokenizer


def _read(folder: Path) -> PreTrainedTokenizerFast:
    if (folder / "tokenizer.json").is_file():
        kind = PreTrainedTokenizerFast
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        # Dream has only these; its own class tokenises as Qwen2's does.
        kind = Qwen2Tokenizer
    else:
        raise Missing(
            f"there is no tokenizer in {folder}",
            "neither tokenizer.json nor vocab.json with merges.txt is there",
            "fetch the whole repository: hf download, without a list of files",
        )
    try:
        return kind.from_pretrained(folder)
    except Exception as error:  # the tokenizers package raises nothing more specific
        raise UsageProblem(
            f"the tokenizer in {folder} cannot be read",
            f"{type(error).__name__}: {error}",
            registry.LISTING,
        ) from error


def _declare_mask(tokenizer: PreTrainedTokenizerFast, family: Family) -> None:
    """Make the trained mask token the tokenizer's own.

    SDAR's files spell it in two ways; reading the second adds a new, untrained token for it.
    """
    found = _first_of(tokenizer, family.mask_tokens)
    if found is not None and tokenizer.mask_token_id != found:
        tokenizer.mask_token = tokenizer.convert_ids_to_tokens(found)


def _first_of(tokenizer: PreTrainedTokenizerFast, spellings: Iterable[str]) -> int | None:
    """The lowest id among ``spellings``: what was added later was not trained."""
    ids = (_id_of(tokenizer, spelling) for spelling in spellings)
    return min((each for each in ids if each is not None), default=None)


def _id_of(tokenizer: PreTrainedTokenizerFast, token: str) -> int | None:
    found = tokenizer.convert_tokens_to_ids(token)
    # A token that is not there may come back as the unknown token.
    return found if found is not None and tokenizer.convert_ids_to_tokens(found) == token else None


# ---- conversations -------------------------------------------------------------------------


def encode_chat(
    tokenizer: PreTrainedTokenizerFast,
    messages: Sequence[Message],
    *,
    assistant_prefix: str = "",
    thinking: bool | None = None,
) -> list[int]:
    """Token ids of a conversation, up to where the model's answer begins.

    ``messages`` are mappings with ``role`` (system, user, assistant) and ``content``.
    ``assistant_prefix`` is the beginning of the answer; ``thinking`` is handed to a template
    that knows it.  Nothing is added to what the template renders, so a BOS that it opens with
    is the only one.  Without a template the texts are joined by blank lines.

    Raises ``UsageProblem`` for messages that are none, or that the template refuses.
    """
    text = chat_text(tokenizer, messages, thinking) + assistant_prefix
    # Not verbose: whether it fits the context is for the caller to say.
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def chat_text(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], thinking: bool | None = None
) -> str:
    """The text that :func:`encode_chat` tokenises."""
    check_messages(messages)
    if not tokenizer.chat_template:
        return "\n\n".join(message["content"] for message in messages)
    switch = {} if thinking is None else {"enable_thinking": thinking}

    def render() -> str:
        text: str = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=True,
            tokenize=False,
            **switch,
        )
        return text

    try:
        return _within(TEMPLATE_SECONDS, render)
    except (TemplateError, ValueError, TypeError) as error:
        raise UsageProblem(
            "the chat template of this checkpoint does not accept the conversation",
            str(error),
            "roles usually alternate: system (first, if at all), user, assistant, user",
        ) from error


def _within(seconds: float, work: Callable[[], str]) -> str:
    """What ``work`` gives.  A template is a program that came with a checkpoint: transformers
    keeps it from touching anything but not from running for ever."""
    done: list[str] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise UsageProblem(
            "the chat template of this checkpoint does not come to an end",
            f"it was still running after {seconds:g} s",
            "mend the chat_template in its tokenizer_config.json, or generate with --raw",
        )
    return done[0]


def encode_prompt(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Token ids of one user turn: through the chat template where the checkpoint has one."""
    return encode_chat(tokenizer, [{"role": "user", "content": text}])


# ---- ids that mean something ---------------------------------------------------------------


def special_ids(
    config: Config, tokenizer: PreTrainedTokenizerFast | None, family: str, name: str
) -> SpecialTokens:
    """The special ids of the checkpoint ``name``.

    From its configuration (a mapping or a transformers one), else from its tokenizer, else the
    family's where that lies inside the vocabulary; padding may be the end of text and the end of
    text padding, where only one is known.

    Raises ``UsageProblem`` for a mask or an end of text that nothing gives, and for an id
    outside the vocabulary.
    """
    known = FAMILIES[family]
    ids = _Ids(config, known, name)
    spelled = {"mask": known.mask_tokens, "eot": (known.eot_token,)}

    def find(key: str) -> int | None:
        given = ids.given(key)
        if given:
            return given[0]
        if tokenizer is not None:
            found = _first_of(tokenizer, spelled.get(key, ()))
            declared = getattr(tokenizer, f"{key}_token_id", None) if key != "eot" else None
            found = declared if found is None else found
            if found is not None and found < ids.rows:
                return found
        return ids.of_family(key)

    eos, pad, mask, eot = find("eos"), find("pad"), find("mask"), find("eot")
    eos = pad if eos is None else eos
    if mask is None:
        raise ids.unknown("mask", known.mask_tokens if tokenizer is not None else None)
    if eos is None:
        raise ids.unknown("eos", () if tokenizer is not None else None)
    ends = dict.fromkeys((eos, *ids.given("eos"), *([eot] if eot is not None else [])))
    return SpecialTokens(mask, eos, eot, eos if pad is None else pad, tuple(ends))


class _Ids:
    """The ids in one configuration, checked against its vocabulary."""

    def __init__(self, config: Config, family: Family, name: str) -> None:
        self._config, self._family, self._name = config, family, name
        rows = self._value("embedding_size") or self._value("vocab_size")
        if not isinstance(rows, int) or rows < 1:
            raise UsageProblem(
                f"the vocabulary of '{name}' is not known",
                f"its config.json has vocab_size {rows!r}",
                registry.LISTING,
            )
        self.rows = rows

    def _value(self, key: str) -> Any:
        if isinstance(self._config, Mapping):
            return self._config.get(key)
        return getattr(self._config, key, None)

    def given(self, key: str) -> list[int]:
        """What the configuration says: none, one or several ids."""
        value = self._value(f"{key}_token_id")
        values = value if isinstance(value, list | tuple) else [] if value is None else [value]
        for each in values:
            if not isinstance(each, int) or isinstance(each, bool) or not 0 <= each < self.rows:
                raise UsageProblem(
                    f"the {key} token id of '{self._name}' is {each!r}",
                    f"its config.json says so, and the vocabulary has the ids 0 to {self.rows - 1}",
                    f'set "{key}_token_id" in its config.json',
                )
        return list(values)

    def of_family(self, key: str) -> int | None:
        found: int | None = getattr(self._family, f"{key}_token_id")
        return found if found is not None and found < self.rows else None

    def unknown(self, key: str, spellings: Iterable[str] | None) -> UsageProblem:
        """The error for an id that nothing gives; ``spellings`` None: no tokenizer was asked."""
        names = ", ".join(spellings or ()) or "such a token"
        asked = "" if spellings is None else f"its tokenizer has no {names}, "
        usual = getattr(self._family, f"{key}_token_id")
        return UsageProblem(
            f"the {key} token id of '{self._name}' is not known",
            f"its config.json has no {key}_token_id, {asked}and {usual}, which the released "
            f"{self._family.name} models have, is outside its vocabulary of {self.rows}",
            f'set "{key}_token_id" in its config.json',
        )
