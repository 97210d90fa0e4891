"""A task's own postprocessing and metrics, on what a model made of its held-out examples."""

import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from spanloom.evaluation.exact_match import Prediction
from spanloom.evaluation.metrics.bootstrap import of_numbers
from spanloom.evaluation.metrics.numbers import of_sums, same
from spanloom.evaluation.options import RankingError, options_of
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.row_encoder import unpack_example
from spanloom.pipeline.row_examples import RowExamples
from spanloom.settings.function import Function
from spanloom.settings.measures import METRICS
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import Task
from spanloom.tasks.functions import code_file, parameters_of, resolve
from spanloom.tasks.rows import ROW
from spanloom.tasks.shown import shown
from spanloom.vocabularies.vocabulary import Vocabulary

EXACT_MATCH = "exact_match"
_TRIED = 4


class MetricError(ValueError):
    """A metric or a postprocessing fails, or gives what it must not: task, function and place in the user's code."""


def task_metrics(task: Task, heldout: Dataset, made: Sequence[Prediction], resamples: int = 0) -> dict[str, float]:
    """The numbers that the task's metrics of predictions give; by default the share that is right. Metrics of scores
    are left to `score_metrics`.

    Targets and predictions are texts, or what `task.postprocess` makes of them. With `resamples` each number has a
    bootstrap interval of 95 % beside it, as '<name>_low' and '<name>_high'. Raises MetricError, FunctionError for code
    that cannot be loaded, and ValueError if there are no predictions.
    """
    if not made:
        raise ValueError("there are no held-out examples to compare; keep some out of training")
    if not task.metrics:
        right = [one.correct for one in made]
        if task.postprocess is not None:
            right = list(map(same, *_values(task, heldout, made)))
        shares = of_sums([[one, 1] for one in right], lambda sums: {EXACT_MATCH: sums[:, 0] / sums[:, 1]})
        return _with_intervals(shares, lambda *_: shares, right, right, resamples)
    metrics = [function for function in task.metrics if not takes_scores(function)]
    return _numbers(task, metrics, *_values(task, heldout, made), resamples) if metrics else {}


def score_metrics(task: Task, targets: Sequence[Any], scores: Sequence[float], resamples: int = 0) -> dict[str, float]:
    """The numbers that the task's metrics of scores give, such as rank_classification of `ranking.as_targets(rows)`.

    Otherwise as `task_metrics`.
    """
    metrics = [function for function in task.metrics if takes_scores(function)]
    return _numbers(task, metrics, targets, scores, resamples)


def takes_scores(function: Function) -> bool:
    """Whether a metric compares the model's scores of targets, by its parameter `scores`, rather than what it writes.

    Raises FunctionError for code that cannot be loaded.
    """
    return "scores" in parameters_of(resolve(function))


def try_metrics(task: Task, heldout: Dataset | None, vocabulary: Vocabulary) -> None:
    """Calls the task's own code on a few held-out targets as their own predictions, and on options that all score
    alike: what fails should fail before the training, not after it. Raises MetricError, also for examples without
    options where these are to be ranked, and FunctionError for code that cannot be loaded.
    """
    if heldout is None or not (task.metrics or task.postprocess) or not isinstance(task.objective, Supervised):
        return
    made = []
    for number in range(min(_TRIED, heldout.num_examples)):
        target = vocabulary.decode(heldout.raw(number))
        made.append(Prediction("", target, target, number=number))
    if not made:
        return
    task_metrics(task, heldout, made)
    if any(function.name == METRICS["rank_classification"] for function in task.metrics):
        _try_options(task, [example_of(heldout, one) for one in made])


def example_of(heldout: Dataset, prediction: Prediction) -> dict[str, Any]:
    """The example that a prediction is for: as the preprocessors gave it, or inputs and targets as text."""
    if isinstance(heldout.examples, RowExamples):
        return heldout.examples.example(prediction.number) or {}
    if ROW in heldout.store.columns:
        return unpack_example(heldout.store.columns[ROW].row(prediction.number))[0]
    return {"inputs": prediction.inputs, "targets": prediction.target}


def _try_options(task: Task, examples: Sequence[Mapping[str, Any]]) -> None:
    try:
        options = [option for number, example in enumerate(examples) for option in options_of(example, number)]
    except RankingError as error:
        raise MetricError(f"task {task.name!r}, metric rank_classification: {error}") from error
    if all(option.options for option in options):  # rows that are one option each may be half an example
        targets = [((one.example, one.option), one.is_correct, one.weight, 1) for one in options]
        score_metrics(task, targets, [0.0] * len(targets))


def _numbers(
    task: Task, metrics: Iterable[Function], targets: Sequence[Any], given: Sequence[Any], resamples: int
) -> dict[str, float]:
    found: dict[str, float] = {}
    for function in metrics:
        call = resolve(function)
        numbers = _called(task, "metric", function, call, targets, given)
        _checked(task, function, numbers)
        spread = _called(
            task, "intervals of metric", function, _with_intervals, numbers, call, targets, given, resamples
        )
        for name, value in spread.items():
            if name in found:
                raise MetricError(f"task {task.name!r}: two metrics give a number named {name!r}: rename one")
            found[name] = value
    return found


def _with_intervals(
    numbers: Mapping[str, Any],
    call: Callable[..., Any],
    targets: Sequence[Any],
    given: Sequence[Any],
    resamples: int,
) -> dict[str, float]:
    """The numbers, each followed by its interval if there are to be resamples."""
    if not resamples:
        return {str(name): float(value) for name, value in numbers.items()}
    found: dict[str, float] = {}
    for name, (value, low, high) in of_numbers(numbers, call, targets, given, resamples).items():
        found |= {str(name): value, f"{name}_low": low, f"{name}_high": high}
    return found


def _values(task: Task, heldout: Dataset, made: Iterable[Prediction]) -> tuple[list[Any], list[Any]]:
    if task.postprocess is None:
        return [one.target for one in made], [one.prediction for one in made]
    call = resolve(task.postprocess)
    taken = _taken(call)
    targets: list[Any] = []
    predictions: list[Any] = []
    for one in made:
        example = example_of(heldout, one)
        for text, is_target, values in ((one.target, True, targets), (one.prediction, False, predictions)):
            named = {"example": example, "is_target": is_target}
            given = named if taken is None else {name: named[name] for name in named if name in taken}
            what = f"postprocessing of example {one.number},"
            values.append(_called(task, what, task.postprocess, call, text, **given))
    return targets, predictions


def _taken(call: Callable[..., Any]) -> frozenset[str] | None:
    """Names of its parameters; None for one that takes any."""
    parameters = inspect.signature(call).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters)


def _called(task: Task, what: str, function: Function, call: Callable[..., Any], *values: Any, **named: Any) -> Any:
    try:
        return call(*values, **named)
    except Exception as error:
        file = code_file(call)
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        place = f" (at {file}:{frames[-1].lineno}: {frames[-1].line})" if frames else ""
        raise MetricError(f"task {task.name!r}, {what} {function}: {type(error).__name__}: {error}{place}") from error


def _checked(task: Task, function: Function, numbers: Any) -> None:
    if not isinstance(numbers, Mapping):
        raise MetricError(
            f"task {task.name!r}, metric {function}: it returned {shown(numbers)}, and must return a dict of numbers"
        )
    for name, value in numbers.items():
        if not isinstance(value, bool | int | float | np.generic | np.ndarray) or np.ndim(value):
            raise MetricError(
                f"task {task.name!r}, metric {function}: {name!r} is {shown(value)}, and must be a number"
            )
