"""TFRecord files without TensorFlow: frames of length, its checksum, payload, its checksum; every checksum is verified.

A frame is a little-endian uint64 length, the masked CRC-32C of those eight bytes, the payload and its masked CRC-32C.
A damaged payload costs one record. A damaged length costs the rest of the file, for nothing says where the next frame
begins. The file's frames are found first; any run of records can then be read alone.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanloom.tasks.crc32c import crc32c
from spanloom.tasks.file_system import open_file
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport

WINDOW = 1 << 22
"""Bytes of records that are held at once; a longer record is held alone."""

_HEADER, _FOOTER = 12, 4
_LONGEST = 1 << 31  # bytes of a protocol-buffer message
_MASK = np.uint32(0xA282EAD8)
_GET_AGAIN = "Get the file again"


class Record(NamedTuple):
    """A payload whose checksum is right, and where its frame begins in the file, in bytes."""

    offset: int
    payload: memoryview


@dataclass(frozen=True)
class Frames:
    """Where the records of a file are; small enough to be handed to workers."""

    path: str
    offsets: NDArray[np.int64] = field(repr=False)
    """int64 [records + 1]: the first byte of each frame, and the byte after the last."""
    damage: BadInputError | None = None
    """What ends the readable part of the file early."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def find_frames(path: str, report: ReadReport | None = None) -> Frames:
    """The frames of a file, by their headers alone; each header's checksum is verified, payloads are not read.
    `report` counts dropped connections to a remote file.

    Raises BadInputError where the file cannot be read. What a damaged header or an early end hides is no error here:
    it stands in `damage`, with the frames before it.
    """
    try:
        with open_file(path, report) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            offsets, headers = _walk(file, size)
    except OSError as error:  # while it is read
        raise BadInputError(
            path, f"cannot be read: {error.strerror or error}", "Check the path and its permissions",
            reason="unreadable file",
        ) from error  # fmt: skip
    found_N = np.frombuffer(headers, np.uint8)
    starts_R = np.arange(len(found_N) // _HEADER, dtype=np.int64) * _HEADER
    is_right_R = _masked(crc32c(found_N, starts_R, starts_R + 8)) == _stored(found_N, starts_R + 8)
    if not is_right_R.all():
        number = int(np.argmin(is_right_R))
        return Frames(path, np.array(offsets[: number + 1], np.int64), _bad_length(path, number, offsets[number], size))
    if offsets[-1] == size:
        return Frames(path, np.array(offsets, np.int64))
    number = len(starts_R) - (offsets[-1] > size)
    damage = _cut_off(path, number, offsets[number], offsets[-1], size)
    return Frames(path, np.array(offsets[: number + 1], np.int64), damage)


def read_records(frames: Frames, intake: Intake, first: int = 0, stop: int | None = None) -> Iterator[list[Record]]:
    """The records first <= number < stop in order, at most about WINDOW bytes at a time.

    Raises BadInputError, naming file and byte, for a payload that does not match its checksum (errors=skip: counted
    and left out), and after the last record of a file whose end is damaged (within `Intake.file_errors`: counted).
    """
    total = len(frames) if stop is None else min(stop, len(frames))
    with open_file(frames.path, intake.report) as file:
        while first < total:
            bound = int(np.searchsorted(frames.offsets, frames.offsets[first] + WINDOW, "right")) - 1
            last = min(max(bound, first + 1), total)
            yield from _read_window(file, frames, first, last, intake)
            first = last
    if frames.damage is not None and (stop is None or stop > len(frames)):
        raise frames.damage


def _walk(file: BinaryIO, size: int) -> tuple[list[int], bytes]:
    """Where frames begin as their lengths say, and their headers; the last place lies past the end if it is cut off."""
    offsets, headers, at = [0], [], 0
    while at + _HEADER <= size:
        header = file.read(_HEADER)
        if len(header) < _HEADER:
            break
        headers.append(header)
        at += _HEADER + int.from_bytes(header[:8], "little") + _FOOTER
        offsets.append(at)
        if at > size:
            break
        file.seek(at)
    return offsets, b"".join(headers)


def _read_window(file: BinaryIO, frames: Frames, first: int, last: int, intake: Intake) -> Iterator[list[Record]]:
    begins_R = frames.offsets[first : last + 1]
    base, size = int(begins_R[0]), int(begins_R[-1] - begins_R[0])
    if last == first + 1 and size > _LONGEST:
        what = f"record {first} has {size:,} bytes; a protocol-buffer message has at most {_LONGEST:,}"
        intake.refuse(BadInputError(_place(frames.path, base), what, reason="record too long"))
        return
    file.seek(base)
    data = file.read(size)
    if len(data) < size:
        raise _cut_off(frames.path, first, base, base + size, base + len(data))
    intake.report.file_bytes += size
    data_N = np.frombuffer(data, np.uint8)
    starts_R, ends_R = begins_R[:-1] - base + _HEADER, begins_R[1:] - base - _FOOTER
    is_right_R = _masked(crc32c(data_N, starts_R, ends_R)) == _stored(data_N, ends_R)
    view, records = memoryview(data), []
    for number, is_right in enumerate(is_right_R.tolist()):
        start, end = int(starts_R[number]), int(ends_R[number])
        if is_right:
            records.append(Record(base + start - _HEADER, view[start:end]))
            continue
        if records:
            yield records
            records = []
        intake.refuse(_bad_payload(frames.path, first + number, base + start - _HEADER))
    if records:
        yield records


def _masked(crcs_R: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """As TFRecord stores a checksum: rotated and moved, lest the CRC of data that hold CRCs be weak."""
    return (crcs_R >> np.uint32(15) | crcs_R << np.uint32(17)) + _MASK


def _stored(data_N: NDArray[np.uint8], places_R: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The little-endian uint32 at each place."""
    return data_N[places_R[:, None] + np.arange(4)].view("<u4")[:, 0]


def _place(path: str, offset: int) -> str:
    return f"{path}: byte {offset}"


def _bad_payload(path: str, number: int, offset: int) -> BadInputError:
    what = f"record {number}, which begins here, does not match its checksum (CRC32C)"
    return BadInputError(_place(path, offset), what, _GET_AGAIN, reason="damaged record")


def _bad_length(path: str, number: int, offset: int, size: int) -> BadInputError:
    lost = f"nothing in the {size - offset:,} bytes from here can be trusted"
    what = f"the length of record {number}, which begins here, does not match its checksum (CRC32C); {lost}"
    if offset:
        return BadInputError(_place(path, offset), what, _GET_AGAIN, reason="damaged tfrecord file")
    with open_file(path) as file:
        head = file.read(40)
    if head.startswith(b"version https://git-lfs"):
        what, fix = "this is a Git LFS pointer, not the file", "Fetch the file itself: git lfs pull"
    elif head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        what, fix = "no TFRecord file: it begins like a compressed one", "Decompress it first"
    else:
        what, fix = f"no TFRecord file, or its first length is damaged: {what}", _GET_AGAIN
    return BadInputError(_place(path, 0), what, fix, reason="damaged tfrecord file")


def _cut_off(path: str, number: int, begin: int, wanted: int, size: int) -> BadInputError:
    until = f"to byte {wanted:,}" if wanted > begin else f"over {_HEADER} bytes at least"
    what = f"the file is cut off: record {number}, which begins here, goes {until}, but the file ends at byte {size:,}"
    return BadInputError(_place(path, begin), what, _GET_AGAIN, reason="damaged tfrecord file")
