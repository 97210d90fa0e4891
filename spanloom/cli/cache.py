"""`spanloom cache RECIPE`: build the token stores of a recipe beforehand, where `train --out` looks for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from spanloom.cli.errors import CommandError, UsageError, debugging
from spanloom.cli.flags import parse
from spanloom.cli.recipe import find
from spanloom.cli.task_names import tasks_named
from spanloom.cli.tokens import first_word
from spanloom.cli.train import output_directory
from spanloom.settings.compare import ChangedSettingsError, changes, refuse, within
from spanloom.settings.run import Run
from spanloom.settings.stages import as_one, stage_directories

if TYPE_CHECKING:
    from spanloom.cli.build_display import BuildDisplay
    from spanloom.pipeline.build_tasks import Outcome, Together
    from spanloom.pipeline.share import BuildShare
    from spanloom.vocabularies.vocabulary import Vocabulary

WAYS = "[--task NAME ...] [--workers N | --shard I/N | --runner beam]"
USAGE = f"""usage: spanloom cache RECIPE {WAYS} [--out DIR] [flags]

Builds the token stores of a recipe in DIR/stores, where `spanloom train RECIPE --out DIR` finds them. Stores that are
there, up to date and whole (every byte is checked) are left as they are. None takes the place of one that a run in DIR
has learnt from. RECIPE and flags are those of `spanloom train`; stages share DIR/stores. Of many tasks one that fails
is named and the others are built; the exit code is 1 then.

The stores are the same to the last byte whoever builds them, and what is killed goes on with the last whole shard:

N processes     --workers N: tokenize (as many as there are cores unless told; one alone for text of up to 64 MB).
Job arrays      --shard I/N: job I of N, counted from 0, makes every N-th shard, on any machine that sees DIR. It exits
                with 0 once its share is made; the last job to end puts the stores in place. Jobs may be killed and run
                again, one by one; `spanloom cache RECIPE` without --shard, and `spanloom train`, make what is missing.
Apache Beam     --runner beam: Beam's workers make the shards, and must see the text and DIR under the same paths. What
                follows -- are Beam's own options; without any it runs here (needs: pip install 'spanloom[beam]').

  spanloom cache my_recipe.py --task en de                      some tasks of many
  spanloom cache my_recipe.py --shard $SLURM_ARRAY_TASK_ID/8    in a job of sbatch --array=0-7
  spanloom cache my_recipe.py --runner beam -- --runner FlinkRunner --flink_master host:8081
  spanloom cache RECIPE --help                                  every flag of a recipe, with its meaning and default
"""


@dataclass(frozen=True)
class Building:
    """What cache takes beside the flags of the recipe."""

    task: tuple[str, ...] = ()
    """Names of the tasks to build; none: all."""
    workers: int | None = None
    """Processes that tokenize; unset: as many as there are cores, but one alone for text of up to 64 MB."""
    shard: str | None = None
    """Make the share of one of several jobs, counted from 0: 0/8 to 7/8; the last to end puts the stores in place."""
    runner: Literal["processes", "beam"] = "processes"
    """Who makes the shards: processes of this machine, or Apache Beam, whose own options follow --."""
    debug: bool = False
    """Show the whole traceback when something fails (or set SPANLOOM_DEBUG=1)."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    recipe = first_word(argv, USAGE, "the recipe comes first: spanloom cache RECIPE [flags]")
    prog = f"spanloom cache {recipe}"
    words, beam_words = _split(argv[1:])
    usage = f"{prog} {WAYS} [--out DIR] [flags]"
    command = parse(find(recipe), words, prog, Building, usage)
    asked = command.options
    share = _check(asked, beam_words)
    directory = output_directory(command)

    from spanloom.cli.stages import resolved_runs

    outcomes = _build(resolved_runs(command), directory, asked, share, beam_words)
    from spanloom.cli.built import tell

    return tell(outcomes, directory, share, debugging(list(argv)))


