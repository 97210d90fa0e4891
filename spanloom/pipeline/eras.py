"""How a run drew its tasks, and from which draw on it draws them otherwise: kept in checkpoints, so that tasks can be
added or weighed anew in a run that goes on, with what was drawn before staying as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from spanloom.pipeline.mixing_plan import UNLIMITED, MixingPlan, plan_of, replanned
from spanloom.pipeline.packing import WINDOW
from spanloom.pipeline.positions import Position
from spanloom.settings.mixture import Stop


@dataclass(frozen=True)
class Era:
    """How tasks are drawn from one draw of the run on."""

    draw: int
    """The first one."""
    rates: Mapping[str, float]
    """By name of the task, relative to one another."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Most draws that a task has in all, from the run's beginning on; only of tasks that have such a limit."""
    stop: Stop = "never"
    """When the data end."""
    seed: int = 0
    """The run's, which decides the order of draws among tasks."""
    slots: tuple[int, int] | None = None
    """Tokens of encoder and decoder rows, where examples are packed: they follow from the tasks."""


Eras = tuple[Era, ...]
"""In order; the first begins at draw 0."""


class Resumption(NamedTuple):
    """Where in its data a run goes on."""

    eras: Eras
    """How it drew its tasks until then; empty: not known, so always as its settings say."""
    position: Position
    """Where it stands."""
    streams: Mapping[str, Any] = MappingProxyType({})
    """Where the streams among its tasks stand, by name of the task, see `spanloom.pipeline.spool.needed`."""


def next_draw(position: Position) -> int:
    """The first draw that may be drawn otherwise. A window of packed rows that is begun is drawn to its end."""
    if "examples" in position:
        return position["examples"]
    return (position["window"] + (position["row"] > 0)) * WINDOW


def continued(now: Era, eras: Eras, position: Position) -> Eras:
    """The eras of a run that goes on at a position and is to be drawn as `now` says, whose own draw is not looked at.

    Raises ValueError where a task is gone that was drawn before.
    """
    draw = next_draw(position)
    begun = tuple(era for era in eras if era.draw < draw)
    if not begun:
        return (replace(now, draw=0),)
    if replace(begun[-1], draw=now.draw) == now:
        return begun
    if gone := sorted({name for era in begun for name in era.rates} - {*now.rates}):
        raise ValueError(
            f"the run has drawn from the task {gone[0]!r}, which is gone: keep it in the mixture, with rate 0, so that "
            "draws are counted on; or begin a new run from the weights alone: --start THIS_RUN --out NEW_DIR"
        )
    return (*begun, replace(now, draw=draw))


def plan_from(eras: Eras) -> tuple[list[str], MixingPlan]:
    """The tasks by name, in the order in which draws number them, and all draws."""
    first = eras[0]
    names = sorted(first.rates)
    plan = plan_of(*_numbers(first, names), stop=first.stop, seed=first.seed, names=names)
    for era in eras[1:]:
        names += sorted({*era.rates} - {*names})
        plan = replanned(plan, era.draw, *_numbers(era, names), stop=era.stop, seed=era.seed, names=names)
    return names, plan


def earlier_slots(eras: Eras) -> tuple[tuple[int, tuple[int, int]], ...]:
    """(first window that has others, slots) of all eras but the last, in order, where examples are packed."""
    return tuple((after.draw // WINDOW, era.slots) for era, after in pairwise(eras) if era.slots is not None)


def to_data(eras: Eras) -> list[dict[str, Any]]:
    """Eras as JSON data."""
    return [asdict(era) for era in eras]


def from_data(data: Sequence[Mapping[str, Any]]) -> Eras:
    """Eras of JSON data. Raises ValueError, TypeError or KeyError for what is none."""
    eras = tuple(Era(**{**era, "slots": tuple(era["slots"]) if era["slots"] else None}) for era in data)
    if eras:
        plan_from(eras)
    return eras


def _numbers(era: Era, names: Sequence[str]) -> tuple[list[float], list[int]]:
    """Rates and limits by number of the task."""
    return [era.rates.get(name, 0.0) for name in names], [era.limits.get(name, UNLIMITED) for name in names]
