"""From the flat lists of a tf.train.Example to the features that a SeqIO cache describes: shapes, dtypes, text.

SeqIO stores a feature of more dimensions as its flat values; `_sh:<name>` holds a shape that varies, `_rl:<d>:<name>`
the row lengths of ragged dimension d, `_sp:<d>:<name>` the places of sparse values along dimension d.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.tf_example import Example

TEXTS = ("string", "bytes")
"""Dtypes that are stored as bytes."""
DTYPES = frozenset(
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)


@dataclass(frozen=True)
class Feature:
    """A feature of every example in a cache."""

    stored: str
    """Its name in the records."""
    dtype: str
    """NumPy's name of the dtype, 'string' (UTF-8), or 'bytes'."""
    shape: tuple[int | None, ...]
    """() for a single value; None for a dimension that varies."""


def read_features(path: str, info: Mapping[str, Any]) -> dict[str, Feature]:
    """The features that `info.<split>.json` describes, by the names of today's SeqIO.

    Caches older than SeqIO's first release name no version: their int64 features are int32, and `*_plaintext` is now
    `*_pretokenized`. Raises BadInputError where the description is damaged or of an unknown dtype.
    """
    described, is_old = info.get("features"), "seqio_version" not in info
    if not isinstance(described, dict) or not described:
        raise BadInputError(path, f"features is {described!r}, not what an example holds", reason="damaged cache")
    features = {}
    for stored, one in described.items():
        dtype, shape = (one.get("dtype"), one.get("shape")) if isinstance(one, dict) else (None, None)
        dtype = "float32" if dtype == "bfloat16" else dtype
        if dtype != "string" and dtype not in DTYPES:
            raise BadInputError(path, f"feature {stored!r} has the unknown dtype {dtype!r}", reason="damaged cache")
        if not isinstance(shape, list) or not all(size is None or (type(size) is int and size >= 0) for size in shape):
            raise BadInputError(path, f"feature {stored!r} has {shape!r} for a shape", reason="damaged cache")
        name = stored
        if is_old:
            dtype = "int32" if dtype == "int64" else dtype
            name = stored.removesuffix("_plaintext") + "_pretokenized" if stored.endswith("_plaintext") else stored
        features[name] = Feature(stored, dtype, tuple(shape))
    return features


def build_example(
    features: Mapping[str, Feature], stored: Example, where: str, intake: Intake
) -> dict[str, Any] | None:
    """The features of one example, see `spanloom.tasks.seqio_cache.read_shard`; None where bad text is skipped.

    Raises ValueError where a feature is not stored as described, and BadInputError for text that is no UTF-8.
    """
    example = {}
    for name, feature in features.items():
        flat = _flat(name, feature, stored)
        if feature.dtype == "string":
            flat = [_text(raw, f"{where}, feature {name!r}", intake) for raw in flat]
            if None in flat:
                return None
        example[name] = _shaped(name, feature, flat, stored)
    return example


def _flat(name: str, feature: Feature, stored: Example) -> Any:
    """The values in a row, of the feature's dtype; text still as bytes."""
    values = stored.get(feature.stored, [])
    if not len(values):
        return [] if feature.dtype in TEXTS else np.zeros(0, feature.dtype)
    kind = "text" if isinstance(values, list) else "floats" if values.dtype == np.float32 else "integers"
    wanted = "text" if feature.dtype in TEXTS else "floats" if feature.dtype.startswith("float") else "integers"
    if kind != wanted:
        raise ValueError(f"feature {name!r} holds {kind}, not {wanted} ({feature.dtype})")
    if isinstance(values, list):
        return values
    cast: Any = values.astype(feature.dtype)
    if wanted == "integers" and (is_other := cast.astype(np.int64) != values).any():
        raise ValueError(f"feature {name!r} holds {values[np.argmax(is_other)]}, which is no {feature.dtype}")
    return cast


