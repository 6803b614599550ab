"""What a run will cost, before it starts.  Arithmetic on the configuration; imports no torch.

    plan = estimate(config, registry.describe(config.model.name))
    print("\\n".join(render_plan(plan, config, origins)))

Counting rules, stated with every plan:

* one rollout batch serves ``num_iterations`` updates; a completion costs ``steps`` forwards
  of prompt + completion (NFE); with the block cache each forward feeds one block, and every
  token once more for its final keys
* an update costs one trained forward per completion and Monte Carlo sample; a method with a
  ratio (option ``epsilon``) also scores the rollout batch under the old policy for every later
  update, and one with a KL term (option ``beta`` > 0) under the reference for every update,
  once per distinct mask; where the completion is fully masked and a group shares its mask, the
  whole group is one forward; a block-causal model sees the completion beside its noisy copy,
  so that its forwards are longer by the completion and no group shares one
* a forward costs 2 FLOPs per weight and token (attention scores and embedding look-ups left
  out: 2 % at 512 tokens of an 8B model), training three times that; with LoRA the weight
  gradients of the frozen layers are not computed, so three is an upper bound
* a mixture of experts multiplies a token with the experts that it uses, and keeps all of them
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dare.config import RunConfig, canonical_json, flatten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dare.models.registry import Checkpoint, Shape
    from dare.sampling.config import SamplerConfig

# Rows of the evaluation sets, for runs that do not limit them.
EVALUATION_ITEMS = {
    "gsm8k": 1319,
    "math500": 500,
    "countdown": 256,
    "sudoku": 256,
    "sudoku4": 1000,
}

BYTES = {"float32": 4.0, "bfloat16": 2.0}
# nf4 with doubly quantised scales: 4 bits + 8/64 + 32/(64*256) bits per weight.
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8
ADAM_STATE_BYTES = 8  # two float32 moments
GIGA = 1e9
# Dense bfloat16 peak of an A100 by its data sheet, and the share of it a training loop gets.
A100_FLOPS, UTILISATION = 312e12, 0.4


@dataclass(frozen=True, slots=True)
class Rate:
    """Measured time.  ``basis`` says who measured what on which machine.

    ``seconds_fixed`` is spent once per run: imports, loading, evaluation.
    """

    seconds_per_update: float
    basis: str
    seconds_fixed: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per process: weights, gradients, optimiser, activations of one micro-batch."""

    inference: int
    lora: int | None
    full: int

    FORMULAS = (
        "inference: weights + bf16/fp32 logits of one generation batch",
        "LoRA: weights + 16 bytes per adapter weight + activations + logits",
        "full: 16 bytes per weight (weights, gradients, Adam) + activations + logits",
        "activations: 8 d + 4 h numbers per token and layer, no checkpointing",
        "experts: all are kept, never in 4 bits nor adapted; h of those used",
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The cost of one run (one seed).  Counts are over all processes; times are wall clock."""

    updates: int
    rollout_batches: int
    prompts: int
    completions: int
    generated_tokens: int
    nfe_rollout: int
    nfe_evaluation: int
    learner_forwards: int
    scoring_forwards: int
    sequence_tokens: int
    prompt_basis: str
    evaluation_items: int | None
    flops: float
    memory: Memory
    seconds: float | None
    time_basis: str
    processes: int


def estimate(
    config: RunConfig,
    facts: Checkpoint,
    *,
    rate: Rate | None = None,
    evaluation_items: int | None = None,
    prompt_tokens: int | None = None,
) -> Plan:
    """The cost of one run of ``config`` on the checkpoint ``facts`` describes.

    ``evaluation_items`` and ``prompt_tokens`` replace the assumptions named in the plan.
    """
    prompt, prompt_basis = _prompt_tokens(config, prompt_tokens)
    items = _evaluation_items(config, evaluation_items)
    block_causal = facts.block_length is not None
    completions, learner, scoring = _training_work(config, block_causal)
    nfe_rollout = completions * config.rollout.nfe
    nfe_evaluation = (items or 0) * config.evaluation.nfe
    tokens = prompt + config.rollout.gen_length
    forward = 2.0 * facts.shape.matmul_parameters
    scored = tokens + (config.rollout.gen_length if block_causal else 0)
    flops = forward * (
        completions * _tokens_fed(config.rollout, prompt)
        + scored * (scoring + 3 * learner)
        + (items or 0) * _tokens_fed(config.evaluation, prompt)
    )
    training = config.training
    updates = training.max_steps if training else 0
    processes = training.num_processes if training else 1
    seconds, basis = _time(updates, flops, processes, rate, config.scale)
    return Plan(
        updates=updates,
        rollout_batches=math.ceil(updates / training.num_iterations) if training else 0,
        prompts=completions // training.num_generations if training else 0,
        completions=completions,
        generated_tokens=completions * config.rollout.gen_length,
        nfe_rollout=nfe_rollout,
        nfe_evaluation=nfe_evaluation,
        learner_forwards=learner,
        scoring_forwards=scoring,
        sequence_tokens=tokens,
        prompt_basis=prompt_basis,
        evaluation_items=items,
        flops=flops,
        memory=_memory(config, facts.shape, tokens),
        seconds=seconds,
        time_basis=basis,
        processes=processes,
    )


def _tokens_fed(sampler: SamplerConfig, prompt: int) -> int:
    """Tokens that go through the model for one completion."""
    whole = prompt + sampler.gen_length
    if sampler.cache == "block":
        return sampler.nfe * sampler.block_length + whole
    return sampler.nfe * whole


def _training_work(config: RunConfig, block_causal: bool) -> tuple[int, int, int]:
    """(completions generated, forwards trained through, forwards that only score)."""
    training, options = config.training, config.algorithm_options
    if training is None:
        return 0, 0, 0
    batches = math.ceil(training.max_steps / training.num_iterations)
    one_step = "mc_samples" not in options
    shared = one_step and not block_causal and bool(options.get("share_mask_in_group", False))
    sequences = training.prompts_per_update if shared else training.completions_per_update
    sequences *= 1 if one_step else int(options["mc_samples"])
    later, every = _distinct_masks(config, 1), _distinct_masks(config, 0)
    old = later if "epsilon" in options else 0
    reference = every if float(options.get("beta", 0.0)) > 0 else 0
    return (
        batches * training.completions_per_update,
        training.max_steps * sequences,
        batches * sequences * (old + reference),
    )


def _distinct_masks(config: RunConfig, first: int) -> int:
    """Different masks among the updates of a rollout batch, from update ``first`` on.

    With ``mask_order`` "as_coded" micro-batch g of the GA of update j uses draw
    (g + 1 + GA j) modulo the number of updates, so some repeat.
    """
    assert config.training is not None
    count, options = config.training.num_iterations, config.algorithm_options
    if options.get("mask_order") != "as_coded":
        return count - first
    accumulation = int(options.get("coded_accumulation", 1))
    return len({accumulation * j % count for j in range(first, count)})


def _prompt_tokens(config: RunConfig, given: int | None) -> tuple[int, str]:
    if given is not None:
        return given, "given"
    limit = config.training.max_prompt_length if config.training else None
    if limit is not None:
        return limit, "the longest prompt allowed"
    return config.rollout.gen_length, "assumed as long as the completion"


def _evaluation_items(config: RunConfig, given: int | None) -> int | None:
    known = given or EVALUATION_ITEMS.get(config.task.name)
    limit = config.task.eval_limit
    if limit is None:
        return known
    return min(limit, known) if known is not None else limit


def _time(
    updates: int, flops: float, processes: int, rate: Rate | None, scale: str
) -> tuple[float | None, str]:
    if rate is not None:
        return rate.seconds_fixed + updates * rate.seconds_per_update, rate.basis
    if scale == "paper":
        seconds = flops / (processes * A100_FLOPS * UTILISATION)
        return seconds, (
            f"nobody's measurement: the FLOPs at {UTILISATION:.0%} of the bfloat16 peak of "
            f"{processes} A100"
        )
    return None, "not measured for this configuration"


def _memory(config: RunConfig, shape: Shape, tokens: int) -> Memory:
    number = BYTES[config.model.dtype]
    batch = config.training.per_device_train_batch_size if config.training else 1
    weights = shape.parameters * number
    if config.model.load_in_4bit:
        weights -= shape.quantised_parameters * (number - NF4_BYTES)
    logits = batch * config.rollout.gen_length * shape.vocab_size * number
    per_token = 8 * shape.d_model * shape.n_layers + 4 * shape.mlp_width_per_token
    activations = batch * tokens * per_token * number
    # Scores are taken in float32, so logits exist twice while training.
    learning = activations + logits * (1 + 4 / number)
    trained = 2 * number + ADAM_STATE_BYTES + (4 if number < 4 else 0)
    lora = None
    if config.model.lora is not None:
        adapters = shape.adapter_parameters(config.model.lora.r, config.model.lora.target_modules)
        lora = round(weights + trained * adapters + learning)
    return Memory(
        inference=round(weights + logits),
        lora=lora,
        full=round(shape.parameters * trained + learning),
    )


def torchrun_line(
    config: RunConfig, config_file: str = "plan.json", run_dir: str = "runs/NAME"
) -> str:
    """The launch command on one machine with a process per device."""
    processes = config.training.num_processes if config.training else 1
    return (
        f"torchrun --standalone --nproc_per_node {processes} -m dare.training.worker "
        f"--config {shlex.quote(config_file)} --run-dir {shlex.quote(run_dir)}"
    )


def render_plan(
    plan: Plan,
    config: RunConfig,
    origins: Mapping[str, str] | None = None,
    files: Sequence[str] = (),
) -> list[str]:
    """The lines of ``--dry-run``: settings with origins, cost, memory, time, files."""
    lines = []
    if origins is not None:
        lines += ["Settings", *_setting_lines(config, origins), ""]
    lines += ["Cost of one seed", *_cost_lines(plan), "", "Memory per process"]
    lines += _memory_lines(plan.memory, config)
    lines += ["", "Time", *_time_lines(plan)]
    if files:
        lines += ["", "Files it would write", *(f"  {name}" for name in files)]
    return lines


def _setting_lines(config: RunConfig, origins: Mapping[str, str]) -> list[str]:
    flat = flatten(config.model_dump(mode="json"))
    return [
        f"  {path} = {canonical_json(value)}  ({origins.get(path) or _nearest(path, origins)})"
        for path, value in flat.items()
    ]


def _nearest(path: str, origins: Mapping[str, str]) -> str:
    """The origin of the closest parent: a value set as a whole has one origin."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in origins:
            return origins[path]
    return "default"


def _cost_lines(plan: Plan) -> list[str]:
    items = "unknown" if plan.evaluation_items is None else f"{plan.evaluation_items:,}"
    rows = [
        ("updates", f"{plan.updates:,} on {plan.rollout_batches:,} rollout batches"),
        ("completions", f"{plan.completions:,} of {plan.prompts:,} prompts"),
        ("generated tokens", f"{plan.generated_tokens:,}"),
        ("NFE, rollouts", f"{plan.nfe_rollout:,} forwards of one sequence"),
        ("NFE, evaluation", f"{plan.nfe_evaluation:,} ({items} items)"),
        ("learner forwards", f"{plan.learner_forwards:,} trained through"),
        ("scoring forwards", f"{plan.scoring_forwards:,} for old and reference policy"),
        ("sequence", f"{plan.sequence_tokens:,} tokens (prompt: {plan.prompt_basis})"),
        ("FLOPs", f"{plan.flops:.2e} (2 per weight and token, 6 when training)"),
    ]
    return [f"  {name:<17} {text}" for name, text in rows]


def _memory_lines(memory: Memory, config: RunConfig) -> list[str]:
    four_bit = ", 4-bit base" if config.model.load_in_4bit else ""
    rows = [("inference", _gigabytes(memory.inference) + four_bit)]
    if memory.lora is not None:
        rows.append(("LoRA", _gigabytes(memory.lora) + four_bit))
    rows.append(("full fine-tuning", _gigabytes(memory.full)))
    lines = [f"  {name:<17} {text}" for name, text in rows]
    return lines + [f"  ({formula})" for formula in Memory.FORMULAS]


def _time_lines(plan: Plan) -> list[str]:
    if plan.seconds is None:
        return [f"  no estimate: {plan.time_basis}"]
    processes = f" on {plan.processes} processes" if plan.processes > 1 else ""
    return [f"  about {_duration(plan.seconds)}{processes}", f"  basis: {plan.time_basis}"]


def _gigabytes(amount: float) -> str:
    return f"{amount / GIGA:.1f} GB" if amount >= 0.1 * GIGA else f"{amount / 1e6:.1f} MB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
