"""A task's preprocessors applied to its rows, one example at a time.

What a preprocessor returns says what it does: a dict is the example as it goes on (map), a bool whether it does
(filter), a list or an iterator of dicts the examples that it becomes (flat-map). Parameters beside the example are
given by name: `number` (of the row in its part, from 0), `rng` (`spanloom.tasks.example_rng.ExampleRng`, keyed by seed,
task, epoch and example) and `run` (`RunSettings`).

All run once, when the store is built, up to the first that takes `rng`: that one, and every one after it, runs whenever
an example is read.
"""

import linecache
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.settings.function import Function
from spanloom.settings.objectives import FullLM, Supervised
from spanloom.settings.task import Task
from spanloom.tasks import functions
from spanloom.tasks.example_rng import ExampleRng
from spanloom.tasks.feature_vocabularies import vocabularies_of
from spanloom.tasks.randomness import hash64
from spanloom.tasks.shown import shown
from spanloom.tasks.templates import FieldError
from spanloom.vocabularies.vocabulary import Vocabulary

Example = dict[str, Any]
_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep
_FIELDS = 12  # of an example that is shown
_VALUE = 60
_RETURNS = "a dict (the example), a bool (whether it is kept), or a list or iterator of dicts (examples)"


class PreprocessorError(ValueError):
    """A preprocessor fails, or gives what it must not: task, function, example and place in the user's code."""


@dataclass(frozen=True)
class RunSettings:
    """What a preprocessor may know of the run: what its parameter `run` gets. The store is built anew if it changes."""

    task: Task
    """The task's settings."""
    vocabularies: Mapping[str, Vocabulary]
    """The vocabulary of each feature, by its name."""

    @property
    def inputs_length(self) -> int | None:
        """Tokens of an encoder row, as the objective has them set."""
        return getattr(self.task.objective, "inputs_length", None)

    @property
    def targets_length(self) -> int | None:
        """Tokens of a decoder row, as the objective has them set."""
        objective = self.task.objective
        return objective.targets_length if isinstance(objective, Supervised | FullLM) else None


@dataclass(frozen=True)
class Step:
    """One preprocessor, ready to run."""

    function: Function
    call: Callable[..., Any]
    place: int
    """Its place among the task's preprocessors, from 0."""
    takes: frozenset[str]
    """Which of number, rng and run it takes."""


class Preprocessors:
    """The preprocessors of a task. Two with the same arguments do the same; nothing is kept between examples."""

    def __init__(self, task: Task, vocabulary: Vocabulary):
        """Raises FunctionError for code that is not found, or fails when it is loaded."""
        self._task = task.name
        self.run = RunSettings(task, vocabularies_of(task, vocabulary))
        """What preprocessors may know of the run."""
        steps = [_step(function, place) for place, function in enumerate(task.preprocessors)]
        first = next((step.place for step in steps if "rng" in step.takes), len(steps))
        self.built, self.read = tuple(steps[:first]), tuple(steps[first:])
        """Those that run when the store is built, and those that run when an example is read."""
        self.takes = frozenset().union(*(step.takes for step in steps))
        """Which of number, rng and run any of them takes."""

    def build(self, row: Example, number: int, dropped: Counter[str]) -> list[Example]:
        """The examples that a row becomes when the store is built; what filters leave out is counted by function.

        Raises PreprocessorError.
        """
        examples = [row]
        for step in self.built:
            before, examples = examples, []
            for example in before:
                kept = self._apply(step, example, number, None)
                if not kept:
                    dropped[str(step.function)] += 1
                examples += kept
        return examples

    def when_read(self, example: Example, number: int, key: int) -> Example | None:
        """The example as it is learnt from this time; None where a filter leaves it out.

        `key` decides its randomness. Raises PreprocessorError, also where an example becomes several or none: a store
        holds what is read one by one.
        """
        for step in self.read:
            rng = ExampleRng(int(hash64(key, step.place))) if "rng" in step.takes else None
            kept = self._apply(step, example, number, rng, single=True)
            if not kept:
                return None
            example = kept[0]
        return example

    def _apply(
        self, step: Step, example: Example, number: int, rng: ExampleRng | None, single: bool = False
    ) -> list[Example]:
        named: dict[str, Any] = {"number": number, "rng": rng, "run": self.run}
        given = {name: named[name] for name in step.takes}
        try:
            found = step.call(example, **given)
            if isinstance(found, dict):
                return [found]
            if isinstance(found, bool | np.bool_):
                return [example] if found else []
            if isinstance(found, list | Iterator):
                several = list(found)
                if all(isinstance(one, dict) for one in several) and (not single or len(several) == 1):
                    return several
                found = several
        except PreprocessorError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed(step, example, number, error) from error
        raise self.error(step, example, number, _misfit(found))

    def _failed(self, step: Step, example: Example, number: int, error: Exception | SystemExit) -> PreprocessorError:
        what = str(error) if isinstance(error, FieldError) else f"{type(error).__name__}: {error}"
        fix = f". {error.fix}" if isinstance(error, FieldError) and error.fix else ""
        return self.error(step, example, number, f"{what}{_place_of(error, step.call)}{fix}")

    def error(self, step: Step | None, example: Mapping[str, Any], number: int, what: str) -> PreprocessorError:
        """The error for an example of the task: what is wrong, and with which one."""
        function = f", preprocessor {step.function}" if step else ""
        return PreprocessorError(
            f"task {self._task!r}{function}, example {number}: {what}. The example is {shown_example(example)}"
        )


