"""The SentencePiece model file as bytes: read with errors that help, and lengthened by pieces.

The file is one protocol buffer message (sentencepiece_model.proto of https://github.com/google/sentencepiece).
Two properties of the wire format suffice, so no protobuf library is needed: a message is a list of fields, and a
field that repeats (the pieces) goes on where its later entries stand, even at the end of the file.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from spanloom.vocabularies.vocabulary import VocabularyError

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto
_TEXT, _SCORE, _KIND = 1, 2, 3  # fields of one piece
_USER_DEFINED = 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


def read_model(path: str | Path) -> bytes:
    """The bytes of a SentencePiece model file. Raises VocabularyError, naming the fix, for anything else."""
    file = Path(path)
    if file.is_dir():
        models = sorted(entry.name for entry in file.glob("*.model"))
        found = f"did you mean {file / models[0]}?" if models else "name the .model file itself"
        raise VocabularyError(f"{file} is a directory, not a SentencePiece model: {found}")
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise VocabularyError(f"{file} does not exist: give the path of a SentencePiece .model file") from None
    except OSError as error:
        raise VocabularyError(
            f"{file} cannot be read ({error.strerror}): check the path and its permissions"
        ) from error
    reason = _why_not(data, file)
    if reason:
        raise VocabularyError(f"{file} {reason}")
    return data


def append_user_defined(model: bytes, pieces: Sequence[str]) -> bytes:
    """The model with user-defined pieces of score 0 after its own, as SeqIO appends T5's extra ids."""
    added = bytearray(model)
    for piece in pieces:
        text = piece.encode("utf-8")
        message = _key(_TEXT, _BYTES) + _varint(len(text)) + text
        message += _key(_SCORE, _FIXED32) + struct.pack("<f", 0.0)
        message += _key(_KIND, _VARINT) + _varint(_USER_DEFINED)
        added += _key(_PIECES, _BYTES) + _varint(len(message)) + message
    return bytes(added)


def _why_not(data: bytes, file: Path) -> str:
    """Why the bytes are no whole model; empty if they are one."""
    if not data:
        return "is empty: fetch the .model file again"
    start = data[:200].lstrip()
    if start.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the model itself: run `git lfs pull`"
    if start.startswith((b"{", b"[")):
        return (
            "is JSON (a Hugging Face tokenizer.json?), not a SentencePiece model: use the spiece.model or .model file "
            "that belongs to it"
        )
    if start.startswith((b"<pad>\t", b"<unk>\t", b"<s>\t", b"</s>\t")):
        return f"is the list of pieces (.vocab), not the model: use {file.with_suffix('.model').name} beside it"
    fields = set()
    try:
        for field in _top_level_fields(data):
            fields.add(field)
    except (IndexError, ValueError):
        if _PIECES in fields:
            return f"is damaged or cut off ({len(data):,} bytes): fetch the .model file again"
        return "is not a SentencePiece model: give the .model file that `spm_train` wrote"
    if _PIECES not in fields:
        return "is not a SentencePiece model (it has no pieces): give the .model file that `spm_train` wrote"
    if _TRAINER not in fields or _NORMALIZER not in fields:
        return f"is cut off ({len(data):,} bytes, its settings are missing): fetch the .model file again"
    return ""


def _top_level_fields(data: bytes) -> Iterator[int]:
    """Numbers of the fields of a message. IndexError or ValueError where it ends too soon or is no message."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        field, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            _, position = _read_varint(data, position)
        elif wire_type == _BYTES:
            length, position = _read_varint(data, position)
            position += length
        elif wire_type == _FIXED64:
            position += 8
        elif wire_type == _FIXED32:
            position += 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if field == 0 or position > len(data):
            raise ValueError("no field, or one beyond the end")
        yield field


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)
