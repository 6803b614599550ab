"""The ``dare`` command.

Each subcommand is a file of this package that defines one click object named ``command``.
The table below is all that ``dare --help`` needs, so nothing but click is imported until a
command is chosen.

    dare list papers
    dare show d1 --claims
    dare -v reproduce d1 --dry-run

Results go to stdout, everything else to stderr.  Exit statuses: see ``dare.errors``.
"""

from dare.cli._shell import LazyGroup

# name -> (module, help line); the order is the order of ``dare --help``.
COMMANDS = {
    "list": ("dare.cli.list", "List papers, models, tasks, algorithms, samplers or runs."),
    "show": ("dare.cli.show", "Show a paper: its claims, configurations and deviations."),
    "models": ("dare.cli.models", "List the named checkpoints, or show one and its memory."),
    "reproduce": ("dare.cli.reproduce", "Reproduce a paper: baseline, seeds, verdict."),
    "train": ("dare.cli.train", "Make the embedded base checkpoint by its recipe."),
    "generate": ("dare.cli.generate", "Sample from a checkpoint, and watch it denoise."),
    "compare": ("dare.cli.compare", "Compare algorithms under one budget, paired by seed."),
    "rescore": ("dare.cli.rescore", "Score stored generations again, without a model."),
    "verdict": ("dare.cli.verdict", "Judge a run against a published number."),
    "leaderboard": ("dare.cli.leaderboard", "Build and check the boards."),
    "check": ("dare.cli.check", "Run the reproduction checks that CI runs."),
    "runs": ("dare.cli.runs", "List the runs made here."),
}

main = LazyGroup(
    name="dare",
    commands_table=COMMANDS,
    help="Reproduce, compare and rank post-training methods for diffusion language models.",
    epilog="Start here: dare reproduce d1",
)
