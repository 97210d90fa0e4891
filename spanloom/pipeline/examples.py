"""Examples of a store by number, a block at a time: noised text, and pairs as they come."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from spanloom.pipeline.batches import pad_rows
from spanloom.pipeline.chunks import chunks_of
from spanloom.pipeline.store import Store
from spanloom.settings.objectives import Supervised, TokenStream
from spanloom.tasks.block import Block, empty_block
from spanloom.tasks.heldout import Split
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.vocabularies.vocabulary import Vocabulary


class DataError(ValueError):
    """The data cannot be learned from as the settings stand. The message says what to change."""


class Tokens(Protocol):
    """One flat stream of tokens."""

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop, (stop - start,)."""


class Examples(Protocol):
    """Numbered examples; which one is made, and from which noise, is the caller's choice."""

    @property
    def num_examples(self) -> int:
        """How many there are."""

    inputs_length: int
    targets_length: int
    eos_id: int
    """End of sequence."""

    def make(self, examples_N: np.ndarray, keys_N: np.ndarray) -> Block:
        """Inputs and targets of these examples; row i depends on examples_N[i] and keys_N[i] alone."""

    def raw(self, example: int) -> np.ndarray:
        """The example's own tokens before noise, (n,)."""

    @property
    def columns(self) -> tuple[Tokens, Tokens] | None:
        """Of inputs and targets, where examples are rows of these with an end of sequence; None where they are made."""

    def locate(self, examples_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Most tokens of inputs and targets, and where these begin in the columns if there are any, (N, 2) int64."""


class StreamExamples:
    """Chunks of a token stream under an objective on text; the key decides the noise."""

    def __init__(self, store: Store, objective: TokenStream, vocabulary: Vocabulary):
        self._column = store.stream
        self._denoiser = denoiser_of(objective, vocabulary)
        self._chunks = chunks_of(store.stream, self._denoiser.raw_length, objective)
        self.raw_length = self._denoiser.raw_length
        self.num_examples = self._chunks.num_examples
        self.inputs_length = self._denoiser.inputs_length
        self.targets_length = self._denoiser.targets_length
        self.columns = None
        self.eos_id = vocabulary.eos_id
        self._made_from = store, objective, vocabulary

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamExamples, self._made_from

    def locate(self, examples_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lengths that hold whatever the noise; nothing is copied."""
        _, raw_lengths_N = self._chunks.locate(examples_N)
        distinct, which_N = np.unique(raw_lengths_N, return_inverse=True)
        longest = np.array([self._denoiser.longest_of(length) for length in distinct.tolist()], np.int64)
        return longest.reshape(-1, 2)[which_N], np.zeros((len(examples_N), 2), np.int64)

    def make(self, examples_N: np.ndarray, keys_N: np.ndarray) -> Block:
        """Inputs and targets; chunks of one length are made together."""
        starts_N, lengths_N = self._chunks.locate(examples_N)
        distinct = np.unique(lengths_N).tolist()
        if len(distinct) == 1:
            return self._denoiser.make(self._column.windows(starts_N, distinct[0]), keys_N)
        made = empty_block(len(examples_N), (self.inputs_length, self.targets_length))
        for length in distinct:
            chosen_N = lengths_N == length
            part = self._denoiser.make(self._column.windows(starts_N[chosen_N], length), keys_N[chosen_N])
            made.put(np.flatnonzero(chosen_N), part)
        return made

    def raw(self, example: int) -> np.ndarray:
        """The chunk's tokens, int32."""
        starts, lengths = self._chunks.locate(np.array([example]))
        return self._column.slice(int(starts[0]), int(starts[0] + lengths[0])).astype(np.int32)


class PairExamples:
    """Pairs as they are stored, end of sequence appended, padded; over-long ones cut if the settings say so."""

    def __init__(self, store: Store, widths: "Widths", vocabulary: Vocabulary, ends: "Ends | None" = None):
        """`ends`: what is put after inputs and targets; None: the vocabulary's end of sequence."""
        self._columns = store.columns["inputs"], store.columns["targets"]
        self.eos_id = vocabulary.eos_id
        self._ends = ends or (np.array([self.eos_id], np.int32),) * 2
        self.columns = self._columns if all(end.tolist() == [self.eos_id] for end in self._ends) else None
        self._made_from = store, widths, vocabulary, ends
        self._vocabulary = vocabulary
        self.num_examples = store.num_rows
        self.inputs_length = widths.inputs
        self.targets_length = widths.targets

    def __reduce__(self) -> tuple[Any, ...]:
        return PairExamples, self._made_from

    def locate(self, examples_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lengths as they are, end of sequence included."""
        starts_Nx2 = np.stack([column.row_starts(examples_N) for column in self._columns], axis=1)
        ends_Nx2 = np.stack([column.row_starts(examples_N + 1) for column in self._columns], axis=1)
        lengths_Nx2 = ends_Nx2 - starts_Nx2 + [len(end) for end in self._ends]
        return np.minimum(lengths_Nx2, [self.inputs_length, self.targets_length]), starts_Nx2

    def make(self, examples_N: np.ndarray, keys_N: np.ndarray) -> Block:
        """Inputs and targets; there is no noise, so the keys decide nothing."""
        inputs_NxS, input_lengths_N = self._padded(0, examples_N, self.inputs_length)
        targets_NxT, target_lengths_N = self._padded(1, examples_N, self.targets_length)
        return Block(inputs_NxS, targets_NxT, input_lengths_N, target_lengths_N)

    def raw(self, example: int) -> np.ndarray:
        """The pair's target tokens, int32."""
        return self._columns[1].row(example).astype(np.int32)

    def _padded(self, side: int, examples_N: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        column, end = self._columns[side], self._ends[side]
        rows = [np.concatenate([column.row(example)[: width - len(end)], end]) for example in examples_N.tolist()]
        return pad_rows(rows, width, self._vocabulary.pad_id)


Ends = tuple[np.ndarray, np.ndarray]
"""What is put after the tokens of inputs and of targets: one id, or none; int32 each."""


@dataclass(frozen=True)
class Widths:
    """Encoder and decoder lengths of a supervised task, end of sequence included."""

    inputs: int
    targets: int


def widths_of(stores: Mapping[Split, Store], objective: Supervised, ends: Ends | None = None) -> Widths:
    """The widths asked for, or those of the longest rows of all parts of the data, with what is put after them.

    Raises DataError, with their number and the longest, if rows exceed a width asked for and are not to be trimmed.
    """
    asked = {"inputs": objective.inputs_length, "targets": objective.targets_length}
    widths = {}
    for side, (name, width) in enumerate(asked.items()):
        end = 1 if ends is None else len(ends[side])
        longest = max(store.meta["counts"]["columns"][name]["longest"] for store in stores.values()) + end
        widths[name] = max(longest, 1) if width is None else width
        if widths[name] < longest and objective.too_long == "error":
            _refuse_too_long(stores, name, widths[name], longest, end)
        if widths[name] < 1:
            raise DataError(f"{name}_length is {width}, but the end of sequence alone takes 1")
    return Widths(**widths)


def _refuse_too_long(stores: Mapping[Split, Store], name: str, width: int, longest: int, end: int) -> None:
    counts = {
        split: int(np.count_nonzero(store.columns[name].lengths() + end > width)) for split, store in stores.items()
    }
    where = " and ".join(f"{count} of {stores[split].num_rows} {split}" for split, count in counts.items())
    raise DataError(
        f"{where} examples have {name} longer than {name}_length = {width} tokens; the longest has {longest} "
        f"(end of sequence included). Set task.objective.{name}_length to {longest}, or leave it unset, or set "
        "task.objective.too_long to trim to cut them at the right"
    )
