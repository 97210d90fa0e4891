"""One row for each choice of an answer, so that a model's score of each can be ranked (T0's and GPT-3's evaluation).

`idx` is [number of the example, choice], which keeps the rows of an example together; the task gives the number.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example

Mode = Literal["train", "eval", "fewshot_eval"]
_FIELD = re.compile(r"\{([^{}\s]+)\}")


@dataclass(frozen=True)
class RankClassification:
    """Choices made by functions of the example, which give as many inputs, targets and booleans.

    mode 'train': only the correct choices; 'eval': all; 'fewshot_eval': one row of lists. Functions at the top of a
    module, rather than lambdas, can be sent to workers.
    """

    inputs_fn: Callable[[Example], Sequence[str]]
    targets_fn: Callable[[Example], Sequence[str]]
    is_correct_fn: Callable[[Example], Sequence[bool]]
    weight_fn: Callable[[Example], float] | None = None
    mode: Mode = "eval"
    passthrough_feature_keys: tuple[str, ...] = ()
    """Fields that each row keeps."""

    def __call__(self, example: Example, number: int) -> Iterator[dict[str, Any]]:
        """The rows of example `number` of its task. Raises FieldError where the functions do not agree."""
        columns: dict[str, list[Any]] = {
            "inputs": list(self.inputs_fn(example)),
            "targets": list(self.targets_fn(example)),
            "is_correct": [bool(one) for one in self.is_correct_fn(example)],
        }
        count = len(columns["targets"])
        if any(len(values) != count for values in columns.values()):
            counts = ", ".join(f"{len(values)} {name}" for name, values in columns.items())
            raise FieldError(f"choices of different numbers: {counts}", "Make them as many", "choices differ")
        if self.weight_fn is not None:
            columns["weight"] = [float(self.weight_fn(example))] * count
        for key in self.passthrough_feature_keys:
            columns[key] = [fields.value(example, key)] * count
        return _rows({"idx": [[number, choice] for choice in range(count)], **columns}, self.mode)


@dataclass(frozen=True)
class RankClassificationFormatter:
    """Choices made by formats: '{premise} What is the {question}?' and ('I think {choice1}', 'I think {choice2}').

    '{field}' stands for a field, '{a/b}' for one inside another; all else is text. A single format serves each choice.
    """

    inputs_formats: str | Sequence[str]
    targets_formats: str | Sequence[str]
    mode: Mode = "eval"
    label_key: str = "label"
    """Field of the correct choice's number from 0, or a list of them."""
    weight_key: str | None = None
    """Field of the weight of each row; None: no weights."""

    def __post_init__(self) -> None:
        """Raises ValueError for two single formats, and for lists of different lengths."""
        counts = {len(formats) for formats in (self.inputs_formats, self.targets_formats) if _is_many(formats)}
        if len(counts) != 1:
            raise ValueError(f"inputs_formats and targets_formats: one or both are lists, of one length; got {counts}")

    def __call__(self, example: Example, number: int) -> Iterator[dict[str, Any]]:
        """The rows of example `number` of its task. Raises FieldError for missing fields."""
        inputs, targets = _written(self.inputs_formats, example), _written(self.targets_formats, example)
        count = max(len(inputs), len(targets))
        correct = fields.wholes(example, self.label_key)
        columns: dict[str, list[Any]] = {
            "idx": [[number, choice] for choice in range(count)],
            "inputs": inputs if _is_many(self.inputs_formats) else inputs * count,
            "targets": targets if _is_many(self.targets_formats) else targets * count,
            "is_correct": [choice in correct for choice in range(count)],
        }
        if self.weight_key is not None:
            columns["weight"] = [fields.number(example, self.weight_key)] * count
        return _rows(columns, self.mode)


def _rows(columns: Mapping[str, list[Any]], mode: Mode) -> Iterator[dict[str, Any]]:
    if mode == "fewshot_eval":
        yield dict(columns)
        return
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        if mode == "eval" or row["is_correct"]:
            yield row


def _is_many(formats: str | Sequence[str]) -> bool:
    return not isinstance(formats, str)


def _written(formats: str | Sequence[str], example: Example) -> list[str]:
    texts = [formats] if isinstance(formats, str) else formats
    return [_FIELD.sub(lambda match: fields.written(example, match[1]), text) for text in texts]
