"""What a run tells its user in words, one function for each occasion."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from spanloom.evaluation.judged import COMMONEST, MAJORITY
from spanloom.pipeline.data import Data, in_words
from spanloom.pipeline.facts.lengths import lengths_of
from spanloom.pipeline.facts.misfits import repeat_misfit, truncated_misfits
from spanloom.pipeline.several import in_fields
from spanloom.settings.compare import changes, within
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS
from spanloom.settings.vocabulary import Bytes
from spanloom.training.facts import Facts
from spanloom.training.first_loss import FirstLoss
from spanloom.training.progress import Display, amount, times
from spanloom.training.same_data import TEXT_SETTINGS
from spanloom.vocabularies.vocabulary import Vocabulary

_BASELINES = (MAJORITY, COMMONEST)
_MOST_CUT = 0.1
"""Share of a task's examples that may be cut without a word as training begins."""
_NAMED = 3
"""So many tasks that are cut are named."""
_EXAMPLES, _FEWEST, _ROWS = 2048, 16, 2_000_000
"""Examples to look at, of all tasks together, but so many of each; no store that has more rows: all are read of one."""


def say_data(display: Display, run: Run, data: Data) -> None:
    """How the text was read, and what became of it."""
    batch_examples = run.batch_size * data.train.examples_per_row
    for one in data.tasks:
        for split, report in one.reports.items():
            name = "held-out" if split == "heldout" else split
            text = report.describe() if len(data.tasks) == 1 else in_fields(report.describe())
            display.say(f"data: {name} part of {one.task.name}: {text}".replace("\n", "\n  "))
    for one in data.tasks if len(data.tasks) > 1 else ():
        draws = one.rate * run.steps * batch_examples
        much = f"{one.train.num_examples:,} there are, {times(draws / one.train.num_examples)} epochs"
        much = f"of a stream, {draws:,.0f} draws" if one.train.is_stream else much
        display.say(f"data: {one.task.name}: {one.rate:.2%} of the examples, {much}")
    examples = data.train.num_examples
    held_out = sum(part.num_examples for part in data.heldout.values())
    heldout = f", {held_out:,} held out" if data.heldout else ", none held out"
    draws = run.steps * batch_examples
    what, taken = f"{examples:,} training examples", f"{times(draws / examples)} epochs"
    if data.train.is_stream:
        what, taken = "a stream of training examples", f"{draws:,.0f} of them"
    shared = f" rows of {data.train.examples_per_row:.1f} examples" if isinstance(run.packing, Packed) else ""
    display.say(
        f"data: {what}{', packed into rows' if shared else ''} of {data.lengths['encoder']} + "
        f"{data.lengths['decoder']} tokens{heldout}; {run.steps:,} steps of {run.batch_size}{shared} are {taken}"
    )
    if len(data.eras) > 1:
        display.say(
            f"data: tasks are drawn at these rates from example {data.eras[-1].draw:,} on, and as before until then"
        )
    _warn_of_repeats(display, run, data)
    _warn_of_cuts(display, data)
    _warn_of_idle_rows(display, run, data.vocabulary)
    _warn_of_no_best(display, run, data)


def _warn_of_repeats(display: Display, run: Run, data: Data) -> None:
    """That a batch, or the whole run, sees the same examples again and again."""
    examples, taken = data.train.num_examples, run.batch_size * data.train.examples_per_row
    if taken > examples and not data.train.is_stream:
        display.warn(
            f"one batch takes {taken:,.0f} examples and there are {examples:,}: every batch holds each of them "
            f"{times(taken / examples)} times. More data helps, or a smaller --batch-size "
            f"(at most {examples / data.train.examples_per_row:,.0f})"
        )
        return
    for one in data.tasks:
        epochs = one.rate * run.steps * taken / one.train.num_examples
        if not one.train.is_stream and (text := repeat_misfit(one.task.name, one.task.objective, epochs)):
            display.warn(text)