def _split(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Our words, and those behind `--`; None where there is none."""
    if "--" not in words:
        return list(words), None
    place = words.index("--")
    return list(words[:place]), list(words[place + 1 :])


def _check(asked: Building, beam_words: Sequence[str] | None) -> "BuildShare | None":
    """The share that is asked for. Raises UsageError for options that make no sense."""
    if asked.workers is not None and asked.workers < 1:
        raise UsageError(f"--workers {asked.workers}: must be 1 or more")
    if asked.runner != "beam":
        if beam_words is not None:
            raise UsageError("what follows -- is for --runner beam, which is not given")
    elif asked.workers is not None or asked.shard is not None:
        name = "--workers" if asked.workers is not None else "--shard"
        raise UsageError(
            f"{name} says nothing with --runner beam, which shares the work out by its own options behind --"
        )
    if asked.shard is None:
        return None
    from spanloom.cli.shares import share_named

    return share_named(asked.shard)


def _build(
    runs: Sequence[Run], directory: Path, asked: Building, share: "BuildShare | None", beam_words: Sequence[str] | None
) -> "list[Outcome]":
    """Builds what is missing of the run, or of all stages; what became of each task."""
    from spanloom.cli.build_display import make_build_display
    from spanloom.pipeline.build_tasks import build_tasks, in_processes, in_share, seen_again
    from spanloom.pipeline.build_workers import default_workers
    from spanloom.pipeline.data import data_of
    from spanloom.pipeline.open_task import check_vocabulary_fits
    from spanloom.vocabularies.build import build

    run = as_one(runs)
    tasks = tasks_named(run, asked.task)
    places = stage_directories(runs, directory) if len(runs) > 1 else [directory]
    learnt = [vocabulary_learnt(one, place) for one, place in zip(runs, places, strict=True)]
    vocabulary = next(filter(None, learnt), None) or build(run.vocabulary)
    check_vocabulary_fits(run, vocabulary)
    display = make_build_display()
    try:
        workers, warn = asked.workers or default_workers(), display.warn
        if share is not None:
            way = in_share(vocabulary, share, workers, warn)
        else:
            way = in_processes(vocabulary, workers, warn)
        together = _beam(vocabulary, beam_words or (), display) if asked.runner == "beam" else None
        outcomes = build_tasks(
            run, tasks, directory, vocabulary, way, together=together, tell=display.building, warn=warn
        )
        outcomes = seen_again(outcomes, directory, vocabulary)
    finally:
        display.close()
    if len(outcomes) == len(run.tasks) and all(one.error is None and one.opened.whole for one in outcomes):
        for one in runs:
            data_of(one, {done.task.name: done.opened.parts for done in outcomes}, vocabulary)  # what cannot be mixed
    return outcomes


def _beam(vocabulary: "Vocabulary", words: Sequence[str], display: "BuildDisplay") -> "Together":
    """Builds with Apache Beam. Raises CommandError where it is not installed."""
    try:
        from spanloom.pipeline.beam_build import BeamOptionError, build_with_beam, check_options
    except ImportError as error:
        raise CommandError(f"--runner beam needs Apache Beam ({error}): pip install 'spanloom[beam]'") from error
    try:
        check_options(words, display.warn)
    except BeamOptionError as error:
        raise UsageError(str(error)) from None
    display.say(f"building with Apache Beam ({' '.join(words) or 'on this machine'})")
    return partial(build_with_beam, vocabulary=vocabulary, words=words, warn=display.warn)


def vocabulary_learnt(run: Run, directory: Path) -> "Vocabulary | None":
    """The vocabulary that the run in the directory learnt with, None if there is none.

    Raises CommandError where its stores would be replaced: what a run learns from is decided by `spanloom train`.
    """
    from spanloom.training.checkpoint_paths import latest
    from spanloom.training.facts import read_facts
    from spanloom.training.same_data import ChangedDataError, refuse_changed_text, vocabulary_for

    checkpoint = latest(directory)
    if checkpoint is None:
        return None
    facts = read_facts(checkpoint)
    try:
        refuse(change for change in changes(facts.run, run) if within(change.field, ["task"]))
        refuse_changed_text(checkpoint, facts, run, directory, ())
        return vocabulary_for(checkpoint, facts, run, ())
    except (ChangedSettingsError, ChangedDataError) as error:
        raise CommandError(
            f"{directory} has the stores that its run learnt from, and none is built over them. If that run is to go "
            f"on with others, `spanloom train` takes these flags, and builds them; {error}"
        ) from error
