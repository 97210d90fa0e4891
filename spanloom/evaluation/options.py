"""Options of examples: one row for each answer that may be right, to be scored as a target.

As T0 made them (Sanh et al. 2022): the inputs repeated, an answer choice as the target, and whether that is right.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.vocabularies.vocabulary import Vocabulary

Ids = Sequence[int]
Pair = tuple[Ids, Ids]
"""Ids of inputs and of targets, both as the model is to see them, end of sequence included where it belongs."""


class RankingError(ValueError):
    """Options or scores that cannot be ranked: an example and the reason."""


@dataclass(frozen=True)
class Option:
    """One option of an example, to be scored."""

    example: int
    option: int
    options: int
    """How many the example has; 0: not known."""
    inputs: str | Ids
    target: str | Ids
    """Texts, or ids as a cache stores them."""
    is_correct: bool
    weight: float = 1.0


def options_of(example: Mapping[str, Any], number: int) -> list[Option]:
    """The options of an example as a rendered template gives it: `inputs`, `answer_choices`, and which are right. A row
    that is one option already, as SeqIO caches `<task>_score_eval` (P3's: `idx` = [example, option], and one
    `is_correct`), is that one; how many its example has is not known from it.

    Right are those of `is_correct` (a boolean for each); else what reads as the one, or those, of number `label` (-1:
    none of them); else what reads as `targets`, without the white space around it, as T0 has it. Options that read
    alike are right alike. An example without a right option counts as wrong, as in T0's evaluation. `weight` is 1 if
    absent. Raises RankingError, naming the example, where something is missing.
    """
    if np.ndim(example.get("idx", 0)) == 1 and np.ndim(example.get("is_correct", ())) == 0:
        return [_one_option(example)]
    choices = example.get("answer_choices")
    if isinstance(choices, str) or not isinstance(choices, Sequence | np.ndarray) or not len(choices):
        raise RankingError(f"example {number}: answer_choices is {choices!r:.80}, and must be a list of texts")
    texts = list(map(str, choices))
    right = _right(example, number, texts)
    inputs, weight = str(example.get("inputs", "")), float(example.get("weight", 1.0))
    pairs = enumerate(zip(texts, right, strict=True))
    return [Option(number, place, len(texts), inputs, text, is_right, weight) for place, (text, is_right) in pairs]


@dataclass(frozen=True)
class Pairs:
    """From options to the ids that a model scores; T0: Pairs(vocabulary, inputs_eos=False, inputs_length=1024).

    Texts are encoded, targets with an end of sequence; ids stay as they are. Targets are never cut, which would make
    another answer of them.
    """

    vocabulary: Vocabulary
    inputs_eos: bool
    """Whether inputs end in an end of sequence, which a cut leaves there."""
    inputs_length: int | None = None
    """Inputs are cut to so many tokens, end of sequence included; None: not."""

    def __call__(self, option: Option) -> Pair:
        """The pair of one option."""
        return self._inputs(option.inputs), self._encoded(option.target, end=True)

    def _inputs(self, inputs: str | Ids) -> Ids:
        end = [self.vocabulary.eos_id] if self.inputs_eos and isinstance(inputs, str) else []
        ids = self._encoded(inputs, end=False)
        return [*ids[: None if self.inputs_length is None else self.inputs_length - len(end)], *end]

    def _encoded(self, text: str | Ids, end: bool) -> list[int]:
        if not isinstance(text, str):
            return list(map(int, text))
        return [*self.vocabulary.encode(text).tolist(), *([self.vocabulary.eos_id] if end else [])]


def share_of(examples: Iterable[Any], process: int = 0, processes: int = 1) -> Iterator[tuple[int, Any]]:
    """The examples that are this process's, every `processes`-th one, with their numbers."""
    for number, example in enumerate(examples):
        if number % processes == process:
            yield number, example


def _one_option(row: Mapping[str, Any]) -> Option:
    try:
        example, option = map(int, row["idx"])
        weight = float(row.get("weight", 1.0))
        return Option(example, option, 0, row["inputs"], row["targets"], bool(row["is_correct"]), weight)
    except (KeyError, TypeError, ValueError) as error:
        raise RankingError(f"no row of an option ({type(error).__name__}: {error}): {_shown(row)}") from error


def _right(example: Mapping[str, Any], number: int, texts: list[str]) -> list[bool]:
    if example.get("is_correct") is not None:
        given = list(np.atleast_1d(example["is_correct"]))
        if len(given) != len(texts):
            raise RankingError(f"example {number}: {len(given)} of is_correct for {len(texts)} answer_choices")
        return list(map(bool, given))
    if example.get("label") is not None:
        labels = np.atleast_1d(example["label"]).tolist()
        for label in labels:
            if isinstance(label, bool) or not isinstance(label, int) or not -1 <= label < len(texts):
                raise RankingError(f"example {number}: label {label!r} is no number from -1 to {len(texts) - 1}")
        wanted = {texts[label] for label in labels if label >= 0}
    elif example.get("targets") is not None:
        wanted = {str(example["targets"]).strip()}
    else:
        raise RankingError(
            f"example {number}: neither label, is_correct nor targets says which of its choices is right"
        )
    return [text in wanted for text in texts]


def _shown(example: Mapping[str, Any]) -> str:
    kept = {key: example[key] for key in ("idx", "answer_choices", "label", "is_correct", "targets") if key in example}
    return f"{kept!r:.200}"