def _warn_of_cuts(display: Display, data: Data) -> None:
    """That much of pairs is cut: the question that follows a long text, say. `spanloom show` looks at more of them."""
    pairs = [one for one in data.tasks if isinstance(one.task.objective, Supervised) and not one.train.is_stream]
    looked_at = max(_FEWEST, _EXAMPLES // max(len(pairs), 1))
    found = [
        text
        for one in pairs
        if one.train.store.num_rows <= _ROWS
        for text in truncated_misfits(one.task, lengths_of(one.train, one.task, looked_at), _MOST_CUT)
    ]
    for text in found[:_NAMED]:
        display.warn(text)
    if len(found) > _NAMED:
        display.warn(f"{len(found) - _NAMED:,} more are cut like these: spanloom show lists all")


def _warn_of_idle_rows(display: Display, run: Run, vocabulary: Vocabulary) -> None:
    """That most of the embedding is for ids that never come: the model's size was made for another vocabulary."""
    ids = vocabulary.highest_id + 1
    idle = run.model.vocab_size - ids
    if run.start or idle <= ids:
        return  # weights that exist have the rows that they have
    numbers = idle * run.model.d_model * (1 if run.model.tie_embeddings else 2)
    named = " or a size made for bytes (--model byt5_small)" if isinstance(run.vocabulary, Bytes) else ""
    display.warn(
        f"the vocabulary has {ids:,} ids and the embedding {run.model.vocab_size:,} rows: {idle:,} of them are never "
        f"used ({amount(numbers)} parameters with the head). Take --model.vocab-size {-(-ids // 128) * 128}{named}"
    )


def _warn_of_no_best(display: Display, run: Run, data: Data) -> None:
    """That hardly a checkpoint can be the best, if none but the last has a held-out loss of its own, or that an early
    stop may find its best weights nowhere.
    """
    every, measured = run.checkpoint.every, run.eval.every
    if data.heldout and run.stopping.patience and (measured % every or not run.checkpoint.keep_best):
        display.warn(
            "a run that stops early (--stopping.patience) has its best checkpoint as its result, and not every "
            f"evaluation has one that is kept: --checkpoint.every {measured} --checkpoint.keep-best 1 mends it"
        )
        return
    if data.heldout and run.checkpoint.keep_best and every < run.steps and math.lcm(every, measured) >= run.steps:
        display.warn(
            f"checkpoints are written every {every:,} steps and the held-out loss is measured every {measured:,}: "
            "never both at one step before the last, so that none of them can be kept or chosen as the best "
            f"(checkpoint.keep_best, --which best); --eval.every {every} mends it"
        )


def say_resume(display: Display, facts: Facts, run: Run, parts: list[str], differing: list[str]) -> None:
    """That the run goes on, with what else differs from before: settings, `parts` of the data, the machine."""
    where = ", ".join(f"{name} {value:,}" for name, value in facts.position.items())
    if "examples" in facts.position:
        where = f"{facts.position['examples']:,} examples read"
    display.say(f"resuming after step {facts.step:,}, {where}")
    found = [change for change in changes(facts.run, run) if not change.free]
    for change in found:
        display.warn(f"changed since that checkpoint: {change}")
    if parts:
        names = " and ".join(map(in_words, parts))
        display.warn(
            f"other data than that checkpoint was trained on: {names} changed; accepted, so the run learns from these "
            f"after step {facts.step:,}"
        )
    elif facts.content and any(within(change.field, TEXT_SETTINGS) for change in found):
        display.say("with these settings the text and its tokens are the very same as before")
    if differing:
        display.warn(
            "the checkpoint was written elsewhere, so losses may differ in the last bits (the data do not):\n  "
            + "\n  ".join(differing)
        )


def say_stopped(display: Display, step: int | None, checkpoint: Path | None) -> None:
    """That the run stopped after `step`, or with nothing new to save (None) beyond its last checkpoint, if any."""
    if step is not None:
        display.say(f"stopped after step {step:,}, which is saved; the same command goes on")
    elif checkpoint is not None:
        display.say(f"stopped with nothing new since step {int(checkpoint.name):,}; the same command goes on")
    else:
        display.say("stopped before the first step; the same command begins again where this one was")


def say_first_loss(display: Display, first: FirstLoss) -> None:
    """The first loss beside what was to be expected."""
    display.say(first.describe())
    if warning := first.warning():
        display.warn(warning)


def say_heldout(display: Display, run: Run, step: int, losses: Mapping[str, float], loss: float | None) -> None:
    """One held-out evaluation, of each task; `loss` is the one that decides, None if none was held out of those that
    are learnt.
    """
    learnt = [task.name for task in run.tasks if task.name in losses]
    mean = f", the mean of {len(learnt)} tasks" if len(learnt) > 1 else ""
    mean = f", of {run.checkpoint.best_task}" if run.checkpoint.best_task else mean
    if loss is not None:
        display.say(f"step {step}  held-out loss {loss:.4f} nats a target token ({loss / math.log(2):.3f} bits){mean}")
    if len(losses) > 1 or loss is None:
        each = ", ".join(f"{task} {loss:.4f}" for task, loss in losses.items())
        display.say(f"  {each}" if loss is not None else f"step {step}  held-out loss: {each}")


def say_answers(display: Display, answers: Mapping[str, Mapping[str, float]]) -> None:
    """What was answered on held-out examples of each task, and what always giving the commonest answer would reach."""
    for task, numbers in answers.items():
        baselines = [value for name, value in numbers.items() if name in _BASELINES]
        shown = [f"{name} {value:.2f}" for name, value in numbers.items() if name not in _BASELINES]
        beside = f" (the commonest answer alone: {baselines[0]:.2f})" if baselines else ""
        display.say(f"  {task}: {', '.join(shown)}{beside}")


def saved_sayer(display: Display, directory: Path) -> Callable[[int, int, float], None]:
    """A function that says that a checkpoint is whole."""

    def say_saved(step: int, size: int, seconds: float) -> None:
        display.say(f"step {step}  checkpoint {directory / CHECKPOINTS / str(step)} ({amount(size)}B, {seconds:.1f} s)")

    return say_saved
