"""What callers from Python hand over: checked before it is used, for what is wrong there may well give numbers."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np


def check_batch_size(value: Any) -> None:
    """Raise ValueError for what is no number of rows."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"batch_size is {value!r:.40}; it must be a whole number, 1 or more")


def check_text(value: Any, what: str) -> None:
    """Raise ValueError for what is no text."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is {value!r:.40}; it must be a string")


def texts_of(values: Any, what: str, each: str) -> list[str]:
    """The texts. Raises ValueError for what are none, a single one included: it would be taken for its letters."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{what} is {values!r:.40}; it must be a list of strings")
    texts = list(values)
    for number, text in enumerate(texts, 1):
        check_text(text, f"{each} {number}")
    return texts


def pairs_of(values: Any, example: str) -> list[Any]:
    """The pairs. Raises ValueError, naming the first, for what are none: a string of two letters would be one."""
    if not isinstance(values, Iterable):
        raise ValueError(f"pairs is {values!r:.40}; it must be a list of pairs, such as [{example}]")
    pairs = list(values)
    for number, pair in enumerate(pairs, 1):
        if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
            raise ValueError(f"pair {number} is {pair!r:.40}; it must be an input and a target, such as {example}")
    return pairs


def check_ids(ids: Any, vocab_size: int, what: str) -> None:
    """Raise ValueError for ids that the model has no embedding of: JAX would take another, or NaN."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{what} is {ids!r:.40}; it must be a list of ids, which are whole numbers")
    outside = array[(array < 0) | (array >= vocab_size)]
    if outside.size:
        raise ValueError(f"{what} holds the id {outside[0]}; the model's are 0 to {vocab_size - 1}")
