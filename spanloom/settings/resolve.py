"""The one place where values that follow from others are filled in, and where settings that contradict are refused.

Everything here is known without opening a file. What depends on data, a SentencePiece model or a start checkpoint
(span lengths against sentinels, a vocabulary against the embedding) is checked where these are opened.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from spanloom.settings.mixture import Mixture, map_tasks
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.objective_problems import objective_problems
from spanloom.settings.objectives import FullLM, Supervised, TokenStream, separator_of
from spanloom.settings.optimizer import WSD, Decaying, Factors, Rsqrt, factor_problems
from spanloom.settings.optimizer_problems import optimizer_problems
from spanloom.settings.packing import Packed
from spanloom.settings.ranges import number_problems
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PairFiles, Task, TextFiles, heldout_of, uses_rows
from spanloom.settings.vocabulary import Bytes, SentencePiece

_LONGEST_ROW = 2**20
"""Tokens of a packed row, and examples in it: more are an error of the hand, and no memory holds a batch of them."""
_BYTE_IDS = 259  # 3 special ids and 256 bytes


def resolve(run: Run) -> Run:
    """The run with derived values filled in: schedule.decay_steps from steps, batch_size from batch_tokens
    (likewise of microbatches), eval.batch_size from what a step takes at a time, the separator of a token stream from
    how documents are joined.

    Resolving twice changes nothing more. Raises SettingsError (a ValueError) listing every contradiction and its fix.
    """
    problems = list(number_problems(run)) or list(_problems(run))
    if problems:
        raise SettingsError("\n".join(problems))
    run = _sized(run)
    schedule = run.schedule
    if isinstance(schedule, Decaying) and schedule.decay_steps is None:
        schedule = replace(schedule, decay_steps=run.steps)
    evaluation = run.eval
    if evaluation.batch_size is None:
        evaluation = replace(evaluation, batch_size=run.at_a_time)
    evaluation = replace(evaluation, also=tuple(map(_with_separator, evaluation.also)))
    return replace(run, task=map_tasks(run.task, _with_separator), schedule=schedule, eval=evaluation)


def _sized(run: Run) -> Run:
    """The run with the sizes that follow from numbers of tokens."""
    length = row_length(run)
    if length and run.batch_tokens is not None:
        run = replace(run, batch_size=run.batch_tokens // length)
    if length and run.microbatch_tokens is not None:
        run = replace(run, microbatch_size=max(run.microbatch_tokens // length, 1))
    return run


def row_length(run: Run) -> int | None:
    """Tokens that a row reads, or with full LM writes; None where only the data can say."""
    if isinstance(run.packing, Packed) and run.packing.inputs_length:
        return run.packing.inputs_length
    lengths = [
        task.objective.targets_length if isinstance(task.objective, FullLM) else task.objective.inputs_length
        for task in run.tasks
    ]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None


def _with_separator(task: Task) -> Task:
    objective = task.objective
    if isinstance(objective, Supervised):
        return task
    return replace(task, objective=replace(objective, separator=separator_of(objective)))


def _problems(run: Run) -> Iterator[str]:
    yield from _numbers(run)
    yield from _names(run)
    yield from _size_problems(run)
    yield from _model_problems(run)
    yield from _vocabulary_problems(run)
    for task in run.tasks:
        where = f"in {task.name!r}, " if isinstance(run.task, Mixture) else ""
        yield from (where + problem for problem in _task_problems(task))
    yield from _watched_problems(run)
    yield from _copy_problems(run)
    yield from _follow_problems(run)
    yield from _schedule_problems(run)
    yield from optimizer_problems(run)


def _watched_problems(run: Run) -> Iterator[str]:
    """Of the tasks that are measured but not learnt, and of the one that tells which checkpoint is the best."""
    for task in run.eval.also:
        yield from (f"in {task.name!r} of eval.also, {problem}" for problem in _task_problems(task))
        if run.tasks and task.vocabulary != run.vocabulary:
            yield f"task {task.name!r} of eval.also has another vocabulary than the run's, whose model cannot read it"
    known = list(dict.fromkeys(task.name for task in (*run.tasks, *run.eval.also)))
    if run.checkpoint.best_task is not None and run.checkpoint.best_task not in known:
        hint = did_you_mean(run.checkpoint.best_task, known)
        yield f"checkpoint.best_task is {run.checkpoint.best_task!r}, which is no task of this run{hint}"


def _copy_problems(run: Run) -> Iterator[str]:
    """What is no address, and what has a password in it, which run.json would hold, so that it is not repeated."""
    if (address := run.log.copy_to) is not None:
        if not re.fullmatch(r"[a-z][a-z0-9+]*://[^/\s?#]+/[^\s?#]+", address):
            yield "log.copy_to is no address of a folder in a bucket, such as s3://bucket/runs/a or gs://bucket/runs/a"
        elif "@" in address.partition("://")[2].partition("/")[0]:
            yield "log.copy_to holds a name or a password: give credentials in the environment"


def _follow_problems(run: Run) -> Iterator[str]:
    """What is to be taken over from a run that nobody named."""
    if run.start is None:
        for field in fields(run.follow):
            if (value := getattr(run.follow, field.name)) != field.default:
                yield f"follow.{field.name} is {value!r}, and this run follows none: name one with --start, or unset it"


def _numbers(run: Run) -> Iterator[str]:
    yield from _at_least(1, run, "batch_size", "checkpoint.every", "checkpoint.keep", "eval.every", "log.every")
    yield from _at_least(0, run, "steps", "seed", "checkpoint.keep_best", "checkpoint.keep_every", "eval.max_batches")
    yield from _at_least(0, run, "eval.fills")
    yield from _at_least(0, run, "after.fills", "loading.workers", "stopping.patience", "follow.rewarm_steps")
    yield from _at_least(1, run, "loading.ahead", "stopping.most_skipped")
    if run.eval.batch_size is not None:
        yield from _at_least(1, run, "eval.batch_size")
    if not 0 <= run.loss.label_smoothing < 1:
        yield f"loss.label_smoothing is {run.loss.label_smoothing}: must be at least 0 and below 1"
    if isinstance(run.loss.normalizer, int | float) and run.loss.normalizer <= 0:
        yield f"loss.normalizer is {run.loss.normalizer}: a number must be above 0"


def _size_problems(run: Run) -> Iterator[str]:
    length = row_length(run)
    for name in ("batch_tokens", "microbatch_tokens"):
        tokens = getattr(run, name)
        if tokens is not None and length is None:
            yield (
                f"{name} is set, but how long rows are only the data can say: give --task.objective.inputs-length "
                f"(packed: --packing.inputs-length), or {name.replace('tokens', 'size')} in place of it"
            )
        elif tokens is not None and tokens < (length or 0):
            yield f"{name} is {tokens}, but one row has {length} tokens: raise it"
    sized = _sized(run)
    if sized.microbatch_size is not None and sized.microbatch_size < 1:
        yield f"microbatch_size is {sized.microbatch_size}: must be 1 or more"
    elif sized.microbatch_size is not None and sized.batch_size % sized.microbatch_size:
        fitting = [size for size in range(1, sized.batch_size + 1) if sized.batch_size % size == 0]
        near = min(fitting, key=lambda size: abs(size - (sized.microbatch_size or 0)))
        yield (
            f"microbatch_size is {sized.microbatch_size}, which does not divide the batch_size {sized.batch_size}: "
            f"the nearest that does is {near}"
        )
    if isinstance(run.packing, Packed):
        for name in ("inputs_length", "targets_length", "max_segments"):
            if getattr(run.packing, name) is not None:
                yield from _at_least(1, run, f"packing.{name}")
            if (getattr(run.packing, name) or 0) > _LONGEST_ROW:
                yield f"packing.{name} is {getattr(run.packing, name)}: must be at most {_LONGEST_ROW}"


def _at_least(least: int, settings: Any, *fields: str, where: str = "") -> Iterator[str]:
    for name in fields:
        value = settings
        for part in name.split("."):
            value = getattr(value, part)
        if value < least:
            hint = " (to do it never, give a number above steps)" if name.endswith(".every") else ""
            yield f"{where}{name} is {value}: must be {least} or more{hint}"


def _names(run: Run) -> Iterator[str]:
    tasks = [("task.name", task.name) for task in (*run.tasks, *run.eval.also)]
    for field, name in [("name", run.name), ("task.name", run.task.name), *tasks]:
        if not name or "/" in name or "\\" in name or name.startswith("."):
            yield f"{field} is {name!r}: it names files, so it must not be empty, hold a slash or begin with a dot"
        elif any("\ud800" <= letter <= "\udfff" for letter in name):
            yield f"{field} is {name!r}: it names files, so it must not hold half a character (lone surrogate)"


def _model_problems(run: Run) -> Iterator[str]:
    model = run.model
    yield from _at_least(1, run, "model.vocab_size", "model.d_model", "model.d_ff", "model.num_heads", "model.d_kv")
    yield from _at_least(1, run, "model.num_encoder_layers", "model.num_decoder_layers")
    if not 0 <= model.dropout < 1:
        yield f"model.dropout is {model.dropout}: must be at least 0 and below 1"
    if len(model.activations) not in (1, 2):
        yield f"model.activations are {model.activations}: give one (T5 1.0) or two (gated, T5 1.1)"
    if model.relative_position_buckets < 4 or model.relative_position_buckets % 2:
        yield f"model.relative_position_buckets is {model.relative_position_buckets}: must be even and 4 or more"
    elif model.relative_position_max_distance <= model.relative_position_buckets // 2:
        yield (
            f"model.relative_position_max_distance is {model.relative_position_max_distance}: must be above half "
            f"of the {model.relative_position_buckets} buckets"
        )


def _vocabulary_problems(run: Run) -> Iterator[str]:
    if not run.tasks:
        yield "task.parts is empty: a mixture needs at least one task"
        return
    model, vocabulary = run.model, run.vocabulary
    for task in run.tasks:
        if task.vocabulary != vocabulary:
            yield (
                f"task {task.name!r} has another vocabulary than {run.tasks[0].name!r}: one model has one embedding, "
                "so all tasks of a mixture share theirs"
            )
    if isinstance(vocabulary, SentencePiece) and not vocabulary.path.strip():
        yield "task.vocabulary.path is empty: name a SentencePiece model file"
    if isinstance(vocabulary, Bytes):
        if vocabulary.extra_ids < 0:
            yield f"task.vocabulary.extra_ids is {vocabulary.extra_ids}: must be 0 or more"
        size = _BYTE_IDS + (0 if vocabulary.sentinels == "google" else vocabulary.extra_ids)
        if size > model.vocab_size:
            yield (
                f"the vocabulary has {size} ids and model.vocab_size is {model.vocab_size}: raise model.vocab_size to "
                f"{size} or more (384 for ByT5), or lower task.vocabulary.extra_ids"
            )


def _task_problems(task: Task) -> Iterator[str]:
    source, objective = task.source, task.objective
    if isinstance(source, TextFiles | PairFiles) and not source.files:
        flag = "--data" if isinstance(source, PairFiles) else "--text"
        yield f"task.source.files is empty: name at least one file or glob ({flag} FILES on the command line)"
    if not heldout_of(source) and not 0 <= source.heldout_share < 1:
        named = next((name for name in ("heldout_files", "heldout_split") if hasattr(source, name)), "")
        fix = f", or name task.source.{named}" if named else ""
        yield f"task.source.heldout_share is {source.heldout_share}: must be below 1 and not below 0 (0: none){fix}"
    if uses_rows(task):
        yield from _feature_problems(task)
        yield from objective_problems(objective)
        return
    if isinstance(objective, TokenStream) and isinstance(source, PairFiles):
        yield f"task: {type(objective).__name__} needs plain text; pairs (PairFiles) go with the Supervised objective"
    if isinstance(objective, Supervised) and not isinstance(source, PairFiles):
        yield "task: the Supervised objective needs pairs (PairFiles); plain text goes with SpanCorruption"
    yield from objective_problems(objective)


def _feature_problems(task: Task) -> Iterator[str]:
    names = [feature.name for feature in task.features]
    if len(set(names)) < len(names):
        yield f"task.features have a name twice: {', '.join(names)}"
    if isinstance(task.objective, Supervised):
        if names and not {"inputs", "targets"} <= set(names):
            yield f"task.features are {', '.join(names)}: the Supervised objective needs inputs and targets among them"
        if odd := [f.name for f in task.features if f.name in ("inputs", "targets") and f.dtype != "int32"]:
            yield f"task.features: {odd[0]} must have dtype int32, that of token ids"
        return
    if names not in ([], ["text"]):
        yield f"task.features are {', '.join(names)}: {type(task.objective).__name__} takes one, named text"
    if task.metrics or task.postprocess:
        yield f"task.metrics and task.postprocess go with the Supervised objective, not {type(task.objective).__name__}"


def _schedule_problems(run: Run) -> Iterator[str]:
    schedule = run.schedule
    if isinstance(schedule, Factors):
        yield from factor_problems(schedule)
    yield from _at_least(1 if isinstance(schedule, Rsqrt) else 0, run, "schedule.warmup_steps")
    if not isinstance(schedule, Decaying):
        return
    if not 0 <= schedule.end_factor <= 1:
        yield f"schedule.end_factor is {schedule.end_factor}: must be from 0 to 1"
    if isinstance(schedule, WSD) and not 0 < schedule.decay_share <= 1:
        yield f"schedule.decay_share is {schedule.decay_share}: must be above 0 and at most 1"
    end, name = schedule.decay_steps, "schedule.decay_steps"
    if end is None:
        end, name = run.steps, "steps"
    if end == 0:
        yield (
            f"{name} is 0, so that the schedule {type(schedule).__name__} has no end: "
            "give --schedule.decay-steps the step at which it is to end"
        )
    elif end <= schedule.warmup_steps:
        yield (
            f"{name} is {end} and schedule.warmup_steps {schedule.warmup_steps}: the warm-up must end before the decay "
            f"does; lower schedule.warmup_steps or raise {name}"
        )
    if schedule.end_factor == 0 and run.steps > end:
        yield (
            f"steps is {run.steps}, but the learning rate is 0 from schedule.decay_steps = {end} on: nothing would "
            f"be learned there; give --schedule.decay-steps {run.steps} (on a run that has begun, also "
            "--accept-change schedule.decay_steps), or a --schedule.end-factor above 0"
        )
