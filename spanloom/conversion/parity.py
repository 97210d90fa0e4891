"""Whether two models are the same: every bit of their weights, and what they say to fixed sentences."""

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from spanloom.conversion.weights import (
    Dtype,
    Weight,
    Weights,
    cast,
    in_order,
    owned,
    parts,
    same_bits,
    written_type,
)
from spanloom.vocabularies.vocabulary import Vocabulary

TOLERANCE = 1e-4
SENTENCES = (
    ("The tea was cold before anybody thought of drinking it.", "Nobody had asked for tea."),
    ("Der Nebel hob sich erst, als die Fähre schon weit draußen war.", "Über dem Wasser wurde es hell."),
    ("Весной река снова вышла из берегов.", "Мост закрыли на неделю."),
    ("朝の市場で魚を二匹買った。", "一匹は猫にやった。"),
    ("أغلقت المكتبة أبوابها قبل الغروب.", "عاد الطلاب إلى بيوتهم."),
    ("x = [1, 2.5, -3e4]\nprint(x)", "[1, 2.5, -30000.0]"),
)


def examples(vocabulary: Vocabulary, count: int = len(SENTENCES)) -> dict[str, np.ndarray]:
    """A batch of so many of the fixed sentences, with two sentinels where the vocabulary has them; int32, padded with
    0.
    """
    inputs, targets = [], []
    for text, answer in SENTENCES[:count]:
        ids = vocabulary.encode(text).tolist()
        reply = vocabulary.encode(answer).tolist()
        first, second = (*vocabulary.sentinels[:2], vocabulary.unk_id, vocabulary.unk_id)[:2]
        middle = len(ids) // 2
        inputs.append([*ids[:middle], first, *ids[middle:], vocabulary.eos_id])
        targets.append([first, *reply, second, vocabulary.eos_id])
    target_BxT = _padded(targets)
    return {
        "encoder_input_tokens": _padded(inputs),
        "decoder_target_tokens": target_BxT,
        "decoder_input_tokens": np.pad(target_BxT, ((0, 0), (1, 0)))[:, :-1],
    }


def largest_difference(first: np.ndarray, second: np.ndarray) -> float:
    """Largest absolute difference; values that are not numbers are equal only to their like."""
    if np.array_equal(first, second, equal_nan=True):
        return 0.0
    difference = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return float("inf") if np.isnan(difference).any() else float(difference.max())


class Comparison:
    """Compares weights with their source while both are read for something else: nothing is read twice for it.

    A layer that was read of `source` is kept until it is read of `weights`, and stands in for it where both are equal:
    so a matrix that lies transposed in a file is put in order once, if both are read in lockstep. Threads may read.
    """

    def __init__(
        self, source: Weights, written: Weights, dtype: Dtype = "keep", done: Callable[[int], None] = lambda count: None
    ) -> None:
        """`written` is to hold, to the last bit, what the source has as it is when written in `dtype`; `done` is told
        how many numbers were compared."""
        self._source, self._dtype, self._done, self._one_at_a_time = source, dtype, done, threading.Lock()
        self._kept: dict[tuple[str, int | None], np.ndarray] = {}
        self.source: Weights = {name: self._as_written(name, one) for name, one in source.items()}
        """`source`, its layers as they are when written, in C order."""
        self._left = dict.fromkeys(parts(source))
        self.different = [
            name for name, one in source.items() if name not in written or written[name].shape != one.shape
        ]
        """Names of the parameters that are known to differ."""
        self.weights: Weights = {name: replace(one, read=self._reading(name, one)) for name, one in written.items()}
        """`written`, every part of which is compared when it is first read."""

    def finish(self) -> list[str]:
        """Compare what nobody read, one part in memory at a time; gives the names of all parameters that differ."""
        for name, layer in list(self._left):
            if name not in self.different:
                self.weights[name].read(layer)
        return self.different

    def _as_written(self, name: str, one: Weight) -> Weight:
        if one.layers is None:  # of an embedding some rows are read, a block at a time
            return one
        return replace(one, dtype=written_type(one.dtype, self._dtype), read=self._keeping(name))

    def _keeping(self, name: str) -> Callable[[int | None], np.ndarray]:
        def read(layer: int | None) -> np.ndarray:
            array = owned(in_order(self._written(name, layer)))
            if (name, layer) in self._left:
                self._kept[name, layer] = array
            return array

        return read

    def _reading(self, name: str, weight: Weight) -> Callable[[int | None], np.ndarray]:
        def read(layer: int | None) -> np.ndarray:
            array = weight.read(layer)
            if (name, layer) not in self._left:
                return array
            del self._left[name, layer]
            kept = self._kept.pop((name, layer), None)
            same = same_bits(self._written(name, layer) if kept is None else kept, array)
            if not same and name not in self.different:
                self.different.append(name)
            with self._one_at_a_time:
                self._done(array.size)
            return array if kept is None or not same else kept

        return read

    def _written(self, name: str, layer: int | None) -> np.ndarray:
        """What a part of the source is when written."""
        one = self._source[name]
        return cast(one.read(layer), written_type(one.dtype, self._dtype))


def _padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
