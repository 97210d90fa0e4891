"""Numbered examples of one part of a task's data, as batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spanloom.pipeline.batches import Batch, fill_batch, join_batches, to_batch
from spanloom.pipeline.drawn import Drawn, tokens_of
from spanloom.pipeline.examples import Examples
from spanloom.pipeline.order import Order, TrainingOrder, heldout_noise_keys, spread
from spanloom.pipeline.positions import OneEach, Position
from spanloom.pipeline.shards import Ragged
from spanloom.pipeline.store import Store

_BLOCK = 128  # examples made at a time: enough for NumPy, few enough for the caches


@dataclass(frozen=True)
class TextExample:
    """One example for showing, without padding."""

    raw: np.ndarray
    """Its tokens before noise (the targets of a pair), (n,) int32."""
    inputs: np.ndarray
    """Encoder tokens, end of sequence included, (s,) int32."""
    targets: np.ndarray
    """Decoder targets, end of sequence included, (t,) int32."""


@dataclass(frozen=True)
class DrawnExample(TextExample):
    """One example as training draws it."""

    number: int
    """Its number among the examples of the part."""
    epoch: int
    """How often it was drawn before."""
    key: int
    """What decides its noise."""


class Dataset(OneEach):
    """Numbered examples of one part of the data, as batches. It has no state: every answer follows from arguments."""

    is_stream = False
    """Nobody knows how many examples there are; else `num_examples`."""

    def __init__(self, examples: Examples, *, seed: int, task: str, store: Store):
        self._store = store
        self.examples = examples
        """What makes them."""
        self._order: Order = TrainingOrder(examples.num_examples, seed, task)

    @property
    def store(self) -> Store:
        """The tokens behind it."""
        return self._store

    @property
    def content(self) -> str:
        """What is learnt from, see `Store.content`."""
        return self.store.content

    @property
    def num_examples(self) -> int:
        """Examples in one epoch."""
        return self.examples.num_examples

    @property
    def inputs_length(self) -> int:
        """Tokens of an encoder row."""
        return self.examples.inputs_length

    @property
    def targets_length(self) -> int:
        """Tokens of a decoder row."""
        return self.examples.targets_length

    num_draws: int | None = None
    """The order has no end."""

    def first_draw(self, position: Position) -> int:
        """The first draw that whoever goes on from a position may look at."""
        return position["examples"]

    def find(self, first: int, count: int) -> Drawn:
        """Draws first..first + count - 1 of the endless training order, none made yet; as of task 0."""
        epochs_N, examples_N = self._order.draws(first, count)
        keys_N = self._order.noise_keys(epochs_N, examples_N)
        return Drawn(np.zeros(count, np.int64), examples_N, keys_N, *self.examples.locate(examples_N))

    def tokens(self, drawn: Drawn) -> tuple[Ragged, Ragged]:
        """Inputs and targets of draws that `find` gave."""
        return tokens_of([self.examples], drawn, self.examples.eos_id)

    def batch(self, first_example: int, batch_size: int) -> Batch:
        """Examples first_example..first_example + batch_size - 1 of the endless training order.

        Fields as `spanloom.pipeline.batches.to_batch` gives them, (batch_size, length) int32. A pure function of
        seed, data settings and arguments: any split of a range into batches has the same rows.
        """
        epochs_N, examples_N = self._order.draws(first_example, batch_size)
        return self._make(examples_N, self._order.noise_keys(epochs_N, examples_N))

    def eval_examples(self, batch_size: int, max_batches: int = 0) -> Iterator[np.ndarray]:
        """The numbers of the examples in each of `eval_batches`, ascending, (n,) int64."""
        count = self.num_examples
        most = min(count, max_batches * batch_size) if max_batches else count
        for first in range(0, most, batch_size):
            yield spread(np.arange(first, min(first + batch_size, most)), most, count)

    def eval_batches(self, batch_size: int, max_batches: int = 0) -> Iterator[Batch]:
        """Every example once, in order, with the same noise each time; where `max_batches` (unless 0) have no room for
        all, examples spread evenly over the part, the same each time.

        The last batch is filled with rows of padding whose weights are 0.
        """
        for examples_N in self.eval_examples(batch_size, max_batches):
            yield fill_batch(self._make(examples_N, heldout_noise_keys(examples_N)), batch_size)

    def raw(self, example: int) -> np.ndarray:
        """The tokens of example number `example` before noise (the targets of a pair), (n,) int32."""
        return self.examples.raw(example)

    def drawn(self, first_example: int, count: int) -> list[DrawnExample]:
        """The examples that `batch` has for the same arguments, without padding and with what they are made of."""
        epochs_N, examples_N = self._order.draws(first_example, count)
        keys_N = self._order.noise_keys(epochs_N, examples_N)
        numbers = zip(examples_N.tolist(), epochs_N.tolist(), keys_N.tolist(), strict=True)
        texts = self._texts(examples_N, keys_N)
        return [DrawnExample(*text, *three) for text, three in zip(texts, numbers, strict=True)]

    def text_examples(self, count: int) -> list[TextExample]:
        """`count` examples spread evenly over the part (fewer if it has fewer), with the noise of `eval_batches`."""
        count = min(count, self.num_examples)
        return self.heldout_examples(np.arange(count) * self.num_examples // max(count, 1))

    def heldout_examples(self, examples_N: np.ndarray) -> list[TextExample]:
        """The examples of these numbers, with the noise of `eval_batches`; one that a filter leaves out has no tokens
        of targets.
        """
        return [TextExample(*text) for text in self._texts(examples_N, heldout_noise_keys(examples_N))]

    def _texts(self, examples_N: np.ndarray, keys_N: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(raw, inputs, targets) of each example, without padding."""
        block = self.examples.make(examples_N, keys_N)
        for row, example in enumerate(examples_N.tolist()):
            inputs, targets = block.inputs[row], block.targets[row]
            yield self.examples.raw(example), inputs[: block.input_lengths[row]], targets[: block.target_lengths[row]]

    def _make(self, examples_N: np.ndarray, keys_N: np.ndarray) -> Batch:
        blocks = [slice(start, start + _BLOCK) for start in range(0, max(len(examples_N), 1), _BLOCK)]
        return join_batches([to_batch(self.examples.make(examples_N[block], keys_N[block])) for block in blocks])
