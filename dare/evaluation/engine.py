"""Generate and grade: from a model and a list of problems to outcomes.

    outcomes = evaluate(model, tokenizer, task, items, config, RunKey(0))

Problems are batched by prompt length, so nothing is padded; the tokens of a problem do not
depend on the batch size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerFast

from dare.config import RunConfig, canonical_json
from dare.diffusion.keys import RunKey
from dare.models.loading import encode_prompt
from dare.results.record import Outcome
from dare.sampling.decode import Generation, generate
from dare.tasks.base import Item, Task

Progress = Callable[[int, int], None]


def sha(value: Any) -> str:
    """SHA-256 of a text, or of the canonical JSON of anything else."""
    text = value if isinstance(value, str) else canonical_json(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def evaluate(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerFast,
    task: Task,
    items: Sequence[Item],
    config: RunConfig,
    run_key: RunKey,
    rows: Sequence[int] | None = None,
    batch_size: int = 250,
    progress: Progress = lambda done, total: None,
) -> list[Outcome]:
    """One outcome per problem under the run's evaluation sampler, in the order of ``rows``.

    rows: which of ``items`` (all by default).  A problem's randomness is keyed by its place in
    ``items``, so shards of an evaluation add up to the whole.
    """
    rows = range(len(items)) if rows is None else rows
    protocol, seed = config.task.protocol, run_key.seed
    texts = {index: task.prompt(items[index], protocol) for index in rows}
    prompts = {index: encode_prompt(tokenizer, texts[index]) for index in rows}
    # Stable order by length: equal lengths share a batch, and no padding is needed.
    order = sorted(rows, key=lambda index: len(prompts[index]))
    outcomes: dict[int, Outcome] = {}
    for batch in _equal_length_batches(order, prompts, batch_size):
        keys = [run_key.at("eval", sample=index) for index in batch]
        out = generate(model, [prompts[index] for index in batch], config.evaluation, keys)
        for row, index in enumerate(batch):
            completion = decode_completion(tokenizer, out, row, protocol)
            outcomes[index] = grade_outcome(
                task, items[index], texts[index], completion, config, seed, int(out.nfe[row])
            )
        progress(len(outcomes), len(rows))
    return [outcomes[index] for index in rows]


def decode_completion(
    tokenizer: PreTrainedTokenizerFast, out: Generation, row: int, protocol: str
) -> str:
    """The raw completion, special tokens included, as graders and records keep it."""
    return str(tokenizer.decode(out.tokens[row].tolist(), skip_special_tokens=False))


def grade_outcome(
    task: Task, item: Item, prompt: str, completion: str, config: RunConfig, seed: int, nfe: int
) -> Outcome:
    """The graded completion as a line of outcomes.jsonl."""
    grade = task.grade(item, completion, config.task.protocol)
    return Outcome(
        item=item.id,
        item_sha=sha({"question": item.question, "gold": item.gold}),
        prompt_sha=sha(prompt),
        seed=seed,
        output=completion,
        extracted=grade.extracted,
        gold_sha=sha(item.gold),
        correct=grade.correct,
        points=grade.points,
        out_of=grade.out_of,
        well_formed=grade.well_formed,
        status=grade.status,
        tokens=config.evaluation.gen_length,
        nfe=nfe,
    )


def _equal_length_batches(
    order: Sequence[int], prompts: Mapping[int, Sequence[int]], size: int
) -> list[list[int]]:
    batches: list[list[int]] = []
    for index in order:
        last = batches[-1] if batches else None
        if last and len(last) < size and len(prompts[last[0]]) == len(prompts[index]):
            last.append(index)
        else:
            batches.append([index])
    return batches
