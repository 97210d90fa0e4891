"""A task's own postprocessing and metrics, on what a model made of its held-out examples."""

import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from spanloom.evaluation.exact_match import Prediction, exact_match
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.row_encoder import unpack_example
from spanloom.pipeline.row_examples import RowExamples
from spanloom.settings.function import Function
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import Task
from spanloom.tasks.functions import code_file, resolve
from spanloom.tasks.rows import ROW
from spanloom.tasks.shown import shown
from spanloom.vocabularies.vocabulary import Vocabulary

EXACT_MATCH = "exact_match"
_TRIED = 4


class MetricError(ValueError):
    """A metric or a postprocessing fails, or gives what it must not: task, function and place in the user's code."""


def task_metrics(task: Task, heldout: Dataset, made: Sequence[Prediction]) -> dict[str, float]:
    """The numbers that the task's metrics give for these predictions; by default the share that is right.

    Targets and predictions are texts, or what `task.postprocess` makes of them. Raises MetricError, FunctionError for
    code that cannot be loaded, and ValueError if there are no predictions.
    """
    share = exact_match(made)
    if not task.metrics and task.postprocess is None:
        return {EXACT_MATCH: share}
    targets, predictions = _values(task, heldout, made)
    if not task.metrics:
        return {EXACT_MATCH: sum(map(_same, targets, predictions)) / len(made)}
    found: dict[str, float] = {}
    for function in task.metrics:
        numbers = _called(task, "metric", function, resolve(function), targets, predictions)
        for name, value in _checked(task, function, numbers).items():
            if name in found:
                raise MetricError(f"task {task.name!r}: two metrics give a number named {name!r}: rename one")
            found[name] = value
    return found


def try_metrics(task: Task, heldout: Dataset | None, vocabulary: Vocabulary) -> None:
    """Calls the task's own code on a few held-out targets as their own predictions: what fails should fail before the
    training, not after it. Raises MetricError, and FunctionError for code that cannot be loaded.
    """
    if heldout is None or not (task.metrics or task.postprocess) or not isinstance(task.objective, Supervised):
        return
    made = []
    for number in range(min(_TRIED, heldout.num_examples)):
        target = vocabulary.decode(heldout.raw(number))
        made.append(Prediction("", target, target, number=number))
    if made:
        task_metrics(task, heldout, made)


def example_of(heldout: Dataset, prediction: Prediction) -> dict[str, Any]:
    """The example that a prediction is for: as the preprocessors gave it, or inputs and targets as text."""
    if isinstance(heldout.examples, RowExamples):
        return heldout.examples.example(prediction.number) or {}
    if ROW in heldout.store.columns:
        return unpack_example(heldout.store.columns[ROW].row(prediction.number))[0]
    return {"inputs": prediction.inputs, "targets": prediction.target}


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


def _checked(task: Task, function: Function, numbers: Any) -> dict[str, float]:
    if not isinstance(numbers, Mapping):
        raise MetricError(
            f"task {task.name!r}, metric {function}: it returned {shown(numbers)}, and must return a dict of numbers"
        )
    for name, value in numbers.items():
        if not isinstance(value, bool | int | float | np.generic | np.ndarray) or np.ndim(value):
            raise MetricError(
                f"task {task.name!r}, metric {function}: {name!r} is {shown(value)}, and must be a number"
            )
    return {str(name): float(value) for name, value in numbers.items()}


def _same(target: Any, prediction: Any) -> bool:
    return bool(np.array_equal(target, prediction) if isinstance(target, np.ndarray) else target == prediction)
