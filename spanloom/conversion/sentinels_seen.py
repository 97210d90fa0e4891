"""Which sentinels of a stored model look trained, in words for `inspect`. Reads few rows where the format allows it."""

from collections.abc import Mapping, Sequence

import numpy as np

from spanloom.conversion import hf_names
from spanloom.conversion.hf_files import WeightTensor
from spanloom.conversion.stored import Stored
from spanloom.conversion.untrained_rows import Gather, known_of, untrained
from spanloom.settings.vocabulary import Bytes, Vocabulary
from spanloom.vocabularies.build import build

_LARGEST = 1 << 30  # bytes of a matrix that can only be read whole
_OF_BYTES = 40  # of the sentinels of bytes the later ones show what untrained rows look like


def describe(vocabulary: Vocabulary, rows: int, matrices: Sequence[Gather]) -> str:
    """How many sentinels look trained by these matrices of so many rows."""
    sentinels = build(vocabulary).sentinels
    asked = sentinels[:_OF_BYTES] if isinstance(vocabulary, Bytes) else sentinels
    idle = untrained(matrices, known_of(vocabulary, rows, asked), asked)
    if idle is None:
        return "not told by the weights"
    trained = len(asked) - len(idle)
    if not idle:
        return f"all {len(asked)}" if len(asked) == len(sentinels) else f"the first {len(asked)}, or more"
    if idle == asked[trained:]:
        return f"the first {trained} of {len(sentinels)}" if trained else "none: all their rows look untrained"
    return f"{trained} of the first {len(asked)}; the rows of {', '.join(map(str, idle[:3]))}, ... look untrained"


def rows_of_hugging_face(entries: Mapping[str, WeightTensor]) -> list[Gather]:
    """Rows of the embedding and the head of a folder."""

    def gather(entry: WeightTensor) -> Gather:
        return lambda ids: np.concatenate([entry.load_rows(int(one), int(one) + 1) for one in ids])

    names = (hf_names.EMBEDDING, hf_names.HEAD)
    return [gather(entries[name]) for name in names if name in entries]


def rows_of_t5x(weights: Mapping[str, Stored]) -> list[Gather]:
    """Rows of the embedding and the head of a checkpoint; none of a matrix that is too large to be read for this."""

    def gather(stored: Stored, axis: int) -> Gather:
        def rows(ids: np.ndarray) -> np.ndarray:
            array = (stored.look or stored.read)()
            return np.moveaxis(np.take(array, ids, axis).astype(np.float32), axis, 0)

        return rows

    places = {"token_embedder/embedding": 0, "decoder/logits_dense/kernel": 1}
    found = {name: weights[name] for name in places if name in weights}
    small = {name: one for name, one in found.items() if one.look or np.prod(one.shape) * 4 <= _LARGEST}
    return [gather(one, places[name]) for name, one in small.items()]
