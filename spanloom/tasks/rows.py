"""Rows of a source as bytes and back: one encoding of each row, so that its hash decides where it belongs.

Msgpack, keys in sorted order at every depth, arrays as an extension. The same row gives the same bytes on any machine,
whatever the order in which a reader found its fields.
"""

import datetime
import decimal
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgpack
import numpy as np

from spanloom.tasks.shown import shown

ROW = "row"
"""Name of the only column of packed rows."""
FORMAT = 1
"""Raised when the same row gives other bytes."""

_ARRAY = 1
_BATCH_BYTES = 1 << 20
_BATCH_ROWS = 1024
_LIMIT = 2**64
_DEEPEST = 400  # the same on every version of Python
_TOO_DEEP = f"a list or dict of the row is nested too deeply (more than {_DEEPEST} levels)"


class RowError(ValueError):
    """A row that cannot be packed: it names the field and says what it must be."""


def pack_row(row: Mapping[str, Any]) -> bytes:
    """The row in bytes: texts, bytes, numbers, booleans, None, lists, mappings with texts for keys, and arrays.

    Tuples become lists, NumPy's scalars Python's, dates and times text as ISO 8601 has it, decimal numbers text. Raises
    RowError, naming the field, for anything else.
    """
    try:
        plain = {_key(key): _plain(row[key], str(key)) for key in sorted(row, key=str)}
        packed: bytes = msgpack.packb(plain, use_bin_type=True)
    except UnicodeEncodeError as error:
        bad = f"\\u{ord(error.object[error.start]):04x}"
        raise RowError(f"half a character (lone surrogate {bad}) in a text of the row") from error
    except RowError:
        raise
    except (RecursionError, ValueError) as error:  # where Python's or msgpack's own limit is nearer than ours
        raise RowError(_TOO_DEEP) from error
    return packed


def unpack_row(packed: bytes) -> dict[str, Any]:
    """The row that `pack_row` packed. Arrays are copies that may be written to."""
    row: dict[str, Any] = msgpack.unpackb(packed, raw=False, ext_hook=_unpack_extension, strict_map_key=True)
    return row


def packed_batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, list[bytes]]]:
    """Rows as documents of the one column ROW, some at a time. Raises RowError with the row's number, from 0."""
    batch: list[bytes] = []
    size = 0
    for number, row in enumerate(rows):
        try:
            packed = pack_row(row)
        except RowError as error:
            raise RowError(f"row {number}: {error}") from error
        batch.append(packed)
        size += len(packed)
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield {ROW: batch}
            batch, size = [], 0
    if batch:
        yield {ROW: batch}


def rows_of(documents: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
    """Documents of any columns as packed rows."""
    if ROW in documents:
        return documents
    names = list(documents)
    texts = ([text.decode("utf-8") for text in documents[name]] for name in names)
    return {ROW: [pack_row(dict(zip(names, row, strict=True))) for row in zip(*texts, strict=True)]}


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise RowError(f"the name of a field is {shown(key)}: names are texts")
    return key


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """What msgpack packs of a value, always in the same way; `depth`: lists and dicts around it."""
    if depth > _DEEPEST:
        raise RowError(_TOO_DEEP)
    if value is None or isinstance(value, bool | float | str | bytes):
        return value
    if isinstance(value, int):
        if not -_LIMIT // 2 <= value < _LIMIT:
            raise RowError(f"field {where!r} is a whole number of more than 64 bits ({shown(value)}): make it a text")
        return value
    if isinstance(value, np.ndarray):
        return _packed_array(value, where)
    if isinstance(value, np.generic):
        return _plain(value.item(), where)
    if isinstance(value, Mapping):
        return {_key(key): _plain(value[key], f"{where}.{key}", depth + 1) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_plain(one, where, depth + 1) for one in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    raise RowError(
        f"field {where!r} is of type {type(value).__name__}: rows hold texts, bytes, numbers, booleans, None, lists, "
        "dicts and NumPy arrays"
    )


def _packed_array(array: np.ndarray, where: str) -> Any:
    if array.dtype.kind in "OSU":
        return _plain(array.tolist(), where)
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    head = msgpack.packb([little.dtype.str, list(array.shape)])
    return msgpack.ExtType(_ARRAY, head + little.tobytes())


def _unpack_extension(code: int, data: bytes) -> Any:
    if code != _ARRAY:
        raise RowError(f"packed rows have no extension {code}")
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    dtype, shape = unpacker.unpack()
    return np.frombuffer(data, dtype, offset=unpacker.tell()).reshape(shape).copy()
