"""The pieces of a SentencePiece model file one by one, and the same model with only some of them.

Messages: sentencepiece_model.proto of https://github.com/google/sentencepiece.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass

from spanloom.vocabularies import wire
from spanloom.vocabularies.vocabulary import VocabularyError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Kinds of pieces."""
_PIECES, _TRAINER, _NORMALIZER, _SELF_TEST = 1, 2, 3, 4  # fields of ModelProto
_DUMMY_PREFIX, _EXTRA_WHITESPACES = 3, 4  # fields of NormalizerSpec
_TEXT, _SCORE, _KIND = 1, 2, 3  # fields of one piece
_DAMAGE = (LookupError, ValueError, TypeError, struct.error)
_ALGORITHM, _ALGORITHMS = 3, {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@dataclass(frozen=True)
class Piece:
    """One piece; its id is its place in the model."""

    text: str
    score: float
    kind: int
    """NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED or BYTE."""


def pieces_of(model: bytes) -> tuple[Piece, ...]:
    """Every piece in the order of ids. Raises VocabularyError where the bytes are no model."""
    try:
        return tuple(_piece(value) for number, value in wire.fields(memoryview(model)) if number == _PIECES)
    except _DAMAGE as error:
        raise _damaged(error) from None


def algorithm_of(model: bytes) -> str:
    """unigram, bpe, word or char. Raises VocabularyError where the bytes are no model."""
    try:
        for number, value in wire.fields(memoryview(model)):
            if number == _TRAINER and not isinstance(value, int):
                return _ALGORITHMS.get(int(dict(wire.fields(value)).get(_ALGORITHM, 1)), "unknown")
    except _DAMAGE as error:
        raise _damaged(error) from None
    return "unknown"


def with_only(model: bytes, kept: Collection[int]) -> bytes:
    """The model without all other pieces: ids close up, scores and all settings stay.

    Its own samples of segmentations are left out, since they speak of pieces that may be gone.
    """
    keep, written, at = set(kept), bytearray(), 0
    for number, value in wire.fields(memoryview(model)):
        if number == _PIECES:
            at += 1
            if at - 1 not in keep:
                continue
        if number != _SELF_TEST:
            written += _field(number, value)
    return bytes(written)


def without_edges(model: bytes) -> bytes:
    """The model for stretches inside a text: it puts no space before them, and takes none away."""
    off = wire.varint(0)
    added = wire.key(_DUMMY_PREFIX, wire.VARINT) + off + wire.key(_EXTRA_WHITESPACES, wire.VARINT) + off
    # of a field that comes twice the last one counts, and messages are merged
    return model + _field(_NORMALIZER, memoryview(added))


def _damaged(error: Exception) -> VocabularyError:
    return VocabularyError(f"the SentencePiece model is damaged ({error}): fetch the .model file again")


def _field(number: int, value: int | memoryview) -> bytes:
    if isinstance(value, int):
        return wire.key(number, wire.VARINT) + wire.varint(value)
    return wire.key(number, wire.BYTES) + wire.varint(len(value)) + bytes(value)


def _piece(value: int | memoryview) -> Piece:
    if isinstance(value, int):
        raise ValueError("a number where a piece belongs")
    found = dict(wire.fields(value))
    text, score, kind = found[_TEXT], found.get(_SCORE, memoryview(bytes(4))), found.get(_KIND, NORMAL)
    if isinstance(text, int) or isinstance(score, int) or not isinstance(kind, int):
        raise ValueError("a piece of another form")
    return Piece(bytes(text).decode("utf-8"), struct.unpack("<f", score)[0], kind)
