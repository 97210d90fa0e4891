"""TFRecord files and tf.train.Example messages made in plain Python, or by SeqIO, for tests of their readers."""

import json
import struct
from pathlib import Path

from tensorboardX.crc32c import crc32c

from spanloom.vocabularies import wire


def frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + _checksum(length) + payload + _checksum(payload)


def write_records(path: Path, payloads) -> bytes:
    data = b"".join(map(frame, payloads))
    path.write_bytes(data)
    return data


def flip_bit(path: Path, bit: int) -> None:
    """Damages one bit of a file; beyond its end they are counted from its beginning again."""
    data = bytearray(path.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)


def golden_rows(folder: Path) -> dict[Path, list[dict]]:
    """What SeqIO's cached tasks hold, by file and in order: offset, payload_bytes and example of each record."""
    expected: dict[Path, list[dict]] = {}
    for line in (folder / "expected.jsonl").read_text().splitlines():
        row = json.loads(line)
        expected.setdefault(folder / row["task"] / row["file"], []).append(row)
    assert expected
    return expected


def example(features) -> bytes:
    """A message of {name: list of int, float, str or bytes}; an empty list has no kind."""
    return part(1, b"".join(part(1, part(1, name.encode()) + part(2, _feature(v))) for name, v in features.items()))


def _feature(values) -> bytes:
    if not values:
        return b""
    if isinstance(values[0], float):
        return part(2, part(1, struct.pack(f"<{len(values)}f", *values)))
    if isinstance(values[0], int):
        return part(3, part(1, b"".join(wire.varint(value % (1 << 64)) for value in values)))
    return part(1, b"".join(part(1, v if isinstance(v, bytes) else v.encode()) for v in values))


def part(number: int, content: bytes) -> bytes:
    """A field of a message that is bytes, such as another message."""
    return wire.key(number, wire.BYTES) + wire.varint(len(content)) + content


def _checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
