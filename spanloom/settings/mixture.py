"""What a run mixes: tasks and mixtures of tasks with rates, as settings."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from spanloom.settings.task import Task

Unit = Literal["examples", "documents", "characters", "tokens"]
"""What a size counts; documents: of text (mT5 counts pages), or rows, as the source has them."""
Stop = Literal["never", "first", "last"]


@dataclass(frozen=True)
class BySize:
    """Rate from a task's size, min(size * scale, maximum) ** (1 / temperature), as SeqIO and T5 have it."""

    maximum: float | None = None
    """Cap on the scaled size; unset or 0: none (T5: 2**19 or 2**21 examples)."""
    temperature: float = 1.0
    """Evens rates out when above 1; mT5's exponent 0.3 is a temperature of 1 / 0.3, never of 0.3."""
    scale: float = 1.0
    """Factor on the size, before the cap."""
    unit: Unit = "examples"
    """What the size counts."""


@dataclass(frozen=True)
class ByAlpha:
    """Rate size ** alpha: exponential smoothing of languages (mT5, Xue et al. 2021)."""

    alpha: float = 0.3
    """1: in proportion to the size; 0: all alike."""
    unit: Unit = "examples"
    """What the size counts."""


@dataclass(frozen=True)
class PerTemplate:
    """T0's cap: templates of a data set with more than `maximum` examples share the cap among them (Sanh et al. 2022).

    The rate is maximum // templates above the cap, and the number of examples at or below it.
    """

    templates: int
    """Templates of the task's data set, this one included."""
    maximum: int = 500_000
    """Cap on the examples of the data set."""


Rate = float | BySize | ByAlpha | PerTemplate


@dataclass(frozen=True)
class Weighted:
    """A task or a mixture, and how often it is drawn beside its neighbours."""

    part: "Task | Mixture"
    """What is drawn from."""
    rate: Rate = 1.0
    """A number relative to the other rates (0: never), or a rule for the task's size; mixtures take numbers only."""
    epochs: int | None = None
    """Times that a task's examples are used at most; unset: as often as the run asks. Mixtures take none."""


@dataclass(frozen=True)
class Mixture:
    """Tasks and mixtures with rates. A task that is reached more than once is drawn at the sum of its rates."""

    name: str
    """Name in metrics and reports."""
    parts: tuple[Weighted, ...]
    """What is mixed, in any order."""
    stop: Stop = "last"
    """When the data end: never; with the first task that has used up its epochs (as in SeqIO); or with the last, after
    tasks have dropped out one by one. Tasks without epochs never end."""


def tasks_of(data: Task | Mixture) -> tuple[Task, ...]:
    """Every task once, by name, in the order of first mention."""
    if isinstance(data, Task):
        return (data,)
    found: dict[str, Task] = {}
    for part in data.parts:
        for task in tasks_of(part.part):
            found.setdefault(task.name, task)
    return tuple(found.values())


def map_tasks(data: Task | Mixture, change: Callable[[Task], Task]) -> Task | Mixture:
    """The same data with every task changed."""
    if isinstance(data, Task):
        return change(data)
    return replace(data, parts=tuple(replace(part, part=map_tasks(part.part, change)) for part in data.parts))
