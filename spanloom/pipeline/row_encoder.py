"""Rows of a source through a task's preprocessors into rows of its store.

Where a preprocessor takes `rng` the store holds the examples as they are before it, packed, in one column of bytes;
else it holds ids, a column for each feature. The held-out part also keeps the examples where metrics may want them.
"""

from collections import Counter
from typing import Any

import numpy as np

from spanloom.pipeline.feature_ids import FeatureError, Value, ids_of, ordered_features, value_of
from spanloom.pipeline.shards import Ragged, ragged, token_dtype
from spanloom.pipeline.tokenization import Encoded
from spanloom.settings.feature import Feature
from spanloom.settings.objectives import Supervised, separator_of
from spanloom.settings.task import Task
from spanloom.tasks import functions
from spanloom.tasks.documents import Documents
from spanloom.tasks.heldout import Split
from spanloom.tasks.preprocessing import Example, Preprocessors
from spanloom.tasks.rows import ROW, RowError, pack_row, unpack_row
from spanloom.vocabularies.vocabulary import Vocabulary


class ChangedCodeError(RuntimeError):
    """A file of functions was edited while a store was built with them."""


class RowEncoder:
    """Makes rows of a store, in any process: what it is sent as are the settings, of which it is made again there."""

    counts_text = True

    def __init__(self, task: Task, vocabulary: Vocabulary, split: Split = "train", code: tuple[str, ...] = ()):
        """`code`: hashes that the preprocessors' code must have. Raises FunctionError, ChangedCodeError."""
        self._made_from = task, vocabulary, split
        self._code = tuple(functions.code_hash(function) for function in task.preprocessors)
        if code and code != self._code:
            raise ChangedCodeError(
                f"the code of a preprocessor of task {task.name!r} was edited while its store was built: start again"
            )
        self._task = task
        self.chain = Preprocessors(task, vocabulary)
        self.features = ordered_features(task)
        self.vocabularies = self.chain.run.vocabularies
        measured = isinstance(task.objective, Supervised) and (task.postprocess is not None or bool(task.metrics))
        self._keeps_rows = split == "heldout" and measured
        self.dtypes = self._columns()
        self.unknown = {
            self._column(feature): self.vocabularies[feature.name].unk_id
            for feature in self.features
            if feature.dtype == "int32" and self._column(feature) in self.dtypes
        }
        self.numbered = "number" in self.chain.takes

    def __reduce__(self) -> tuple[Any, ...]:
        return RowEncoder, (*self._made_from, self._code)

    def _column(self, feature: Feature) -> str:
        return feature.name if isinstance(self._task.objective, Supervised) else "tokens"

    def _columns(self) -> dict[str, np.dtype]:
        if self.chain.read:
            return {ROW: np.dtype(np.uint8)}
        columns = {self._column(feature): _dtype(feature, self.vocabularies[feature.name]) for feature in self.features}
        return {**columns, ROW: np.dtype(np.uint8)} if self._keeps_rows else columns

    def encode(self, documents: Documents, first: int) -> Encoded:
        """The rows of these packed rows. Raises PreprocessorError for examples that lack a feature, and so on."""
        dropped: Counter[str] = Counter()
        values: dict[str, list[Value]] = {feature.name: [] for feature in self.features}
        packed: list[bytes] = []
        for number, row in enumerate(documents[ROW], first):
            for example in self.chain.build(unpack_row(row), number, dropped):
                if ROW in self.dtypes:
                    packed.append(self._packed(example, number))
                for name, value in self._values(example, number, lenient=bool(self.chain.read)).items():
                    values[name].append(value)
        texts = [value for column in values.values() for value in column if isinstance(value, bytes)]
        columns = {} if self.chain.read else self._columns_of(values)
        if ROW in self.dtypes:
            columns[ROW] = _bytes_column(packed)
        return Encoded(columns, sum(map(len, texts)), sum(map(_characters, texts)), dropped)

    def probe(self, documents: Documents, first: int, key: int) -> dict[str, Ragged]:
        """The ids that the examples of these rows have in the end, those that are made when they are read included."""
        values: dict[str, list[Value]] = {feature.name: [] for feature in self.features}
        for number, row in enumerate(documents[ROW], first):
            for example in self.chain.build(unpack_row(row), number, Counter()):
                made = self.chain.when_read(example, number, key)
                if made is not None:
                    for name, value in self._values(made, number).items():
                        values[name].append(value)
        return self._columns_of(values)

    def features_of(self, example: Example, number: int) -> dict[str, np.ndarray]:
        """The ids or numbers of each feature of a finished example, (n,), without end of sequence."""
        return {name: ids_of(value, self.vocabularies[name]) for name, value in self._values(example, number).items()}

    def _values(self, example: Example, number: int, lenient: bool = False) -> dict[str, Value]:
        """Values of the features; `lenient` leaves those out that are not there yet."""
        found = {}
        for feature in self.features:
            try:
                found[feature.name] = value_of(example, feature, self.vocabularies[feature.name])
            except FeatureError as error:
                if not lenient:
                    raise self.chain.error(None, example, number, str(error)) from error
        return found

    def _packed(self, example: Example, number: int) -> bytes:
        try:
            return pack_row({"example": example, "number": number})
        except RowError as error:
            what = f"what the preprocessors made of it cannot be stored ({error})"
            raise self.chain.error(None, example, number, what) from error

    def _columns_of(self, values: dict[str, list[Value]]) -> dict[str, Ragged]:
        """Rows of the columns of features. Text of a stream has its separator, and gives no row if it is empty."""
        if isinstance(self._task.objective, Supervised):
            return {feature.name: self._column_of(feature, values[feature.name]) for feature in self.features}
        (feature,) = self.features
        end = self.vocabularies[feature.name].eos_id if separator_of(self._task.objective) == "eos" else None
        column = self._column_of(feature, values[feature.name], end)
        lengths = np.diff(column.offsets)
        return {"tokens": ragged(column.values, lengths[lengths > 0])}

    def _column_of(self, feature: Feature, values: list[Value], end: int | None = None) -> Ragged:
        vocabulary = self.vocabularies[feature.name]
        dtype = _dtype(feature, vocabulary)
        texts = [value for value in values if isinstance(value, bytes)]
        if len(texts) == len(values) and feature.dtype == "int32":
            return ragged(*vocabulary.encode_utf8(texts, dtype, end))
        rows = [ids_of(value, vocabulary) for value in values]
        if end is not None:
            rows = [np.append(row, end) if len(row) else row for row in rows]
        return ragged(np.concatenate([np.empty(0, dtype), *(row.astype(dtype) for row in rows)]), list(map(len, rows)))


def unpack_example(packed: np.ndarray) -> tuple[Example, int]:
    """The example in a row of the column ROW, and the number of the source's row that it is of."""
    both = unpack_row(packed.tobytes())
    return both["example"], both["number"]


def _characters(text: bytes) -> int:
    return len(text) if text.isascii() else len(text.decode("utf-8"))


def _dtype(feature: Feature, vocabulary: Vocabulary) -> np.dtype:
    return token_dtype(vocabulary.size) if feature.dtype == "int32" else np.dtype(feature.dtype)


def _bytes_column(rows: list[bytes]) -> Ragged:
    return ragged(np.frombuffer(b"".join(rows), np.uint8), list(map(len, rows)))
