"""What `features.json` of TensorFlow Datasets describes: a tree of features, stored flat under names joined by '/'.

Text and labels become str and int, tensors arrays, a sequence of dicts a dict of lists, as TFDS gives them. What is
kept encoded in the file (images, audio, compressed tensors) stays bytes: nothing here learns from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.seqio_features import DTYPES, Feature, build_example, ragged
from spanloom.tasks.tf_example import Example

_FIX = "Write the data set again with today's TFDS, or read its files with RecordFiles"


@dataclass(frozen=True)
class Leaf:
    """A feature that is stored under a name of its own."""

    path: tuple[str, ...]
    """Names on the way to it."""
    dtype: str
    """NumPy's, 'string' or 'bytes'."""
    shape: tuple[int | None, ...]
    """Shape of one value, and before it None or the length for each sequence around it."""
    sequences: int
    """Sequences around it."""
    optional: bool = False
    """Whether it may be absent; it is None then."""

    @property
    def stored(self) -> str:
        """Its name in the records."""
        return "/".join(self.path)


def read_leaves(path: str, described: Mapping[str, Any]) -> list[Leaf]:
    """The features of a data set. Raises BadInputError for a description that is not understood."""
    leaves = _leaves(path, described, (), ())
    if not leaves or not leaves[0].path:
        raise BadInputError(path, "describes no features by name", _FIX, reason="damaged data set")
    return leaves


def build_row(leaves: list[Leaf], stored: Example, where: str, intake: Intake) -> dict[str, Any] | None:
    """The row of one example; None where bad text is skipped.

    Raises ValueError where a feature is not stored as described, and BadInputError for text that is no UTF-8.
    """
    row: dict[str, Any] = {}
    for leaf in leaves:
        value = _value(leaf, stored, where, intake)
        if value is _REFUSED:
            return None
        inside = row
        for name in leaf.path[:-1]:
            inside = inside.setdefault(name, {})
        inside[leaf.path[-1]] = value
    return row


_REFUSED = object()


def _value(leaf: Leaf, stored: Example, where: str, intake: Intake) -> Any:
    name = leaf.stored
    flat_name = f"{name}/ragged_flat_values"
    lengths = [stored.get(f"{name}/ragged_row_lengths_{depth}") for depth in range(leaf.sequences - 1)]
    is_ragged = flat_name in stored or (leaf.sequences > 1 and lengths[0] is not None)
    if not is_ragged and leaf.optional and not len(stored.get(name, ())):
        return None
    shape = (None, *leaf.shape[leaf.sequences :]) if is_ragged else leaf.shape
    feature = Feature(flat_name if is_ragged else name, leaf.dtype, shape)
    built = build_example({name: feature}, stored, where, intake)
    if built is None:
        return _REFUSED
    if not is_ragged:
        return built[name]
    return ragged(name, built[name], [np.zeros(0, np.int64) if length is None else length for length in lengths])


def _leaves(file: str, one: Any, path: tuple[str, ...], around: tuple[int | None, ...]) -> list[Leaf]:
    if not isinstance(one, dict):
        raise BadInputError(file, f"feature {'/'.join(path)!r} is {one!r}", _FIX, reason="damaged data set")
    if isinstance(inner := one.get("featuresDict"), dict):
        features = inner.get("features", {})
        return [leaf for name in features for leaf in _leaves(file, features[name], (*path, name), around)]
    if isinstance(inner := one.get("sequence"), dict):
        length = int(inner.get("length", -1))
        return _leaves(file, inner.get("feature"), path, (*around, length if length >= 0 else None))
    if isinstance(inner := one.get("translation"), dict):
        return _translation(inner, path, around)
    dtype, shape, optional = _plain(file, one, path)
    return [Leaf(path, dtype, (*around, *shape), len(around), optional)]


def _translation(inner: Mapping[str, Any], path: tuple[str, ...], around: tuple[int | None, ...]) -> list[Leaf]:
    if inner.get("variableLanguagesPerExample"):
        names = ("language", "translation")
        return [Leaf((*path, name), "string", (*around, None), len(around) + 1) for name in names]
    return [Leaf((*path, name), "string", around, len(around)) for name in inner.get("languages", ())]


def _plain(file: str, one: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, tuple[int | None, ...], bool]:
    """dtype, shape and whether it is optional."""
    if "text" in one:
        return "string", (), False
    if "classLabel" in one:
        return "int64", (), False
    if "image" in one:
        return "bytes", (), False
    if "video" in one:
        return "bytes", (None,), False
    for kind in ("tensor", "audio", "boundingBox"):
        if not isinstance(inner := one.get(kind), dict):
            continue
        if inner.get("encoding", "none").lower() not in ("none", "") or inner.get("lazyDecode"):
            return "bytes", (), bool(inner.get("optional"))
        named = inner.get("dtype", "")
        dtype = {"object": "string", "str": "string", "bfloat16": "float32"}.get(named, named)
        if dtype != "string" and dtype not in DTYPES:
            what = f"feature {'/'.join(path)!r} has the unknown dtype {dtype!r}"
            raise BadInputError(file, what, _FIX, reason="damaged data set")
        sizes = [int(size) for size in inner.get("shape", {}).get("dimensions", ())]
        default = (4,) if kind == "boundingBox" else (None,) if kind == "audio" else ()
        return dtype, tuple(None if size < 0 else size for size in sizes) or default, bool(inner.get("optional"))
    kind = str(one.get("pythonClassName", "of no known kind")).rpartition(".")[2]
    what = f"feature {'/'.join(path)!r} ({kind}) is not read"
    raise BadInputError(file, what, _FIX, reason="unknown feature")