def shown_example(example: Mapping[str, Any]) -> str:
    """An example in a message: its first fields, long values cut."""
    fields = [f"{shown(name)}: {shown(_brief(value), _VALUE)}" for name, value in list(example.items())[:_FIELDS]]
    return "{" + ", ".join(fields) + (", ...}" if len(example) > _FIELDS else "}")


def probe_key(number: int) -> int:
    """A key of randomness for examples that only show what preprocessors do."""
    return int(hash64(0, number))


def _step(function: Function, place: int) -> Step:
    call = functions.resolve(function)
    takes = functions.parameters_of(call) & {"number", "rng", "run"}
    return Step(function, call, place, takes)


def _misfit(found: Any) -> str:
    """What is wrong with what a preprocessor gave."""
    if found is None:
        return f"it returned None, and must return {_RETURNS}; is a `return` missing?"
    if isinstance(found, list):
        for odd in (one for one in found if not isinstance(one, dict)):
            return f"among its examples is {shown(odd)} of type {type(odd).__name__}: each must be a dict"
        return (
            f"it gave {len(found)} examples when read, and must give one there: what makes several of one must stand "
            "before the first preprocessor that takes rng, so that the store holds them (a filter returns a bool)"
        )
    return f"it returned {shown(_brief(found), _VALUE)} of type {type(found).__name__}, and must return {_RETURNS}"


def _place_of(error: BaseException, call: Callable[..., Any]) -> str:
    """Where in the user's own code it failed; our preprocessors' places tell a user nothing."""
    file = functions.code_file(call)
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if frame.filename == file and not os.path.realpath(file).startswith(_PACKAGE):
            line = frame.line or linecache.getline(file, frame.lineno or 0)
            return f" (at {file}:{frame.lineno}: {line.strip()})"
    return ""


def _brief(value: Any) -> Any:
    """The beginning of a long array or list: only that is shown."""
    if isinstance(value, np.ndarray):
        return value.ravel()[:_VALUE].tolist() if value.size > _VALUE else value.tolist()
    return value[:_VALUE] if isinstance(value, list | tuple) else value


def preprocessed(task: Task, vocabulary: Vocabulary, rows: Iterable[Example], key: int = 0) -> Iterator[Example]:
    """The examples of these rows, as a run would have them: what a recipe's author tries at a prompt.

    `key` stands for seed, epoch and so on. Raises PreprocessorError and FunctionError.
    """
    chain, built = Preprocessors(task, vocabulary), count()
    for number, row in enumerate(rows):
        for example in chain.build(dict(row), number, Counter()):
            found = chain.when_read(example, number, int(hash64(key, next(built))))
            if found is not None:
                yield found
