"""Generate and grade: from a model and a list of problems to outcomes.

    outcomes = evaluate(model, tokenizer, task, items, config, RunKey(0))

Problems are batched by prompt length, so nothing is padded; the tokens of a problem do not
depend on the batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn
from transformers import PreTrainedTokenizerFast

from dare.config import RunConfig
from dare.diffusion.keys import RunKey
from dare.evaluation.outcomes import outcome_of
from dare.models.special import SpecialTokens
from dare.models.tokens import encode_prompt
from dare.results.record import Outcome
from dare.sampling.decode import generate
from dare.tasks import protocols
from dare.tasks.base import Item, Task

Progress = Callable[[int, int], None]


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
    special: SpecialTokens | None = None,
) -> list[Outcome]:
    """One outcome per problem under the run's evaluation sampler, in the order of ``rows``.

    The assistant turn starts with the protocol's answer prefix, which is no part of the output.

    special: the ids that mean something, by default those of the model's config.

    rows: which of ``items`` (all by default).  A problem's randomness is keyed by its place in
    ``items``, so shards of an evaluation add up to the whole.
    """
    rows = range(len(items)) if rows is None else rows
    protocol = config.task.protocol
    prefix = tokenizer(protocols.get(task.name, protocol).answer_prefix, add_special_tokens=False)[
        "input_ids"
    ]
    texts = {index: task.prompt(items[index], protocol) for index in rows}
    prompts = {index: encode_prompt(tokenizer, texts[index]) + prefix for index in rows}
    # Stable order by length: equal lengths share a batch, and no padding is needed.
    order = sorted(rows, key=lambda index: len(prompts[index]))
    outcomes: dict[int, Outcome] = {}
    for batch in _equal_length_batches(order, prompts, batch_size):
        keys = [run_key.at("eval", sample=index) for index in batch]
        out = generate(model, [prompts[index] for index in batch], config.evaluation, keys, special)
        for row, index in enumerate(batch):
            # Raw, special tokens included: what graders read and records keep.
            output = str(tokenizer.decode(out.tokens[row].tolist(), skip_special_tokens=False))
            grade = task.grade(items[index], output, protocol)
            outcomes[index] = outcome_of(
                items[index], texts[index], output, grade,
                seed=run_key.seed, tokens=config.evaluation.gen_length, nfe=int(out.nfe[row]),
            )  # fmt: skip
        progress(len(outcomes), len(rows))
    return [outcomes[index] for index in rows]


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
