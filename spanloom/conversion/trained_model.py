"""What is converted: weights in memory with all that belongs to them, wherever they were read from."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spanloom.model.params import T5, flatten
from spanloom.settings.model import Model
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS
from spanloom.settings.vocabulary import Vocabulary
from spanloom.vocabularies.build import build


@dataclass(frozen=True)
class Lineage:
    """Where weights come from, as far as it is known."""

    origin: str
    """Path they were read from, absolute: a checkpoint or a folder."""
    run: Run | None = None
    """The run that trained them."""
    step: int | None = None
    """Updates done."""
    checkpoint: str | None = None
    """A hash of the very checkpoint, see `spanloom.training.integrity.fingerprint`."""
    losses: dict[str, float] = field(default_factory=dict)
    """Losses by name ('held-out loss'), nats per target token."""
    started_from: str | None = None
    """What the run started from; none: random weights."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the programs that trained it."""
    moved_rows: dict[str, int] = field(default_factory=dict)
    """Where it has another vocabulary than what it comes from: how many rows were copied and made of others, as
    `spanloom.vocabularies.correspondence.Correspondence.counts` has it."""
    before: "tuple[Lineage, ...]" = ()
    """What the run was started from, and that from in its turn, earliest first, as far as it is there to be read."""

    @property
    def home(self) -> Path:
        """The directory of the run that the checkpoint is of; the folder itself, where it is none."""
        path = Path(self.origin)
        return path.parent.parent if path.parent.name == CHECKPOINTS else path


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

    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of weights and vocabulary: the same wherever the same model was read from."""
        digest = hashlib.sha256(build(self.vocabulary).fingerprint().encode())
        for name, leaf in sorted(flatten(self.params).items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(leaf).data)
        return digest.hexdigest()
