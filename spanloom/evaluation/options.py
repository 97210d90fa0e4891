"""Options of examples: one row for each answer that may be right, to be scored as a target.

As T0 made them (Sanh et al. 2022): the inputs repeated, an answer choice as the target, and whether that is right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Ids = Sequence[int]


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
