"""Rows of parquet files, read a record batch at a time and only the columns asked for."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.tasks import compression, templates
from spanloom.tasks.file_system import open_file, size_of
from spanloom.tasks.read_report import BadInputError, Intake, empty_file
from spanloom.tasks.remote_files import is_remote
from spanloom.tasks.shown import shown

_BATCH = 1024
_BATCH_BYTES = 1 << 22


def parquet_rows(path: str, wanted: Sequence[str] | None, intake: Intake) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, fields) of each row: the `wanted` ones, or all.

    Raises BadInputError for a file that is not whole, a column that does not exist, and text that is not UTF-8.
    """
    if kind := compression.compression_of(path, intake.report):
        raise BadInputError(path, f"a parquet file inside of {kind}", "Unpack it first", reason="archive")
    intake.report.files += 1
    size = size_of(path)
    if not size:
        intake.refuse(empty_file(path))
        return
    try:
        with open_file(path, intake.report) as opened, pq.ParquetFile(opened if is_remote(path) else path) as file:
            names = _columns(path, file.schema_arrow, file.schema_arrow.names if wanted is None else wanted)
            columns = None if wanted is None else names  # a name with a dot in it would be taken for a path
            first = 1
            for batch in _batches(file, columns):
                yield from _rows(path, first, batch, intake)
                first += batch.num_rows
                intake.report.file_bytes += size * batch.num_rows // file.metadata.num_rows
    except BadInputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # a damaged schema gives names that are no UTF-8
        why = (str(error) or type(error).__name__).splitlines()[0]
        what = f"the parquet file is damaged or cut off ({why})"
        raise BadInputError(path, what, "Get the file again", reason="damaged parquet file") from error


def _batches(file: pq.ParquetFile, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """One row group after another, in batches of at most about _BATCH_BYTES: rows may be whole books."""
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        rows = max(1, min(_BATCH, _BATCH_BYTES * about.num_rows // max(about.total_byte_size, 1)))
        yield from file.iter_batches(batch_size=rows, row_groups=[group], columns=columns)


def _columns(path: str, schema: pa.Schema, wanted: Sequence[str]) -> list[str]:
    """The top columns that hold the wanted fields: a column of that very name, or one with fields inside."""
    columns = []
    for name in wanted:
        top = name if name in schema.names else name.split(".")[0]
        if top not in schema.names:
            error = templates.missing(name, schema.names, "column")
            raise BadInputError(path, str(error), error.fix, reason="missing column")
        if (count := schema.names.count(top)) > 1:
            what = f"{count} columns are named {shown(top)}"
            raise BadInputError(path, what, "Rename all but one", reason="columns of one name")
        columns.append(top)
    return columns


def _rows(path: str, first: int, batch: pa.RecordBatch, intake: Intake) -> Iterator[tuple[int, dict[str, Any]]]:
    columns = [_values(column) for column in batch.columns]
    for number, *values in zip(range(first, first + batch.num_rows), *columns, strict=True):
        row = {}
        for name, column, value in zip(batch.schema.names, batch.columns, values, strict=True):
            row[name] = _decode(value, f"{path}: row {number}", intake) if _is_string(column.type) else value
        if all(value is not _REFUSED for value in row.values()):
            yield number, row


_REFUSED = object()


def _is_string(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _values(column: pa.Array) -> list[Any]:
    """Python values; strings as bytes, since nothing has checked that they are UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values: list[Any] = (column.cast(pa.large_binary()) if _is_string(column.type) else column).to_pylist()
    return values


def _decode(raw: bytes | None, where: str, intake: Intake) -> Any:
    if raw is None:
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"invalid utf-8 at byte {error.start} of the cell: {raw[error.start : error.end].hex(' ')}"
        if intake.errors == "replace":
            text = raw.decode("utf-8", "replace")
            intake.report.replace(f"{where}: {what}", text.count("\ufffd") - raw.count(b"\xef\xbf\xbd"))
            return text
        intake.refuse(BadInputError(where, what, reason="undecodable"), mended_by="skip|replace")
        return _REFUSED
