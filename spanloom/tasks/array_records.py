"""ArrayRecord files, whose chunks carry checksums and whose records are found by number."""

import os
from collections.abc import Iterator
from typing import Any

from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.remote_files import is_remote

BATCH = 256
"""Records that are held at once."""
_GET_AGAIN = "Get the file again"


def read_array_records(
    path: str, intake: Intake, first: int = 0, stop: int | None = None
) -> Iterator[list[tuple[str, memoryview]]]:
    """The records first <= number < stop in order, some at a time: (where each stands, for messages; its bytes).

    Raises BadInputError for a file that is none or is cut off, and for records whose chunk does not match its checksum
    (errors=skip: counted and left out).
    """
    reader = _open(path)
    try:
        intake.report.files += 1
        total = reader.num_records()
        stop = total if stop is None else min(stop, total)
        for start in range(first, stop, BATCH):
            yield _read(path, reader, start, min(start + BATCH, stop), intake)
        intake.report.file_bytes += os.path.getsize(path) * max(stop - first, 0) // max(total, 1)
    finally:
        reader.close()


def _open(path: str) -> Any:
    if is_remote(path):
        what = "ArrayRecord files are read from local disks only"
        raise BadInputError(path, what, "Copy the file to a disk, or mount it", reason="remote ArrayRecord file")
    if not os.path.exists(path):
        raise BadInputError(path, "cannot be opened: No such file or directory", "Check the path")
    try:
        from array_record.python.array_record_module import ArrayRecordReader
    except ImportError as error:
        what = f"ArrayRecord files need the package array_record: {error}"
        raise BadInputError(
            path, what, "pip install array_record (not on Windows)", reason="missing package"
        ) from error

    reader = ArrayRecordReader(path)
    if not reader.ok() or (not reader.num_records() and os.path.getsize(path)):
        why = _why(reader)
        if not why:
            return reader  # whole, and empty
        what = f"no ArrayRecord file, or it is damaged or cut off: {why}"
        raise BadInputError(path, what, _GET_AGAIN, reason="damaged ArrayRecord file")
    return reader


def _why(reader: Any) -> str:
    """What the library says of a file that it cannot read; empty where it can."""
    try:
        reader.read_all()
    except (RuntimeError, IndexError, ValueError) as error:
        return str(error).splitlines()[0]
    return ""


def _read(path: str, reader: Any, first: int, stop: int, intake: Intake) -> list[tuple[str, memoryview]]:
    try:
        payloads = list(enumerate(reader.read(first, stop), first))
    except (RuntimeError, IndexError):  # one is damaged: which?
        payloads = []
        for number in range(first, stop):
            try:
                payloads.append((number, reader.read([number])[0]))
            except (RuntimeError, IndexError) as error:
                what = str(error).splitlines()[0]
                intake.refuse(BadInputError(f"{path}: record {number}", what, _GET_AGAIN, reason="damaged record"))
    return [(f"{path}: record {number}", memoryview(payload)) for number, payload in payloads]
