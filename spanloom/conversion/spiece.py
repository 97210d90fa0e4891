"""What a SentencePiece model file says, read without protobuf: pieces, scores and the normaliser.

Messages: sentencepiece_model.proto of https://github.com/google/sentencepiece. Only the fields needed for a Hugging
Face tokenizer are kept.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from spanloom.conversion.errors import ConversionError
from spanloom.vocabularies.wire import fields

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto
_ALGORITHMS: dict[object, str] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_EMPTY = memoryview(b"")


@dataclass(frozen=True)
class Piece:
    """One piece; its id is its place in the model."""

    text: str
    score: float


@dataclass(frozen=True)
class Spiece:
    """A SentencePiece model."""

    pieces: tuple[Piece, ...]
    eos_id: int
    unk_id: int
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
    """A model from the bytes of its file. ConversionError, naming `path`, if they are not one."""
    try:
        return _parse(memoryview(data))
    except (LookupError, ValueError, struct.error) as error:
        raise ConversionError(path, f"is not a SentencePiece model, or is damaged ({error})") from error


def _parse(data: memoryview) -> Spiece:
    pieces: list[Piece] = []
    trainer: dict[int, int | memoryview] = {}
    normalizer: dict[int, int | memoryview] = {}
    for field, value in fields(data):
        if field == _PIECES:
            pieces.append(_piece(dict(fields(_message(value)))))
        elif field == _TRAINER:
            trainer = dict(fields(_message(value)))
        elif field == _NORMALIZER:
            normalizer = dict(fields(_message(value)))
    if not pieces or not trainer:
        raise ValueError("pieces or the trainer's settings, which stand after them, are missing")
    return Spiece(
        pieces=tuple(pieces),
        eos_id=_number(trainer.get(42, 2)),
        unk_id=_number(trainer.get(40, 0)),
        algorithm=_ALGORITHMS[trainer.get(3, 1)],
        byte_fallback=bool(trainer.get(35, 0)),
        split_by_whitespace=bool(trainer.get(22, 1)),
        whitespace_as_suffix=bool(trainer.get(24, 0)),
        charsmap=bytes(_message(normalizer.get(2, _EMPTY))),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def _piece(values: dict[int, int | memoryview]) -> Piece:
    (score,) = struct.unpack("<f", _message(values.get(2, memoryview(bytes(4)))))
    return Piece(bytes(_message(values[1])).decode("utf-8"), score)


def _number(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("a message where a number belongs")
    return value


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message belongs")
    return value
