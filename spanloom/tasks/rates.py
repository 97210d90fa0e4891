"""From a mixture's rates to how often each of its tasks is drawn."""

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spanloom.settings.mixture import ByAlpha, BySize, Mixture, PerTemplate, Rate, Unit, Weighted
from spanloom.settings.task import Task

_MOST_EPOCHS = 1_000_000  # times the examples of any task, a number of 64 bits


@dataclass(frozen=True)
class Size:
    """How large a task is; None: not counted yet."""

    examples: float | None = None
    """Examples of one epoch."""
    documents: float | None = None
    """Documents, or rows, of the source."""
    characters: float | None = None
    """Characters of their text."""
    tokens: float | None = None
    """Tokens of inputs and targets."""


@dataclass(frozen=True, eq=False)
class TaskRates:
    """The T tasks of a mixture without its nesting."""

    tasks: tuple[Task, ...]
    """Sorted by name, those of rate 0 included."""
    rates: npt.NDArray[np.float64]
    """(T,) as the mixture weighs them; SeqIO's `get_rate`."""
    total: float
    """Sum of the rates of the mixture's own parts; SeqIO's `total_rate`."""
    epochs: tuple[int | None, ...]
    """Times that each task is used at most."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """(T,) share of the draws of each task."""
        return self.rates / self.total


def unit_of(rate: Rate) -> Unit | None:
    """The size that a rate asks for; None for a number."""
    if isinstance(rate, BySize | ByAlpha):
        return rate.unit
    return "examples" if isinstance(rate, PerTemplate) else None


def uncounted(mixture: Mixture, sizes: Mapping[str, Size]) -> set[tuple[str, Unit]]:
    """(task, unit) of all sizes that the rates ask for and that are not known: to be counted once and remembered."""
    return {
        (part.part.name, unit)
        for part in _walk(mixture)
        if (unit := unit_of(part.rate)) and isinstance(part.part, Task) and _known(part.part, unit, sizes) is None
    }


def rate_of(rate: Rate, size: float | None = None) -> float:
    """The number that a rate is for a task of this size, in the rate's own unit.

    Raises ValueError for rates that are negative or not finite, for settings out of range, and for a rate that needs
    the size where there is none.
    """
    if problem := _problem(rate):
        raise ValueError(problem)
    if isinstance(rate, int | float):
        return float(rate)
    if size is None:
        raise ValueError(f"{rate} needs the number of {unit_of(rate)}, which is unknown; count it, or give a number")
    if not (math.isfinite(size) and size >= 0):
        raise ValueError(f"a size of {size} {unit_of(rate)} is no size: it must be finite, and 0 or more")
    try:
        value = _value_of(rate, size)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"{rate} gives a rate of {value} for a size of {size}")
    return value


def _value_of(rate: BySize | ByAlpha | PerTemplate, size: float) -> float:
    if isinstance(rate, ByAlpha):
        return float(size**rate.alpha)
    if isinstance(rate, PerTemplate):
        return float(rate.maximum // rate.templates if size > rate.maximum else size)
    capped = min(size * rate.scale, rate.maximum or math.inf)
    return float(capped ** (1.0 / rate.temperature))


def task_rates(mixture: Mixture, sizes: Mapping[str, Size] | None = None) -> TaskRates:
    """The rate of every task of a mixture, mixtures inside of it resolved as SeqIO does.

    A mixture shares its rate among its parts: rate(task) = own rate + sum over mixtures of rate(mixture) *
    rate(task in it) / total rate of it. `sizes` by task name. Raises ValueError, naming mixture and part, where a rate
    is wrong, all rates of a mixture are 0, a name is used twice or inside of itself, a size is missing (all that are
    missing at once), or a task that should be drawn has no examples.
    """
    sizes = sizes or {}
    flat = _Flat(sizes)
    flat.check(mixture, ())
    if missing := sorted(uncounted(mixture, sizes)):
        raise ValueError(
            f"mixture {mixture.name!r} needs sizes that are not known: "
            + ", ".join(f"{unit} of {task!r}" for task, unit in missing)
        )
    total, rates = flat.rates(mixture)
    tasks = tuple(flat.tasks[name] for name in sorted(rates))
    values_T = np.array([rates[task.name] for task in tasks], np.float64)
    return TaskRates(tasks, values_T, total, tuple(flat.epochs[task.name] for task in tasks))


@dataclass
class _Flat:
    """What one walk over a mixture has found, by name."""

    sizes: Mapping[str, Size]
    tasks: dict[str, Task] = field(default_factory=dict)
    epochs: dict[str, int | None] = field(default_factory=dict)
    mixtures: dict[str, Mixture] = field(default_factory=dict)
    resolved: dict[str, tuple[float, dict[str, float]]] = field(default_factory=dict)

    def check(self, mixture: Mixture, path: tuple[str, ...]) -> None:
        """Names, rates and epochs that can be judged without sizes."""
        if mixture.name in path:
            raise ValueError(f"mixture {mixture.name!r} contains itself: {' > '.join((*path, mixture.name))}")
        if mixture.name in self.tasks or self.mixtures.get(mixture.name, mixture) != mixture:
            raise ValueError(f"{mixture.name!r} is the name of two different things; names must differ")
        if mixture.name in self.mixtures:
            return
        names = [part.part.name for part in mixture.parts]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"mixture {mixture.name!r} lists {repeated[0]!r} twice; add the two rates instead")
        for part in mixture.parts:
            where = f"mixture {mixture.name!r}, part {part.part.name!r}"
            if problem := _problem(part.rate):
                raise ValueError(f"{where}: {problem}")
            if isinstance(part.part, Task):
                self._check_task(part.part, part, where)
            else:
                self._check_mixture(part, where)
                self.check(part.part, (*path, mixture.name))
        self.mixtures[mixture.name] = mixture

    def _check_task(self, task: Task, part: Weighted, where: str) -> None:
        if task.name in self.mixtures or self.tasks.get(task.name, task) != task:
            raise ValueError(f"{task.name!r} is the name of two different things; names must differ")
        if part.epochs is not None and part.epochs < 1:
            raise ValueError(f"{where}: {part.epochs} epochs; must be 1 or more, and a task of rate 0 is never drawn")
        if part.epochs is not None and part.epochs > _MOST_EPOCHS:
            raise ValueError(f"{where}: more than {_MOST_EPOCHS:,} epochs; leave them unset, so that it never ends")
        if self.epochs.get(task.name, part.epochs) != part.epochs:
            raise ValueError(f"{where}: {part.epochs} epochs here, but {self.epochs[task.name]} elsewhere; say one")
        if self.sizes.get(task.name, Size()).examples == 0 and part.rate != 0:
            raise ValueError(f"{where}: the task has no examples; give it rate 0, or look at its source")
        self.tasks[task.name] = task
        self.epochs[task.name] = part.epochs

    def _check_mixture(self, part: Weighted, where: str) -> None:
        if not isinstance(part.rate, int | float):
            raise ValueError(f"{where}: a mixture's rate is a number, not {part.rate}; only tasks have a size")
        if part.epochs is not None:
            raise ValueError(f"{where}: epochs belong to tasks, not to mixtures")

    def rates(self, mixture: Mixture) -> tuple[float, dict[str, float]]:
        """(sum of the parts' rates, rate of every task inside)."""
        if mixture.name in self.resolved:
            return self.resolved[mixture.name]
        total, found = 0.0, dict[str, float]()
        for part in mixture.parts:
            inside = {part.part.name: 1.0}
            if isinstance(part.part, Task):
                unit = unit_of(part.rate)
                rate = rate_of(part.rate, _known(part.part, unit, self.sizes) if unit else None)
                inside_total = 1.0
            else:
                rate = rate_of(part.rate)
                inside_total, inside = self.rates(part.part)
            total += rate
            for name, share in inside.items():
                found[name] = found.get(name, 0.0) + rate * share / inside_total
        if not 0 < total < math.inf:
            raise ValueError(
                f"mixture {mixture.name!r}: the rates add up to {total}, so that nothing can be drawn in proportion; "
                + ("give at least one part a rate above 0" if total == 0 else "scale them down")
            )
        self.resolved[mixture.name] = total, found
        return total, found


def _walk(mixture: Mixture) -> Iterator[Weighted]:
    """All parts; those of a mixture that many paths lead to come once."""
    seen: set[int] = set()
    left = [mixture]
    while left:
        mixture = left.pop()
        if id(mixture) not in seen:
            seen.add(id(mixture))
            yield from mixture.parts
            left += [part.part for part in mixture.parts if isinstance(part.part, Mixture)]


def _known(task: Task, unit: Unit, sizes: Mapping[str, Size]) -> float | None:
    size: float | None = getattr(sizes.get(task.name, Size()), unit)
    return size


def _problem(rate: Rate) -> str | None:
    """What is wrong with a rate whatever the size, with its field."""
    if isinstance(rate, int | float):
        if isinstance(rate, int) and rate > sys.float_info.max:
            return "its rate is a number of more than 308 digits; scale the rates down"
        return None if math.isfinite(rate) and rate >= 0 else f"rate {rate} must be finite, and 0 or more"
    if isinstance(rate, ByAlpha):
        fine = math.isfinite(rate.alpha) and rate.alpha >= 0
        return None if fine else f"alpha {rate.alpha} must be finite, and 0 or more"
    if isinstance(rate, PerTemplate):
        fine = rate.templates >= 1 and rate.maximum >= rate.templates
        return None if fine else f"{rate} needs 1 template or more, and a maximum of at least one example for each"
    for name in ("temperature", "scale"):
        if not (math.isfinite(value := getattr(rate, name)) and value > 0):
            return f"{name} {value} must be finite, and above 0"
    if rate.maximum is not None and not rate.maximum >= 0:
        return f"maximum {rate.maximum} must be 0 or more"
    return None
