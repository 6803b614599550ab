"""The tiny recipe: the embedded model on 4x4 Sudoku, the same budget for every method.

A reproduction gives its algorithm's options and the few values it tunes; everything that
decides how much is spent (rollouts, updates, sampler, evaluation) stands here once, so that
``dare compare`` sets methods against each other on equal terms.  The base model is
handicapped on purpose (half of its last demonstrations came from a weak solver): gains show
that objective, sampler and estimator work together, not that new skills are learnt.
"""

from __future__ import annotations

from dare.config import src
from dare.results.claims import Deviation, Values

TASKS = ("sudoku4",)
SEEDS = (0, 1, 2)
LENGTH, STEPS = 16, 8

_RECIPE = "ours: tiny recipe"
_HERE = "this reproduction"

TRAINING: Values = {
    "seed": src(0, "ours: seeds 0 to 2"),
    "max_steps": src(120, "ours: 60 rollout batches of 2 updates"),
    "num_generations": src(8, _RECIPE),
    "num_iterations": src(2, _RECIPE),
    "per_device_train_batch_size": src(128, "ours: 16 prompts of 8 completions"),
    "gradient_accumulation_steps": src(1, _RECIPE),
    "num_processes": src(1, "ours: one process per seed"),
    "learning_rate": src(3e-4, "ours: higher constant rates collapsed"),
    "lr_scheduler_type": src("linear", "ours: the decay keeps runs from collapsing"),
    "min_lr_ratio": src(0.05, _RECIPE),
    "warmup_steps": src(5, _RECIPE),
    "weight_decay": src(0.0, _RECIPE),
    "adam_beta1": src(0.9, _RECIPE),
    "adam_beta2": src(0.99, _RECIPE),
    "max_grad_norm": src(0.5, _RECIPE),
    "save_steps": src(20, "ours: rollout batches between checkpoints"),
}
CI_TRAINING: Values = {
    "max_steps": src(20, "ours: a smoke test"),
    "per_device_train_batch_size": src(64, "ours: 8 prompts of 8 completions"),
    "save_steps": src(5, "ours: two checkpoints"),
}
CI_EVAL_LIMIT = 200


def tiny_scale(
    paper: str, algorithm: str, options: Values, task: str, training: Values | None = None
) -> Values:
    """The tiny configuration of one method; ``training`` holds the values it tunes."""
    return {
        "paper": src(paper, _HERE),
        "scale": src("tiny", _HERE),
        "algorithm": src(algorithm, "paper"),
        "algorithm_options": options,
        "model": {
            "name": src("tiny-llada", "ours: the embedded model"),
            "dtype": src("float32", "ours: runs on any processor"),
            "lora": src(None, "ours: all weights are trained"),
        },
        "task": {
            "name": src(task, "ours: 4x4 Sudoku with 6 to 10 blanks"),
            "protocol": src("tiny", "ours: grid in, grid out"),
            "train_split": src("train", "ours: puzzles drawn from the training grids"),
            "eval_split": src("test", "ours: solution grids never seen in training"),
        },
        "rollout": _sampler(1.0),
        "evaluation": _sampler(0.0),
        "training": {**TRAINING, **(training or {})},
    }


def ci_scale(
    paper: str, algorithm: str, options: Values, task: str, training: Values | None = None
) -> Values:
    """The tiny run cut to 20 updates: shows that the parts fit, not that anything is learnt."""
    tiny = tiny_scale(paper, algorithm, options, task, training)
    return {
        **tiny,
        "scale": src("ci", _HERE),
        "task": {**tiny["task"], "eval_limit": src(CI_EVAL_LIMIT, "ours: a smoke test")},
        "training": {**tiny["training"], **CI_TRAINING},
    }


def _sampler(temperature: float) -> Values:
    return {
        "gen_length": src(LENGTH, "ours: the 16 cells of the grid"),
        "steps": src(STEPS, "d1's rule: half the length"),
        "block_length": src(LENGTH, "ours: one block"),
        "temperature": src(temperature, _RECIPE),
        "cfg_scale": src(0.0, "paper: no guidance"),
        "remasking": src("low_confidence", "paper"),
    }


DEVIATIONS = (
    Deviation(
        id="tiny-task",
        scale="tiny",
        what="a model of less than half a million parameters on 4x4 Sudoku with 6 to 10 blanks "
        "instead of an 8B model",
        why="runs in minutes on a laptop; says nothing about the paper's numbers",
    ),
    Deviation(
        id="tiny-handicap",
        scale="tiny",
        what="the base model was handicapped on purpose with demonstrations of a weak solver",
        why="reinforcement learning needs a better mode to select; it re-selects, it does not "
        "teach new skills",
    ),
    Deviation(
        id="tiny-full-parameter",
        scale="tiny",
        what="all weights are trained, in float32: no LoRA, no quantisation, no dropout",
        why="the whole model is smaller than one of the paper's adapters",
    ),
    Deviation(
        id="tiny-batch",
        scale="tiny",
        what="16 prompts of 8 completions, 2 updates per rollout batch, 120 updates",
        why="a budget at which every method tried so far gained clearly",
    ),
    Deviation(
        id="tiny-learning-rate",
        scale="tiny",
        what="3e-4 falling linearly to 5 %, no weight decay, gradient clip 0.5",
        why="runs with a higher, constant rate rose and then collapsed",
    ),
    Deviation(
        id="tiny-format",
        scale="tiny",
        what="prompt and completion are the bare 16-digit grids: no chat template, no tags; the "
        "reward is the share of blank cells filled correctly, without format parts",
        why="the embedded vocabulary has 28 tokens",
    ),
    Deviation(
        id="tiny-sampler",
        scale="tiny",
        what="length 16 in one block (other families: in theirs), 8 steps, temperature 1.0 in "
        "rollouts",
        why="the grid has 16 cells; other temperatures were not tried",
    ),
    Deviation(
        id="ci-smoke",
        scale="ci",
        what="20 updates on 8 prompts each, 200 evaluation puzzles, otherwise as tiny",
        why="checks that the parts fit together; no gain is expected and none is asserted",
    ),
)
