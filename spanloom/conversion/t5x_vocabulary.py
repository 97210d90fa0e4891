"""Which vocabulary a T5X checkpoint was trained with. The checkpoint does not say; what is beside it may."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np

from spanloom.conversion import hf_vocabulary, sentinel_rows, spiece
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_vocabulary import MARK_NAME, Found
from spanloom.conversion.safetensors_file import read_json
from spanloom.conversion.sentinel_rows import Rows
from spanloom.conversion.stored import Stored
from spanloom.conversion.t5x_gin import GinFacts
from spanloom.settings.serialize import SettingsError, from_json
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary
from spanloom.vocabularies.build import build

_BYTE_ROWS = 384
_EMBEDDING, _HEAD = "token_embedder/embedding", "decoder/logits_dense/kernel"


def find_vocabulary(path: Path, weights: dict[str, Stored], gin: GinFacts | None) -> Found | None:
    """The vocabulary of the checkpoint `path`; None where nothing shows it.

    What an export of ours says beside it; else bytes, if the embedding has ByT5's number of rows, with the sentinels
    that its rows show; else the SentencePiece model that the gin file names or the only one that lies in the checkpoint
    or in the folder around it.
    """
    rows = weights[_EMBEDDING].shape[0]
    if mark := mark_of(path):
        return Found(recorded(mark, rows))
    if rows == _BYTE_ROWS:
        return _bytes(weights)
    for name in gin.vocabulary_files if gin else ():
        if Path(name).is_file():
            return Found(_sentencepiece(Path(name), rows), f"vocabulary {name}, as {gin.path.name} says")  # type: ignore[union-attr]
    for folder in _folders(path):
        models = sorted(folder.glob("*.model"))
        if len(models) == 1:
            return Found(_sentencepiece(models[0], rows), f"vocabulary {models[0]}, the only one beside the checkpoint")
    return None


def mark_of(path: Path) -> Path | None:
    """What an export of ours said about itself beside the checkpoint `path`; None where it is none."""
    return next((mark for folder in _folders(path) if (mark := folder / MARK_NAME).is_file()), None)


def _folders(path: Path) -> tuple[Path, ...]:
    return (path, path.parent) if path.is_dir() else (path.parent,)


def recorded(mark: Path, rows: int) -> Vocabulary:
    """The vocabulary that an export of ours names, its SentencePiece model beside it. ConversionError where damaged."""
    try:
        vocabulary: Vocabulary = from_json(read_json(mark).get("vocabulary"), Vocabulary)
    except SettingsError as error:
        raise ConversionError(mark, f"names no vocabulary ({error}); remove the file to have it found") from error
    if isinstance(vocabulary, SentencePiece):
        file = mark.with_name(Path(vocabulary.path).name)
        if not file.is_file():
            raise ConversionError(file, f"is missing, the vocabulary that {mark.name} names: copy it, too")
        hf_vocabulary.check_recorded(mark, file)
        vocabulary = replace(vocabulary, path=str(file))
    if (size := build(vocabulary).size) > rows:
        raise ConversionError(mark, f"names a vocabulary of {size:,} ids, but the embedding has only {rows:,} rows")
    return vocabulary


def named(vocabulary: str, path: Path, weights: dict[str, Stored]) -> Found:
    """The vocabulary that a user names: "bytes", or a SentencePiece file. ConversionError where it does not fit."""
    rows = weights[_EMBEDDING].shape[0]
    if vocabulary == "bytes":
        if rows < Bytes().extra_ids + 259:
            raise ConversionError(path, f"has {rows} rows of embedding, and bytes need 384")
        return _bytes(weights)
    file = Path(vocabulary).expanduser()
    if not file.is_file():
        raise ConversionError(file, 'is no file: name a SentencePiece model, or "bytes"')
    if mark := mark_of(path):
        hf_vocabulary.check_recorded(mark, file)
    return Found(_sentencepiece(file, rows))


def missing(path: Path, rows: int) -> ConversionError:
    """The error where a vocabulary is needed and none is known."""
    return ConversionError(
        path,
        f"holds a model of {rows:,} ids, but T5X's checkpoints hold no vocabulary, and none lies beside it: give "
        "--vocabulary FILE.model (the SentencePiece model it was trained with), or --vocabulary bytes",
    )


def _bytes(weights: dict[str, Stored]) -> Found:
    matrices = []
    for name in (_EMBEDDING, _HEAD):
        if name in weights:
            array = weights[name].read().astype(np.float32)
            matrix_VxE = array if name == _EMBEDDING else array.T
            matrices.append(Rows(matrix_VxE.shape, functools.partial(_rows, matrix_VxE)))
    scored = sentinel_rows.scores(matrices)
    if scored is None:
        return Found(Bytes(), "the weights do not tell where the sentinels are; taken as 259 upwards")
    return Found(*sentinel_rows.decide(scored, Bytes().extra_ids))


def _rows(matrix: np.ndarray, first: int, last: int) -> np.ndarray:
    return matrix[first:last]


def _sentencepiece(file: Path, rows: int) -> Vocabulary:
    pieces = len(spiece.parse(file.read_bytes(), file).pieces)
    # T5X's vocabularies have 100 extra ids, umT5's 300; rows are filled up to a multiple of 128
    filled = {extra_ids: -(-(pieces + extra_ids) // 128) * 128 for extra_ids in (100, 300)}
    extra_ids = 300 if filled[300] == rows != filled[100] else 100
    vocabulary = hf_vocabulary.resolve(SentencePiece(str(file), extra_ids=extra_ids))
    if (size := build(vocabulary).size) > rows:
        raise ConversionError(file, f"has {size:,} ids with its sentinels, but the embedding only {rows:,} rows")
    return vocabulary
