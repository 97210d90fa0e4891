"""TFRecord files and tf.train.Example messages made in plain Python, for tests of their readers."""

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


def example(features) -> bytes:
    """A message of {name: list of int, float, str or bytes}; an empty list has no kind."""
    return _part(1, b"".join(_part(1, _part(1, name.encode()) + _part(2, _feature(v))) for name, v in features.items()))


def _feature(values) -> bytes:
    if not values:
        return b""
    if isinstance(values[0], float):
        return _part(2, _part(1, struct.pack(f"<{len(values)}f", *values)))
    if isinstance(values[0], int):
        return _part(3, _part(1, b"".join(wire.varint(value % (1 << 64)) for value in values)))
    return _part(1, b"".join(_part(1, v if isinstance(v, bytes) else v.encode()) for v in values))


def _part(number: int, content: bytes) -> bytes:
    return wire.key(number, wire.BYTES) + wire.varint(len(content)) + content


def _checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
