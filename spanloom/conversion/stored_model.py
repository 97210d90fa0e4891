"""A model on disk, opened and understood, of whose weights none has been read: what a conversion begins with."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spanloom.conversion.t5x_places import Layout
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.conversion.weights import Weight, Weights, in_memory, read_all
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Vocabulary


@dataclass(frozen=True)
class Slot:
    """One array of Adafactor's memory, unread."""

    axes: tuple[str, ...]
    """Its axes by name, in our order: those of the parameter that it keeps."""
    weight: Weight
    """Its numbers, float32."""


@dataclass(frozen=True)
class Memory:
    """What an Adafactor had in memory."""

    count: int
    """Steps that it had counted."""
    rules: Literal["heuristic", "logical", "mixed"]
    """How its second moments are factored, as `Adafactor.factor_rules` has it; mixed: as it has it not."""
    slots: Mapping[str, Mapping[str, Slot]]
    """v_row, v_col, v and m, each by our name of the parameters that have it."""

    @property
    def momentum(self) -> bool:
        """Whether there is momentum."""
        return bool(self.slots["m"])

    @property
    def weights(self) -> dict[str, Weight]:
        """Every array by slot and parameter: "v_row/token_embedder/embedding"."""
        return {f"{slot}/{name}": one.weight for slot, names in self.slots.items() for name, one in names.items()}


@dataclass(frozen=True)
class StoredModel:
    """A model to be converted."""

    model: Model
    """Architecture."""
    weights: Weights
    """Its weights, read part by part."""
    vocabulary: Vocabulary
    """Vocabulary settings; a SentencePiece path must exist."""
    lineage: Lineage
    """Where it comes from."""
    folder: Path | None = None
    """The folder it is in, which is not to be written over."""
    memory: Memory | None = None
    """Its optimizer's memory, where it has one that can go on elsewhere."""
    layout: Layout | None = None
    """How T5X had laid it out, where it comes from there."""
    notes: tuple[str, ...] = ()
    """What the user should know: decisions taken and why."""

    @property
    def num_params(self) -> int:
        """Numbers in the model."""
        return sum(weight.size for weight in self.weights.values())

    def load(self) -> TrainedModel:
        """The model in memory, float32."""
        params = read_all(self.model, self.weights)
        return TrainedModel(self.model, params, self.vocabulary, self.lineage, self.folder)


def as_stored(source: TrainedModel) -> StoredModel:
    """A model in memory, as one on disk is seen."""
    weights = in_memory(source.params, source.lineage.origin)
    return StoredModel(source.model, weights, source.vocabulary, source.lineage, source.folder)
