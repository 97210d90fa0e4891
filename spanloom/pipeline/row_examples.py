"""Examples that preprocessors make whenever they are read: another one each epoch.

A store holds them packed, as they are before the first preprocessor that takes `rng`. How long they become is not known
before they are made, so that where rows are packed each is given the room of the longest.
"""

from typing import Any

import numpy as np

from spanloom.pipeline.batches import pad_rows
from spanloom.pipeline.examples import DataError, Widths
from spanloom.pipeline.order import heldout_noise_keys
from spanloom.pipeline.row_encoder import RowEncoder, unpack_example
from spanloom.pipeline.store import Store
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import Task
from spanloom.tasks.block import Block
from spanloom.tasks.preprocessing import Example, Preprocessors
from spanloom.tasks.rows import ROW
from spanloom.vocabularies.vocabulary import Vocabulary

SIDES = ("inputs", "targets")


class RowExamples:
    """Examples made of packed rows; the key decides the randomness of their preprocessors."""

    columns = None

    def __init__(self, store: Store, task: Task, widths: Widths, vocabulary: Vocabulary):
        """Raises FunctionError for code that cannot be loaded."""
        assert isinstance(task.objective, Supervised)
        self._made_from = store, task, widths, vocabulary
        self._rows = store.columns[ROW]
        self._encoder = RowEncoder(task, vocabulary)
        self._cuts = task.objective.too_long == "trim"
        self._eos = end_ids(self._encoder)
        self._name = task.name
        self._pad_id = vocabulary.pad_id
        self.num_examples = store.num_rows
        self.inputs_length, self.targets_length = widths.inputs, widths.targets
        self.eos_id = vocabulary.eos_id

    def __reduce__(self) -> tuple[Any, ...]:
        return RowExamples, self._made_from

    def locate(self, examples_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The room of the longest for each, (N, 2) int64, and zeros."""
        widths_Nx2 = np.broadcast_to([self.inputs_length, self.targets_length], (len(examples_N), 2))
        return widths_Nx2.astype(np.int64), np.zeros((len(examples_N), 2), np.int64)

    def make(self, examples_N: np.ndarray, keys_N: np.ndarray) -> Block:
        """Inputs and targets; one that a filter leaves out has a row of padding, of length 0.

        Raises PreprocessorError; DataError for one that is too long, unless such are cut.
        """
        rows: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
        for example, key in zip(examples_N.tolist(), keys_N.tolist(), strict=True):
            made = self._features(example, key)
            for side in SIDES:
                width = self.inputs_length if side == "inputs" else self.targets_length
                rows[side].append(
                    np.empty(0, np.int32) if made is None else self._ended(example, side, made[side], width)
                )
        inputs_NxS, input_lengths_N = pad_rows(rows["inputs"], self.inputs_length, self._pad_id)
        targets_NxT, target_lengths_N = pad_rows(rows["targets"], self.targets_length, self._pad_id)
        return Block(inputs_NxS, targets_NxT, input_lengths_N, target_lengths_N)

    def whole_lengths(self, examples_N: np.ndarray, keys_N: np.ndarray) -> np.ndarray:
        """Tokens of inputs and targets before they are cut, (N, 2) int64; 0 where a filter leaves the example out."""
        lengths_Nx2 = np.zeros((len(examples_N), 2), np.int64)
        for row, (example, key) in enumerate(zip(examples_N.tolist(), keys_N.tolist(), strict=True)):
            made = self._features(example, key)
            if made is not None:
                lengths_Nx2[row] = [len(made[side]) + len(self._eos[side]) for side in SIDES]
        return lengths_Nx2

    def raw(self, example: int) -> np.ndarray:
        """The example's targets as evaluation has them, (n,) int32; empty for one that a filter leaves out."""
        made = self._features(example, _heldout_key(example))
        return np.empty(0, np.int32) if made is None else made["targets"].astype(np.int32)

    def example(self, number: int) -> Example | None:
        """The finished example as evaluation has it, with all its fields; None for one that a filter leaves out."""
        return self._read(number, _heldout_key(number))[0]

    def _read(self, example: int, key: int) -> tuple[Example | None, int]:
        stored, number = unpack_example(self._rows.row(example))
        return self._encoder.chain.when_read(stored, number, key), number

    def _features(self, example: int, key: int) -> dict[str, np.ndarray] | None:
        made, number = self._read(example, key)
        return None if made is None else self._encoder.features_of(made, number)

    def _ended(self, example: int, side: str, ids: np.ndarray, width: int) -> np.ndarray:
        """The ids with their end of sequence, within the width."""
        end = self._eos[side]
        room = width - len(end)
        if len(ids) > room and not self._cuts:
            raise DataError(
                f"task {self._name!r}, example {example} of its store: its {side} have {len(ids) + len(end)} tokens, "
                f"end of sequence included, and task.objective.{side}_length is {width}: raise it, or set "
                "task.objective.too_long to trim to cut such examples at the right"
            )
        return np.concatenate([ids[:room], end]).astype(np.int32)


def end_ids(encoder: RowEncoder) -> dict[str, np.ndarray]:
    """What is put after the tokens of inputs and of targets: their vocabulary's end of sequence, or nothing."""
    found = {}
    for feature in encoder.features:
        ids = [encoder.vocabularies[feature.name].eos_id] if feature.add_eos and feature.dtype == "int32" else []
        found[feature.name] = np.array(ids, np.int32)
    return found


def check_readable(task: Task, chain: Preprocessors) -> None:
    """Raises DataError where preprocessors run when examples are read, and these could not be learnt from."""
    if not chain.read:
        return
    objective, function = task.objective, chain.read[0].function
    if not isinstance(objective, Supervised):
        raise DataError(
            f"task {task.name!r}: {function} takes rng, so that it makes another example each epoch, and "
            f"{type(objective).__name__} cuts examples out of one stream of tokens that is made beforehand: leave rng "
            "out of it, or make inputs and targets in the preprocessors, for the Supervised objective"
        )
    missing = [f"task.objective.{side}_length" for side in SIDES if getattr(objective, f"{side}_length") is None]
    if missing:
        raise DataError(
            f"task {task.name!r}: {function} takes rng, so that nobody knows beforehand how long its examples become: "
            f"set {' and '.join(missing)}"
        )


def _heldout_key(example: int) -> int:
    return int(heldout_noise_keys(np.array([example]))[0])
