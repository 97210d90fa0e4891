"""The numbers of one task, from the records of its held-out examples: losses, what was written, what was ranked."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spanloom.evaluation.metrics.bootstrap import of_numbers
from spanloom.evaluation.metrics.numbers import FloatArray, Numbers, of_sums
from spanloom.evaluation.ranking import Scored, as_targets, in_order, ranked, without_answer
from spanloom.evaluation.records import Record, predictions_in, scored_in
from spanloom.evaluation.task_metrics import EXACT_MATCH, score_metrics, takes_scores, task_metrics
from spanloom.pipeline.dataset import Dataset
from spanloom.settings.task import Task

RANK = "rank_"
"""Before the names of numbers that come of ranking options."""
MAJORITY = "majority"
"""What always choosing the answer that is right most often would reach, beside the accuracy of ranks."""
COMMONEST = "commonest_target"
"""What always writing the commonest target would reach, beside exact match, where there are no choices."""


class NothingHeldOutError(ValueError):
    """No example of a task can be measured."""


@dataclass(frozen=True)
class Judged:
    """What a task's held-out part says of a model."""

    numbers: Mapping[str, float]
    """By name; shares are times 100. With intervals also `<name>_low` and `<name>_high`."""
    examples: int
    """Measured; rows that are an option each are counted together."""
    notes: tuple[str, ...] = ()
    """What is to be known with them."""


def judged(
    task: Task, heldout: Dataset, records: Sequence[Record], *, normalised: bool = False, resamples: int = 0
) -> Judged:
    """The numbers of all records of a task.

    Cross-entropy in nats a target token; the task's own metrics of texts, by default exact match; those of scores, by
    default accuracy; the majority baseline. `normalised`: also of scores that are divided by their lengths.
    `resamples`: with bootstrap intervals of 95 %. Raises RankingError where options are doubled or missing, MetricError
    for metrics that fail, NothingHeldOutError where no example is left.
    """
    kept = [record for record in records if not record.get("left_out")]
    if not kept:
        raise NothingHeldOutError(f"task {task.name!r}: its preprocessors leave out every held-out example")
    numbers = dict(_with_intervals(_losses(kept), resamples))
    made = predictions_in(kept)
    if made:
        values = task_metrics(task, heldout, made, resamples)
        numbers |= {name: 100 * value if _is_share(task, name) else value for name, value in values.items()}
    rows = in_order(scored_in(kept))
    notes = list(_notes(kept)) if made else []
    if rows:
        numbers |= _ranks(task, rows, resamples)
        if normalised:
            by_length = _renamed(ranked(rows, normalise=True), f"{RANK}{{}}_normalised")
            numbers |= _with_intervals(by_length, resamples)
        numbers[MAJORITY] = _majority_of_options(rows)
        if hidden := without_answer(rows):
            notes.append(f"{len(hidden):,} examples have no right option, and count as wrong")
        notes += _notes_of_choices(kept)
    elif made:
        commonest = Counter(one.target for one in made).most_common(1)[0][1]
        numbers[COMMONEST] = 100 * commonest / len(made)
    return Judged(numbers, len({row.example for row in rows}) if rows else len(kept), tuple(notes))


def _notes(records: Sequence[Record]) -> Iterator[str]:
    """Why what is written may have to be wrong."""
    if cut := sum(bool(record.get("cut")) for record in records):
        yield f"{cut:,} targets are longer than the model may write (a larger task.objective.targets_length lets it)"
    if unknown := sum(bool(record.get("unknown")) for record in records):
        yield f"{unknown:,} targets hold what the vocabulary cannot write"


def _notes_of_choices(records: Sequence[Record]) -> Iterator[str]:
    """What ranks of choices may hide: a template that leaves one of them empty, or gives one twice."""
    choices = [record["choices"] for record in records if "choices" in record]
    if empty := sum(not all(map(str.strip, some)) for some in choices):
        yield f"{empty:,} examples have an empty choice, which is scored by the end of sequence alone"
    if alike := sum(len({*some}) < len(some) for some in choices):
        yield f"{alike:,} examples have choices that are alike"


def _is_share(task: Task, name: str) -> bool:
    """Whether a number is the default one, which is a share of 1; all other shares are times 100."""
    return not task.metrics and name.startswith(EXACT_MATCH)


def _losses(records: Sequence[Record]) -> Numbers:
    """Of rows that are an option each, those of the right ones."""
    kept = [record for record in records if "idx" not in record or all(record["correct"])] or records
    kinds = [("heldout_loss", "loss", "tokens")]
    if "text_loss" in kept[0]:
        kinds.append(("heldout_text_loss", "text_loss", "text_tokens"))
    sums = [[record[name] for _, *names in kinds for name in names] for record in kept]

    def numbers(sums_BxK: FloatArray) -> dict[str, FloatArray]:
        losses, tokens = sums_BxK[:, ::2].T, np.maximum(sums_BxK[:, 1::2], 1).T
        return {kind[0]: loss / count for kind, loss, count in zip(kinds, losses, tokens, strict=True)}

    return of_sums(sums, numbers)


def _ranks(task: Task, rows: Sequence[Scored], resamples: int) -> dict[str, float]:
    if any(takes_scores(function) for function in task.metrics):
        values = score_metrics(task, *as_targets(rows), resamples)
        return {f"{RANK}{name}": value for name, value in values.items()}
    return _with_intervals(_renamed(ranked(rows), f"{RANK}{{}}"), resamples)


def _renamed(numbers: Numbers, pattern: str) -> Numbers:
    return Numbers(
        numbers.parts, lambda counts: {pattern.format(name): one for name, one in numbers.again(counts).items()}
    )


def _majority_of_options(rows: Sequence[Scored]) -> float:
    """Accuracy of the one option, by its place, that is right most often."""
    right: dict[int, float] = defaultdict(float)
    weights = {row.example: row.weight for row in rows}
    for row in rows:
        right[row.option] += row.weight * row.is_correct
    return 100 * max(right.values()) / max(sum(weights.values()), 1e-9)


def _with_intervals(numbers: Numbers, resamples: int) -> dict[str, float]:
    if not resamples:
        return dict(numbers)
    found: dict[str, float] = {}
    for name, (value, low, high) in of_numbers(numbers, lambda *_: numbers, (), (), resamples).items():
        found |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return found
