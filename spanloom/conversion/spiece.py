"""What a SentencePiece model file says, read without protobuf: pieces, scores, kinds and the normaliser.

Wire format: https://protobuf.dev/programming-guides/encoding/; messages: sentencepiece_model.proto of
https://github.com/google/sentencepiece. Only the fields needed for a Hugging Face tokenizer are kept.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spanloom.conversion.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Piece:
    """One piece; its id is its place in the model."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class Spiece:
    """A SentencePiece model."""

    pieces: tuple[Piece, ...]
    algorithm: str
    """unigram, bpe, word or char."""
    byte_fallback: bool
    split_by_whitespace: bool
    whitespace_as_suffix: bool
    charsmap: bytes
    """Compiled normalisation rules; empty: none."""
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def parse(data: bytes, path: str | Path) -> Spiece:
    """A model from the bytes of its file. CheckpointError, naming `path`, if they are not one."""
    try:
        return _parse(memoryview(data))
    except (LookupError, ValueError, struct.error) as error:
        raise CheckpointError(path, f"is not a SentencePiece model, or is damaged ({error})") from error


def _parse(data: memoryview) -> Spiece:
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for field, value in _fields(data):
        if field == _PIECES:
            pieces.append(_piece(dict(_fields(_message(value)))))
        elif field == _TRAINER:
            trainer = dict(_fields(_message(value)))
        elif field == _NORMALIZER:
            normalizer = dict(_fields(_message(value)))
    if not pieces or not trainer:
        raise ValueError("pieces or the trainer's settings, which stand after them, are missing")
    return Spiece(
        pieces=tuple(pieces),
        algorithm={1: "unigram", 2: "bpe", 3: "word", 4: "char"}[int(trainer.get(3, 1))],
        byte_fallback=bool(trainer.get(35, 0)),
        split_by_whitespace=bool(trainer.get(22, 1)),
        whitespace_as_suffix=bool(trainer.get(24, 0)),
        charsmap=bytes(_message(normalizer.get(2, b""))),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def _piece(fields: dict[int, int | bytes]) -> Piece:
    (score,) = struct.unpack("<f", _message(fields.get(2, b"\0\0\0\0")))
    return Piece(bytes(_message(fields[1])).decode("utf-8"), score, int(fields.get(3, NORMAL)))


def _message(value: int | bytes | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message belongs")
    return memoryview(value)


def _fields(data: memoryview) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value; numbers for varints, bytes for the rest."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind} at byte {at}")
        if at + length > len(data):
            raise ValueError(f"cut short at byte {len(data)}")
        yield key >> 3, bytes(data[at : at + length])
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"a number too long at byte {at}")
