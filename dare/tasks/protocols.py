"""Named evaluation protocols, as data: wording, shots, prefix, extraction, grader, lengths.

    protocols.get("gsm8k", "d1").answer_prefix      # "<reasoning>"
    protocols.get("gsm8k", "d1").prompt_sha256

A score is comparable with a published one only under the same protocol *and* wording.  The
papers' own prompts are not copied here: ``published`` says where they stand and what they
hash to; ``prompt`` is our equivalent wording (``wording == "own"``), and a record says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal

from dare.errors import unknown_name


@dataclass(frozen=True, slots=True)
class PublishedText:
    """Where the authors' wording stands: a file of a repository at a commit."""

    repo: str
    commit: str
    path: str
    sha256: str  # of the file

    def url(self) -> str:
        """Where to read it."""
        return f"https://github.com/{self.repo}/blob/{self.commit}/{self.path}"


@dataclass(frozen=True, slots=True)
class EvalProtocol:
    """One protocol of one task.  ``prompt`` holds ``{question}`` once.

    ``answer_prefix`` is what the assistant turn already starts with; ``lengths`` are the
    generation lengths that the paper reports, in tokens.
    """

    id: str
    task: str
    version: int
    prompt: str
    grader: str
    extraction: str
    wording: Literal["own", "paper"] = "own"
    published: PublishedText | None = None
    shots: int = 0
    answer_prefix: str = ""
    lengths: tuple[int, ...] = ()

    @property
    def prompt_sha256(self) -> str:
        """SHA-256 of the template and the prefix: what the model is told."""
        return text_sha256(f"{self.prompt}\0{self.answer_prefix}")

    def render(self, question: str) -> str:
        """The user turn for ``question``."""
        return self.prompt.replace("{question}", question)

    def describe(self) -> dict[str, Any]:
        """The record's ``prompt`` block."""
        return {
            "protocol": self.id,
            "version": self.version,
            "sha256": self.prompt_sha256,
            "wording": self.wording,
            "shots": self.shots,
            "answer_prefix": self.answer_prefix,
            "published_at": self.published.url() if self.published else "not stated",
            "published_sha256": self.published.sha256 if self.published else None,
        }


def text_sha256(text: str) -> str:
    """SHA-256 of ``text`` in UTF-8 (lone surrogates included)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


D1_REPO, D1_COMMIT = "dllm-reasoning/d1", "837888f22c21a5da91a0af2b0d7b19e81d9b47ec"

_FORM = (
    "Write your thoughts between <reasoning> and </reasoning>, then write nothing but the result "
    "between <answer> and </answer>"
)
_BOXED = f"{_FORM}, inside \\boxed{{}}."

_GSM8K = (
    "Work out the following word problem step by step. The result is one number. "
    f"{_BOXED}\n\n{{question}}"
)
_MATH500 = (
    "Solve the following problem in mathematics with a careful derivation. "
    f"{_BOXED}\n\n{{question}}"
)
_COUNTDOWN = (
    "Find an arithmetic expression that has the target as its value. Use each of the given "
    "numbers exactly once and no other number; +, -, *, / and parentheses are allowed. "
    f"{_BOXED} Write the expression only, without the equals sign.\n\n{{question}}"
)
_SUDOKU = (
    "Below is a 4x4 Sudoku, written as 16 digits row by row; 0 marks an empty cell. Fill the "
    "empty cells so that every row, every column and every 2x2 corner block holds 1, 2, 3 and 4 "
    f"once. The result is the full grid as 16 digits. {_FORM}.\n\n{{question}}"
)


def _d1(task: str, prompt: str, path: str, sha256: str, extraction: str) -> EvalProtocol:
    return EvalProtocol(
        id="d1",
        task=task,
        version=1,
        prompt=prompt,
        grader=f"dare.grading.d1.{task}",
        extraction=extraction,
        published=PublishedText(D1_REPO, D1_COMMIT, path, sha256),
        answer_prefix="<reasoning>",
        lengths=(128, 256, 512),
    )


_D1 = (
    _d1(
        "gsm8k", _GSM8K, "eval/gsm8k.py",
        "32340c4aef00d05ba95836d5fca2431718a0575850cd3743ccf2831dc5a69873",
        "first box with a number, else the first answer tag; float equality",
    ),
    _d1(
        "math500", _MATH500, "eval/math500.py",
        "99228831a1567e936e26339ecaa121edea3dcc36657d5a688bf61bfeadf48d46",
        "last box, without any box the whole output; equality after a fixed clean-up",
    ),
    _d1(
        "countdown", _COUNTDOWN, "eval/countdown.py",
        "a65754cf320e0c65265c31965060536a1cb1cd98e0c0a459848804179bc90e9a",
        "last box, without any box the whole output; the numbers exactly, value within 1e-5",
    ),
    _d1(
        "sudoku", _SUDOKU, "eval/sudoku.py",
        "8fa4e497e20076b103c88cb17a9b2cfa09c6358495b2fde19fc5c675b3ea3590",
        "the answer tag and four fall-backs; share of empty cells right, pooled",
    ),
)  # fmt: skip

_STRICT_READS = "last balanced box, else the last closed answer tag, up to the first end token; "
_STRICT_ACCEPTS = {
    "gsm8k": "exact number",
    "math500": "mathematical equality (math-verify)",
    "countdown": "exact value, each number once, only + - * / and parentheses",
    "sudoku": "any legal grid that keeps the clues",
}


def _strict(base: EvalProtocol) -> EvalProtocol:
    return replace(
        base,
        id="strict",
        grader=f"dare.grading.strict.{base.task}",
        extraction=_STRICT_READS + _STRICT_ACCEPTS[base.task],
        published=None,
    )


_SPG_GSM8K = replace(
    _D1[0],
    id="spg",
    grader="dare.grading.d1.gsm8k_spg",
    extraction=_D1[0].extraction + "; else what follows the last answer tag, closed or not",
    published=None,  # facebookresearch/SPG @ a1c7120; the file was not read
)

_TINY = EvalProtocol(
    id="tiny",
    task="sudoku4",
    version=1,
    prompt="{question}",
    grader="dare.tasks.sudoku4",
    extraction="the completion must be 16 digits in 1..4; any legal grid that keeps the clues",
    lengths=(16,),
)

_ALL = (*_D1, _SPG_GSM8K, *map(_strict, _D1), _TINY)


def names(task: str) -> tuple[str, ...]:
    """The ids of the protocols of ``task``."""
    return tuple(protocol.id for protocol in _ALL if protocol.task == task)


def get(task: str, protocol: str) -> EvalProtocol:
    """A protocol of ``task``; an unknown id is a ``UsageProblem``."""
    for candidate in _ALL:
        if candidate.task == task and candidate.id == protocol:
            return candidate
    raise unknown_name(f"protocol of {task}", protocol, names(task), f"dare show {task}")
