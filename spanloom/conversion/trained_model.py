"""What is converted: weights in memory with all that belongs to them, wherever they were read from."""

from dataclasses import dataclass, field
from pathlib import Path

from spanloom.model.params import T5
from spanloom.settings.model import Model
from spanloom.settings.run import Run
from spanloom.settings.vocabulary import Vocabulary


@dataclass(frozen=True)
class Lineage:
    """Where weights come from, as far as it is known."""

    origin: str
    """Path they were read from."""
    run: Run | None = None
    """The run that trained them."""
    step: int | None = None
    """Updates done."""
    losses: dict[str, float] = field(default_factory=dict)
    """Losses by name ('held-out loss'), nats per target token."""
    started_from: str | None = None
    """What the run started from; none: random weights."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the programs that trained it."""


@dataclass(frozen=True)
class TrainedModel:
    """A model to be converted."""

    model: Model
    """Architecture."""
    params: T5
    """Weights, float32 arrays."""
    vocabulary: Vocabulary
    """Vocabulary settings; a SentencePiece path must exist."""
    lineage: Lineage
    """Where they come from."""
    folder: Path | None = None
    """The folder they were read from, which is not to be written over."""
