"""How likely a model finds targets, several for one input: sorted into batches of few shapes, order kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spanloom.evaluation.arguments import check_batch_size, check_ids, pairs_of
from spanloom.evaluation.rows import BATCH, Devices, batches_by_length, padded, width_for
from spanloom.model.params import T5
from spanloom.model.scoring import token_log_probs
from spanloom.settings.model import Model
from spanloom.vocabularies.vocabulary import Ids

_ROW = 512  # target tokens that are put into one row, unless a single target has more


@dataclass(frozen=True)
class Score:
    """How likely a target is."""

    token_log_probs: tuple[float, ...]
    """Natural logarithm of each token's probability after those before it."""

    @property
    def log_prob(self) -> float:
        """Their sum: the logarithm of the target's probability."""
        return sum(self.token_log_probs)

    @property
    def normalized(self) -> float:
        """Their mean: of two targets, that of the longer is not smaller for its length."""
        return self.log_prob / max(len(self.token_log_probs), 1)


class Scorer:
    """Scores with one model."""

    def __init__(self, params: T5, model: Model, devices: Devices | None = None) -> None:
        self._params, self._model, self._devices = params, model, devices or Devices()

    def score(self, pairs: Sequence[tuple[Ids, Ids]], batch_size: int = BATCH) -> list[Score]:
        """The score of each pair of encoder tokens and target tokens (the end of sequence counts where it is given).

        An input that comes with several targets is encoded once for those that fit a row. Raises ValueError for
        what is no pair of ids that the model has, and for a target that holds padding (0).
        """
        check_batch_size(batch_size)
        pairs = pairs_of(pairs, "([5, 1], [6, 1])")
        for number, (inputs, target) in enumerate(pairs, 1):
            check_ids(inputs, self._model.vocab_size, f"pair {number}: the input")
            check_ids(target, self._model.vocab_size, f"pair {number}: the target")
            if not all(target):
                raise ValueError(f"pair {number}: the target holds the id 0, which is padding")
        rows = list(_rows(pairs))
        scores: dict[int, Score] = {}
        for chosen, width, count in batches_by_length([len(row.inputs) for row in rows], batch_size):
            together = [rows[one] for one in chosen]
            log_probs = self._batch(together, width, count)
            for row, found in zip(together, log_probs, strict=True):
                end = 0
                for place in row.places:
                    begin, end = end, end + len(pairs[place][1])
                    scores[place] = Score(tuple(map(float, found[begin:end])))
        return [scores[place] for place in range(len(pairs))]

    def _batch(self, rows: Sequence["_Row"], width: int, count: int) -> np.ndarray:
        count = -(-count // self._devices.shards) * self._devices.shards
        targets = width_for(max(len(row.targets) for row in rows))
        batch = {
            "encoder_input_tokens": padded([row.inputs for row in rows], count, width),
            "decoder_target_tokens": padded([row.targets for row in rows], count, targets),
            "decoder_input_tokens": padded([row.shifted for row in rows], count, targets),
            "decoder_segment_ids": padded([row.segments for row in rows], count, targets),
        }
        placed = {name: self._devices.put(array) for name, array in batch.items()}
        found = token_log_probs(self._params, self._model, placed, place=self._devices.place)
        whole: np.ndarray = self._devices.fetch(found)
        return whole[: len(rows)]


@dataclass(frozen=True)
class _Row:
    """One input, and targets one after another."""

    inputs: tuple[int, ...]
    places: list[int]
    targets: list[int]
    shifted: list[int]
    segments: list[int]


def _rows(pairs: Sequence[tuple[Ids, Ids]]) -> Iterator[_Row]:
    """Pairs of the same input side by side, as many as a row takes."""
    open_rows: dict[tuple[int, ...], _Row] = {}
    for place, (inputs, target) in enumerate(pairs):
        key, ids = tuple(map(int, inputs)), list(map(int, target))
        row = open_rows.get(key)
        if row is not None and len(row.targets) + len(ids) > _ROW:
            yield open_rows.pop(key)
            row = None
        if row is None:
            row = open_rows[key] = _Row(key, [], [], [], [])
        row.places.append(place)
        row.targets.extend(ids)
        row.shifted.extend([0, *ids[:-1]] if ids else [])
        row.segments.extend([len(row.places)] * len(ids))
    yield from open_rows.values()
