"""From a field of a preprocessed example to the ids or numbers of a feature."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spanloom.settings.feature import Feature
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import Task, features_of
from spanloom.tasks.shown import shown
from spanloom.vocabularies.vocabulary import Vocabulary

Value = bytes | np.ndarray
"""Text to be tokenized, in UTF-8, or ids and numbers, (n,)."""


class FeatureError(ValueError):
    """A field that cannot be a feature: what it is, and what it must be."""


def ordered_features(task: Task) -> tuple[Feature, ...]:
    """The task's features, those first that a model learns from."""
    first = ("inputs", "targets") if isinstance(task.objective, Supervised) else ("text",)
    return tuple(sorted(features_of(task), key=lambda feature: [*first, feature.name].index(feature.name)))


def value_of(example: Mapping[str, Any], feature: Feature, vocabulary: Vocabulary) -> Value:
    """The feature's text, or its ids or numbers, (n,); empty for one that is absent and may be.

    Raises FeatureError.
    """
    if feature.name not in example:
        if not feature.required:
            return np.empty(0, np.int64)
        there = ", ".join(map(shown, example)) or "none"
        raise FeatureError(
            f"the feature {feature.name!r} is missing; the fields are {there}: a preprocessor must make it, or give "
            "the task features of other names"
        )
    value = example[feature.name]
    if feature.dtype != "int32":
        return _numbers(value, feature)
    if isinstance(value, str):
        return _utf8(value, feature)
    ids = _ids(value, feature)
    highest = max([vocabulary.size - 1, *vocabulary.sentinels])
    if len(ids) and not 0 <= ids.min() <= ids.max() <= highest:
        odd = int(ids.min()) if ids.min() < 0 else int(ids.max())
        raise FeatureError(f"the feature {feature.name!r} has the id {odd}, and its vocabulary has 0 to {highest}")
    if feature.add_eos and len(ids) and ids[-1] == vocabulary.eos_id:
        raise FeatureError(
            f"the ids of the feature {feature.name!r} end with an end of sequence, after which another would be put: "
            f"give the task Feature({feature.name!r}, add_eos=False) (all its features with it), or leave that one out"
        )
    return ids


def ids_of(value: Value, vocabulary: Vocabulary) -> np.ndarray:
    """The ids or numbers of one value, (n,)."""
    return vocabulary.encode(value.decode("utf-8")) if isinstance(value, bytes) else value


def _utf8(text: str, feature: Feature) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        bad = f"\\u{ord(text[error.start]):04x}"
        raise FeatureError(f"the feature {feature.name!r} holds half a character (lone surrogate {bad})") from error


def _ids(value: Any, feature: Feature) -> np.ndarray:
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if is_list and not len(value):
        return np.empty(0, np.int64)
    try:
        array = np.asarray(value) if is_list or isinstance(value, np.ndarray) else None
    except ValueError:  # rows of several lengths
        array = None
    if array is None or array.ndim != 1 or array.dtype.kind not in "iu":
        raise _other(value, feature, "text, or token ids (a list or array of whole numbers)")
    return array.astype(np.int64)


def _numbers(value: Any, feature: Feature) -> np.ndarray:
    wanted = "whole numbers" if feature.dtype == "int64" else "numbers"
    if isinstance(value, str | bytes) or value is None:
        raise _other(value, feature, wanted)
    try:
        array = np.asarray(value)
    except ValueError:
        raise _other(value, feature, wanted) from None
    if array.size and (array.ndim > 1 or array.dtype.kind not in ("biu" if feature.dtype == "int64" else "biuf")):
        raise _other(value, feature, wanted)
    return array.astype(feature.dtype).reshape(-1)


def _other(value: Any, feature: Feature, wanted: str) -> FeatureError:
    kind = "None" if value is None else f"of type {type(value).__name__} ({shown(value)})"
    fix = ": decode it in a preprocessor" if isinstance(value, bytes) else ""
    return FeatureError(f"the feature {feature.name!r} is {kind}, and must be {wanted}{fix}")
