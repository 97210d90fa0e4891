"""What others have published of a recipe's models, to be shown beside what an evaluation measures."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedModel:
    """A model as its authors report it."""

    name: str
    """What it is called, with its size."""
    source: str
    """Who reports it, where, and how it was trained where that differs."""
    scores: Mapping[str, float]
    """By name of the data set, times 100."""


@dataclass(frozen=True)
class Published:
    """Figures of several models on the same data sets."""

    measure: str
    """Which number of an evaluation they are comparable with: rank_accuracy."""
    data_sets: Mapping[str, tuple[str, ...]]
    """Names of data sets as they are published, and which of ours each is the mean of."""
    models: tuple[PublishedModel, ...]
    """Each with a figure for every one of these data sets."""
