"""tf.train.Example messages without TensorFlow or protobuf: named lists of int64, float32 or bytes.

The messages (tensorflow/core/example/{example,feature}.proto): Example {1: Features}, Features {1: map entries},
entry {1: name, 2: Feature}, Feature {1: bytes list, 2: float list, 3: int64 list}, each list {1: values}.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spanloom.vocabularies import wire

Values = list[bytes] | NDArray[np.int64] | NDArray[np.float32]
Example = dict[str, Values]

_BYTES, _FLOATS, _INTS = 1, 2, 3
_TOO_LONG = re.compile(rb"[\x80-\xff]{10}")  # an int64 has at most ten bytes, and only its last is below 0x80


class _Varints:
    """Encoded int64 lists of many messages, decoded together: one by one, NumPy's cost per call would outweigh all."""

    def __init__(self) -> None:
        self.encoded: list[bytes] = []
        self.places: list[tuple[Example, str]] = []

    def add(self, example: Example, name: str, encoded: bytes) -> None:
        self.encoded.append(encoded)
        self.places.append((example, name))

    def decode(self) -> None:
        """Put every list where it belongs."""
        data_N = np.frombuffer(b"".join(self.encoded), np.uint8)
        bounds = np.cumsum([0, *map(len, self.encoded)])
        is_last_N = data_N < 0x80
        counts = np.concatenate([[0], np.cumsum(is_last_N)])[bounds].tolist()
        values = _decode(data_N, np.flatnonzero(is_last_N))
        for (example, name), first, stop in zip(self.places, counts, counts[1:], strict=False):
            example[name] = values[first:stop]


def parse_examples(payloads: Sequence[memoryview]) -> list[Example | ValueError]:
    """Each message's features: bytes, int64 [N] or float32 [N]; one without any values is an empty list.

    A payload that is no such message gives a ValueError in its place, which says why; none is raised.
    """
    varints = _Varints()
    parsed: list[Example | ValueError] = []
    for payload in payloads:
        try:
            parsed.append(_parse(payload, varints))
        except (ValueError, IndexError) as error:
            parsed.append(ValueError(str(error) if isinstance(error, ValueError) else "it ends too soon"))
    varints.decode()
    return parsed


def _parse(payload: memoryview, varints: _Varints) -> Example:
    example: Example = {}
    ints: dict[str, bytes] = {}
    for number, features in wire.fields(payload):
        for inner, entry in wire.fields(_message(features, "features")) if number == 1 else ():
            if inner == 1:
                name, kind, parts = _entry(_message(entry, "an entry"))
                ints.pop(name, None)  # the last entry of a name holds, as in protocol buffers
                if kind == _INTS:
                    ints[name] = _packed_ints(name, parts)
                example[name] = _floats(name, parts) if kind == _FLOATS else _strings(name, parts, kind)
    for name, encoded in ints.items():
        varints.add(example, name, encoded)
    return example


def _entry(entry: memoryview) -> tuple[str, int, list[int | memoryview]]:
    """A feature's name, the kind of its values (0: none), and the values as they stand."""
    name, kind, parts = "", 0, []
    for number, value in wire.fields(entry):
        if number == 1:
            name = str(_message(value, "a name"), "utf-8")
        elif number == 2:
            for kind, values in wire.fields(_message(value, "a feature")):
                if kind not in (_BYTES, _FLOATS, _INTS):
                    raise ValueError(f"feature {name!r} is of the unknown kind {kind}")
                parts += [part for inner, part in wire.fields(_message(values, "a list")) if inner == 1]
    return name, kind, parts


def _message(value: int | memoryview, what: str) -> memoryview:
    if isinstance(value, int):
        raise ValueError(f"a number where {what} should be")
    return value


def _strings(name: str, parts: list[int | memoryview], kind: int) -> list[bytes]:
    return [bytes(_message(part, f"text of feature {name!r}")) for part in parts] if kind == _BYTES else []


def _floats(name: str, parts: list[int | memoryview]) -> NDArray[np.float32]:
    data = b"".join(_message(part, f"floats of feature {name!r}") for part in parts)
    if len(data) % 4:
        raise ValueError(f"feature {name!r} has {len(data)} bytes of floats, not a multiple of 4")
    return np.frombuffer(data, "<f4").astype(np.float32, copy=False)


def _packed_ints(name: str, parts: list[int | memoryview]) -> bytes:
    encoded = b"".join(wire.varint(part) if isinstance(part, int) else part for part in parts)
    if encoded and encoded[-1] >= 0x80:
        raise ValueError(f"the last number of feature {name!r} is cut off")
    if _TOO_LONG.search(encoded):
        raise ValueError(f"feature {name!r} has a number of more than 64 bits")
    return encoded


def _decode(data_N: NDArray[np.uint8], lasts_V: NDArray[np.int64]) -> NDArray[np.int64]:
    """The varints that end at these places, int64 [V]."""
    firsts_V = np.concatenate([[0], lasts_V[:-1] + 1])[: len(lasts_V)]
    lengths_V = lasts_V - firsts_V + 1
    values_V = np.zeros(len(lasts_V), np.uint64)
    chosen = np.arange(len(lasts_V))
    for place in range(int(lengths_V.max(initial=0))):
        chosen = chosen[lengths_V[chosen] > place]
        values_V[chosen] |= (data_N[firsts_V[chosen] + place] & np.uint64(0x7F)) << np.uint64(7 * place)
    return values_V.view(np.int64)