def _text(raw: bytes, where: str, intake: Intake) -> str | None:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"invalid utf-8 at byte {error.start} of the text: {raw[error.start : error.end].hex(' ')}"
        if intake.errors == "replace":
            text = raw.decode("utf-8", "replace")
            intake.report.replace(f"{where}: {what}", text.count("\ufffd") - raw.count(b"\xef\xbf\xbd"))
            return text
        intake.refuse(BadInputError(where, what, reason="undecodable"), mended_by="skip|replace")
        return None


def _shaped(name: str, feature: Feature, flat: Any, stored: Example) -> Any:
    if not feature.shape:
        if len(flat) != 1:
            raise ValueError(f"feature {name!r} holds {len(flat)} values, not one")
        return flat[0] if isinstance(flat, list) else flat[0].item()
    if lengths := _numbered(stored, "_rl", feature.stored):
        return ragged(name, flat, lengths)
    if places := _numbered(stored, "_sp", feature.stored):
        return _dense(name, feature, flat, places, _stored_shape(feature, stored))
    if len(feature.shape) == 1 and feature.shape[0] in (None, len(flat)):
        return flat
    return _reshaped(name, flat, _stored_shape(feature, stored))


def _numbered(stored: Example, prefix: str, name: str) -> list[Any]:
    """The lists of the side features of dimensions 0, 1, ... of a feature."""
    lists: list[Any] = []
    while (values := stored.get(f"{prefix}:{len(lists)}:{name}")) is not None:
        lists.append(values)
    return lists


def _stored_shape(feature: Feature, stored: Example) -> tuple[int | None, ...]:
    own = stored.get(f"_sh:{feature.stored}")
    return feature.shape if own is None else tuple(int(size) for size in own)


def ragged(name: str, flat: Any, lengths: Sequence[Any]) -> list[Any]:
    """Nested lists: the values cut into rows, from the innermost dimension outwards. Raises ValueError."""
    rows: Any = flat
    for dimension in reversed(range(len(lengths))):
        ends = np.cumsum(np.asarray(lengths[dimension], np.int64)).tolist()
        total = ends[-1] if ends else 0
        if any(length < 0 for length in lengths[dimension]) or total != len(rows):
            raise ValueError(f"ragged feature {name!r} has {len(rows)} parts in dimension {dimension + 1}, not {total}")
        rows = [rows[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    return list(rows)


def _dense(name: str, feature: Feature, flat: Any, places: Sequence[Any], shape: tuple[int | None, ...]) -> Any:
    """Sparse values in an array of zeros."""
    sizes = [size for size in shape if size is not None]
    if feature.dtype in TEXTS or len(sizes) != len(shape) or len(places) != len(shape):
        raise ValueError(f"feature {name!r} is sparse, of {feature.dtype} in shape {shape}: this is not read")
    inside = all(
        len(along) == len(flat) and all(0 <= at < size for at in along)
        for along, size in zip(places, sizes, strict=True)
    )
    if not inside or prod(sizes) > 1 << 28:
        raise ValueError(f"feature {name!r} has sparse values outside of its shape {shape}, or a shape too large")
    array = np.zeros(sizes, feature.dtype)
    array[tuple(np.asarray(along, np.int64) for along in places)] = flat
    return array


def _reshaped(name: str, flat: Any, shape: tuple[int | None, ...]) -> Any:
    known = prod(size for size in shape if size is not None)
    unknown = shape.count(None)
    if unknown > 1:
        raise ValueError(f"feature {name!r} varies in {unknown} dimensions, and the record does not hold its shape")
    if (len(flat) % known if unknown and known else len(flat) - known) != 0:
        raise ValueError(f"feature {name!r} holds {len(flat)} values, which do not fill the shape {shape}")
    sizes = [len(flat) // known if size is None and known else size or 0 for size in shape]
    array = np.array(flat, object if isinstance(flat, list) else None).reshape(sizes)
    return array.tolist() if isinstance(flat, list) else array
