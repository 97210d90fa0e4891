"""Models from T5X: a checkpoint opened and understood, then read array by array."""

from dataclasses import dataclass, replace
from pathlib import Path

from spanloom.conversion import t5x_checkpoint, t5x_gin, t5x_unseen, t5x_vocabulary
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_vocabulary import Found
from spanloom.conversion.huggingface import read_lineage
from spanloom.conversion.stored_model import Memory, StoredModel
from spanloom.conversion.t5x_architecture import architecture
from spanloom.conversion.t5x_checkpoint import T5XCheckpoint
from spanloom.conversion.t5x_gin import GinFacts
from spanloom.conversion.t5x_places import Layout
from spanloom.conversion.t5x_slots import Kept, kept_slots
from spanloom.conversion.t5x_weights import memory_of, weights_of
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.conversion.weights import Weight, read_all
from spanloom.model.params import T5
from spanloom.model.sizes import published_name
from spanloom.optim.adafactor import SLOTS
from spanloom.settings.model import Model

_FLOATS = {"float32", "float64", "bfloat16", "float16"}


@dataclass(frozen=True)
class OpenedT5X:
    """A checkpoint of T5X whose every array is found and accounted for; none has been read."""

    checkpoint: T5XCheckpoint
    """Its arrays."""
    model: Model
    """Architecture, of a published name where it has such."""
    activations_known: bool
    """Whether the model's activations are those it was trained with; else they are only the commonest."""
    layout: Layout
    """How T5X laid the weights out."""
    kept: Kept | None
    """The optimizer's memory, where it has any that is Adafactor's."""
    gin: GinFacts | None
    """What the gin file beside it says."""
    notes: tuple[str, ...]
    """What a user should know."""

    def weights(self) -> dict[str, Weight]:
        """The weights, none of which has been read."""
        return weights_of(self.model, self.layout, self.checkpoint.weights)

    def memory(self) -> Memory | None:
        """What its optimizer had in memory, unread; None where that is no Adafactor's, or there is none."""
        return None if self.kept is None else memory_of(self.model, self.kept, self.checkpoint.step)

    def params(self) -> T5:
        """The weights, NumPy float32. Raises ConversionError for what is damaged, NaN or infinite."""
        return read_all(self.model, self.weights())

    def vocabulary(self, named: str | None = None) -> Found | None:
        """The vocabulary: as named (a SentencePiece file, or "bytes"), else as found; None where nothing shows it."""
        checkpoint = self.checkpoint
        if named is not None:
            return t5x_vocabulary.named(named, checkpoint.path, checkpoint.weights)
        return t5x_vocabulary.find_vocabulary(checkpoint.path, checkpoint.weights, self.gin)


def open_t5x(path: str | Path, which: str = "last", activations: tuple[str, ...] | None = None) -> OpenedT5X:
    """The T5X checkpoint at `path`, or of a folder of them the last one or that of a step.

    `activations` are those that a user names, where neither weights nor a gin file show them. Raises ConversionError,
    naming file and array, where anything is missing, left over, cut short or of a shape that does not go with the
    rest, of weights and optimizer alike, or where the gin file beside it, or the user, speaks of another model.
    """
    checkpoint = t5x_checkpoint.open_checkpoint(t5x_checkpoint.find(Path(path), which))
    for name, stored in checkpoint.weights.items():
        if stored.dtype not in _FLOATS:
            raise ConversionError(stored.file, f"{name} is {stored.dtype}; weights are {', '.join(sorted(_FLOATS))}")
    model, layout = architecture({name: one.shape for name, one in checkpoint.weights.items()}, checkpoint.path)
    gin = t5x_gin.beside(checkpoint.path)
    completed = t5x_unseen.complete(model, gin, checkpoint.path, activations)
    model = replace(completed.model, name=published_name(completed.model))
    notes = (*completed.notes, *_widened(checkpoint))
    foreign = sorted(name for name in checkpoint.slots if name.rpartition("/")[2] not in SLOTS)
    if foreign:
        notes = (*notes, f"its optimizer is no Adafactor ({foreign[0]}), so that it cannot go on: weights alone")
    kept = None if foreign else kept_slots(model, layout, checkpoint.slots, checkpoint.path)
    return OpenedT5X(checkpoint, model, completed.activations_known, layout, kept, gin, notes)


def model_from_t5x(
    path: str | Path,
    which: str = "last",
    vocabulary: str | None = None,
    activations: tuple[str, ...] | None = None,
) -> TrainedModel:
    """A T5X checkpoint as a model in memory. Raises what `stored_t5x` raises."""
    return stored_t5x(path, which, vocabulary, activations).load()


def stored_t5x(
    path: str | Path,
    which: str = "last",
    vocabulary: str | None = None,
    activations: tuple[str, ...] | None = None,
) -> StoredModel:
    """A T5X checkpoint as the source of a conversion.

    Raises ConversionError where vocabulary or activations are not known, too.
    """
    opened = open_t5x(path, which, activations)
    if not opened.activations_known:
        raise t5x_unseen.unknown_activations(opened.model, opened.checkpoint.path)
    found = opened.vocabulary(vocabulary)
    if found is None:
        raise t5x_vocabulary.missing(opened.checkpoint.path, opened.model.vocab_size)
    place, widened = opened.checkpoint.path, _widened(opened.checkpoint)
    notes = tuple(note for note in (*opened.notes, found.note) if note and note not in widened)
    mark = t5x_vocabulary.mark_of(place)
    lineage = read_lineage(mark.parent) if mark else Lineage(str(place.resolve()), step=opened.checkpoint.step)
    return StoredModel(
        opened.model, opened.weights(), found.vocabulary, lineage, place, opened.memory(), opened.layout, notes
    )


def _widened(checkpoint: T5XCheckpoint) -> tuple[str, ...]:
    """What to say of weights that are read into memory as float32."""
    low = sorted({one.dtype for one in checkpoint.weights.values()} - {"float32", "float64"})
    return (f"weights stored as {', '.join(low)} were widened to float32",) if low else ()
