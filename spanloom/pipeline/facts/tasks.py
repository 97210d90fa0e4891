"""What a run will read of each of its tasks: how much, how often, how long it is, and what does not fit."""

from collections.abc import Iterator
from dataclasses import dataclass

from spanloom.pipeline.data import Data, TaskData
from spanloom.pipeline.facts.draws import Planned
from spanloom.pipeline.facts.duplicates import duplicates
from spanloom.pipeline.facts.effort import Effort
from spanloom.pipeline.facts.lengths import Lengths, lengths_of
from spanloom.pipeline.facts.misfits import (
    duplicate_misfit,
    repeat_misfit,
    sentinel_misfit,
    truncated_misfits,
    unknown_misfits,
)
from spanloom.pipeline.facts.pieces import reserved_sentinels
from spanloom.pipeline.facts.sentinels import sentinels_found
from spanloom.pipeline.facts.token_columns import token_columns
from spanloom.settings.kinds import kind_name


@dataclass(frozen=True)
class TaskFacts:
    """One task in a run."""

    name: str
    """Its name."""
    objective: str
    """Kind of the objective, such as span-corruption."""
    examples: int
    """Training examples in one epoch."""
    heldout: int
    """Held-out examples; 0: none."""
    tokens: int
    """Tokens in the store of the training part, separators of documents included; 0 where examples are made when they
    are read.
    """
    rate: float
    """Share of the run's examples that the settings ask for."""
    draws: int
    """Examples drawn in the planned steps."""
    share: float
    """Share of the examples drawn in the planned steps that are its own."""
    lengths: dict[str, Lengths]
    """Of "inputs" and "targets"."""
    misfits: tuple[str, ...]
    """What does not fit, in words."""
    is_stream: bool = False
    """Nobody knows how many examples there are: `examples` and `tokens` count those that are on disk."""

    @property
    def epochs(self) -> float:
        """How often each example is drawn in the planned steps, on the mean."""
        return self.draws / self.examples

    @property
    def tokens_per_epoch(self) -> int:
        """Tokens that the model reads and writes in one epoch, marks included, padding not."""
        return round(self.examples * sum(one.mean for one in self.lengths.values()))

    @property
    def is_sample(self) -> bool:
        """Whether lengths are those of a sample."""
        return self.is_stream or any(one.is_sample for one in self.lengths.values())


def task_facts(data: Data, one: TaskData, planned: Planned, effort: Effort) -> TaskFacts:
    """The facts of one of the tasks."""
    lengths = lengths_of(one.train, one.task, effort.examples)
    draws = planned.draws[one.task.name]
    return TaskFacts(
        name=one.task.name,
        objective=kind_name(type(one.task.objective)),
        examples=one.train.num_examples,
        heldout=0 if one.heldout is None else one.heldout.num_examples,
        tokens=sum(column.num_tokens for column in token_columns(one.train.store).values()),
        rate=one.rate,
        draws=draws,
        share=draws / max(planned.total, 1),
        lengths=lengths,
        misfits=tuple(_misfits(data, one, lengths, draws, effort)),
        is_stream=one.train.is_stream,
    )


def _misfits(data: Data, one: TaskData, lengths: dict[str, Lengths], draws: int, effort: Effort) -> Iterator[str]:
    task, store, vocabulary = one.task, one.train.store, data.vocabulary
    yield from truncated_misfits(task, lengths)
    yield from unknown_misfits(task, store, vocabulary)
    sentinels = sentinels_found(store, reserved_sentinels(task.objective, vocabulary), effort)
    found = (
        sentinel_misfit(task, sentinels, vocabulary),
        duplicate_misfit(task, duplicates(store, effort), vocabulary),
        repeat_misfit(task.name, task.objective, 0 if one.train.is_stream else draws / one.train.num_examples),
    )
    yield from (text for text in found if text)
