"""The SentencePiece model file as bytes: read with errors that help, and lengthened by pieces.

The file is one protocol buffer message (sentencepiece_model.proto of https://github.com/google/sentencepiece).
"""

import struct
from collections.abc import Sequence
from pathlib import Path

from spanloom.vocabularies import wire
from spanloom.vocabularies.vocabulary import VocabularyError

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto
_TEXT, _SCORE, _KIND = 1, 2, 3  # fields of one piece
_USER_DEFINED = 4


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
        message = wire.key(_TEXT, wire.BYTES) + wire.varint(len(text)) + text
        message += wire.key(_SCORE, wire.FIXED32) + struct.pack("<f", 0.0)
        message += wire.key(_KIND, wire.VARINT) + wire.varint(_USER_DEFINED)
        added += wire.key(_PIECES, wire.BYTES) + wire.varint(len(message)) + message
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
        for field, _ in wire.fields(memoryview(data)):
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
