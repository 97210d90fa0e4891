"""A recipe before it is written: the run, the parameters of its function, and what there is to say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from spanloom.migration.fates import Note
from spanloom.settings.mixture import Mixture
from spanloom.settings.run import Run
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Vocabulary


class MigrationError(ValueError):
    """A run that cannot be one of Spanloom; the message says which line of the input, and why."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the recipe's function: what differs from one machine to the next."""

    name: str
    kind: Literal["str | None", "str", "tuple[str, ...]"]
    default: str
    """As code."""
    text: str
    """What it is, for help."""


@dataclass(frozen=True)
class Draft:
    """What a recipe is written from."""

    run: Run
    """Not resolved: fields that follow from others are unset."""
    parameters: tuple[Parameter, ...] = ()
    notes: tuple[Note, ...] = ()
    kind: Literal["train", "eval"] = "train"
    """eval: the input was made to write or to score; the run is the one that its task and model belong to."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """Text of the functions of the user that the recipe holds, by name."""
    imports: tuple[str, ...] = ()
    """Import statements that these need."""


@dataclass(frozen=True)
class Asked:
    """What a run asks of its data."""

    name: str
    """Of the task or mixture."""
    lengths: Mapping[str, int]
    """Tokens of inputs and targets; empty where they are not set."""
    split: str = "train"
    heldout_split: str | None = "validation"
    vocabulary: Vocabulary | None = None
    """What the model reads; None where the input does not say."""


@dataclass(frozen=True)
class FoundData:
    """The data as Spanloom's settings."""

    data: Task | Mixture
    parameters: tuple[Parameter, ...] = ()
    notes: tuple[Note, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()


class TaskFinder(Protocol):
    """Finds a task or mixture by the name that SeqIO knows it under."""

    def __call__(self, asked: Asked) -> FoundData:
        """The data. Raises MigrationError where there are none of that name."""
