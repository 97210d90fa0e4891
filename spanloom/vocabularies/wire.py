"""The wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding/), read without their library.

A message is a list of fields; a field that repeats goes on where its later entries stand, even at the end of the file.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field in order: an int of a varint, the bytes of all else.

    Raises IndexError or ValueError where the message ends too soon or is none.
    """
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise ValueError(f"field 0 before byte {at}")
        if wire_type == VARINT:
            value, at = read_varint(message, at)
            yield number, value
            continue
        if wire_type == BYTES:
            length, at = read_varint(message, at)
        elif wire_type in (FIXED32, FIXED64):
            length = 4 if wire_type == FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire_type} before byte {at}")
        if at + length > len(message):
            raise ValueError(f"cut short at byte {len(message)}")
        yield number, message[at : at + length]
        at += length


def key(number: int, wire_type: int) -> bytes:
    """What stands before the value of a field."""
    return varint(number << 3 | wire_type)


def varint(value: int) -> bytes:
    """A number, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(message: memoryview, at: int) -> tuple[int, int]:
    """The number that begins at a byte, and where the next field begins. Raises IndexError or ValueError."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"a number of more than 64 bits before byte {at}")
