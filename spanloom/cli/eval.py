"""`spanloom eval CHECKPOINT [RECIPE]`: how good a model is on the held-out parts of a recipe's tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spanloom.cli.errors import UsageError
from spanloom.cli.flags import Command, parse
from spanloom.cli.recipe import Recipe, find
from spanloom.cli.tokens import first_word

USAGE = """usage: spanloom eval CHECKPOINT [RECIPE] [--tasks NAME ...] [--checkpoints all] [flags]

How good a model is on what is held out of a recipe's tasks, those that it only watches (--judge, eval.also) included:
a row for each task with its held-out loss, the metrics of what the model writes (greedily; by default exact match) and,
where examples have answer choices, of which choice it finds likeliest, beside what always giving the commonest answer
would reach. Choices are ranked as T0 was judged: by summed log-probability, end of sequence included. Then, for each
data set, mean, median and quartiles over its templates, and the macro average over data sets. Losses are in nats a
target token, shares times 100. What others published of the recipe's models (t0's) stands in a table below.

CHECKPOINT is a run directory, one of its checkpoints/STEP, or a model in any format that convert reads; RECIPE and
flags are those of `spanloom train`, and without it the run's own; a recipe's --start is CHECKPOINT unless it is given.
Held-out parts that are missing in OUT/stores (--out) are built there. Data sets that nothing is learnt from are taken
--whole.

OUT/eval (--results) gets results.jsonl, .csv and .md, published.md and, for each model and task, a file of predictions:
inputs, targets, what was written, a score for each choice. What is there already is not computed again while
checkpoint, data and settings are the same; a killed command goes on with the task at which it was. Of many tasks one
that fails is named and the others are evaluated; the exit code is 1 then. Of N jobs with --shard 0/N to N-1/N and the
same OUT each takes every N-th example, and the last one puts them together.

  spanloom eval runs/b                                      a run on its own tasks
  spanloom eval runs/b --checkpoints all --bootstrap        each checkpoint that it keeps, with 95 % intervals
  spanloom eval runs/b --task.source.heldout-files test.tsv --out runs/b-test       a file of your own, a test set
  spanloom eval t0_3b/ prompted --data super_glue/copa=copa.jsonl --prompts promptsource --whole
  spanloom eval runs/b --tasks 'glue_mrpc_*' --max-examples 200 --shard $SLURM_PROCID/$SLURM_NTASKS
  spanloom eval CHECKPOINT RECIPE --help                    every flag of a recipe, with its meaning and default
"""


@dataclass(frozen=True)
class Evaluating:
    """What eval takes beside the flags of the recipe."""

    tasks: tuple[str, ...] = ()
    """Names of the tasks to evaluate, or patterns with *; none: all that hold something out."""
    checkpoints: tuple[str, ...] = ("last",)
    """Checkpoints of a run directory: last, best, all that are kept, or steps."""
    whole: bool = False
    """Evaluate on all rows of files of which a share would be held out: of data sets that nothing was learnt from."""
    max_examples: int = 0
    """So many held-out examples of each task, spread over all of them; 0: all."""
    decode: bool = True
    """Let the model write, where tasks have metrics of texts; false: losses and ranks alone."""
    length_normalised: bool = False
    """Rank choices by log-probability a token, too (rank_accuracy_normalised)."""
    bootstrap: bool = False
    """Give each number of a task its bootstrap interval of 95 %."""
    shard: str | None = None
    """I/N: job I of N that share the examples, counted from 0."""
    results: str | None = None
    """Folder of results and predictions; unset: OUT/eval."""
    debug: bool = False
    """Show the whole traceback when something fails (or set SPANLOOM_DEBUG=1)."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    checkpoint = first_word(argv, USAGE, "the checkpoint comes first: spanloom eval CHECKPOINT [RECIPE] [flags]")
    words = list(argv[1:])
    if not checkpoint.strip():
        raise UsageError("the checkpoint is empty (is a variable of the shell unset?)")
    has_recipe = bool(words) and not words[0].startswith("-")
    recipe = find(words.pop(0)) if has_recipe else _own_recipe(checkpoint)
    prog = f"spanloom eval {checkpoint}" + (f" {argv[1]}" if has_recipe else "")
    usage = f"{prog} [--tasks NAME ...] [--checkpoints all] [flags]"
    command = parse(recipe, [*words, *_start(recipe, words, checkpoint)], prog, Evaluating, usage)
    _check(command)
    from spanloom.cli.eval_job import evaluate

    evaluate(command, checkpoint)
    return 0


def _own_recipe(checkpoint: str) -> Recipe:
    """The run that a checkpoint is of."""
    from spanloom.conversion.detect import KINDS, detect

    path = Path(checkpoint)
    if (kind := detect(path)) not in ("run", "checkpoint"):
        raise UsageError(f"{checkpoint} is {KINDS[kind]}, which names no tasks: spanloom eval FOLDER RECIPE")
    path = path.resolve() if path.name in (".", "..") else path
    home = next((one for one in (path, *path.absolute().parents[:2]) if (one / "run.json").is_file()), path)
    return find(str(home))


def _start(recipe: Recipe, words: Sequence[str], checkpoint: str) -> list[str]:
    """The flag with which a recipe that needs a start learns of the vocabulary."""
    has_one = any(parameter.name == "start" for parameter in recipe.parameters)
    given = any(word == "--start" or word.startswith("--start=") for word in words)
    return ["--start", checkpoint] if has_one and not given and "--help" not in words else []


def _check(command: Command[Evaluating]) -> None:
    """Raises UsageError for options that make no sense."""
    asked = command.options
    if asked.max_examples < 0:
        raise UsageError(f"--max-examples {asked.max_examples}: must be 0 or more")
    for name in asked.checkpoints:
        if name not in ("last", "best", "all") and not name.isdecimal():
            raise UsageError(f"--checkpoints {name}: must be last, best, all, or steps")
    if asked.results is not None and not asked.results.strip():
        raise UsageError("--results is empty: name a folder (is a variable of the shell unset?)")
