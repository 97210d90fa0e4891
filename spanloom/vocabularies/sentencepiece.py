"""SentencePiece models: T5's (sentinels appended), mT5's (sentinels among its pieces) and custom ones, checked.

How a model spells its sentinels is looked up in the model and never guessed; each way a file can be wrong has an
error that names the fix.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sentencepiece

from spanloom.settings.vocabulary import MOST_EXTRA_IDS, SentencePiece
from spanloom.vocabularies.model_file import append_user_defined, read_model
from spanloom.vocabularies.vocabulary import Ids, Int32Array, Vocabulary, VocabularyError, flat

MODEL_FILE = "spiece.model"
"""Name of the model file in checkpoints and in Hugging Face folders."""

_WORD_START = "\u2581"
_SENTINEL = re.compile(_WORD_START + r"?<extra_id_(\d+)>")
_HINT = "train it with --pad_id=0 --eos_id=1 --unk_id=2 --bos_id=-1, as T5's models were"


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece model with T5's special ids and its sentinels in order of use.

    In text, `<extra_id_N>` is one id at the start of a word only, as in SeqIO; elsewhere it is ordinary characters.
    """

    def __init__(self, settings: SentencePiece) -> None:
        """Raises VocabularyError for a file that cannot be used and for sentinels that are not as set."""
        self.settings = settings
        self._model = read_model(settings.path)
        processor = _load(self._model, settings.path)
        own = _own_sentinels(processor, settings.path)
        if _appends(settings, own):
            names = [f"{_WORD_START}<extra_id_{number}>" for number in reversed(range(settings.extra_ids))]
            processor = _load(append_user_defined(self._model, names), settings.path)
            own = tuple(reversed(range(processor.get_piece_size() - settings.extra_ids, processor.get_piece_size())))
        self.sentinels = own
        self.size = processor.get_piece_size()
        self.eos_id, self.unk_id = _special_ids(processor, settings.path)
        self._processor = processor

    def encode(self, text: str) -> Int32Array:
        """The ids of the best segmentation."""
        return np.array(self._processor.encode(text), dtype=np.int32)

    def encode_batch(self, texts: Sequence[str]) -> list[Int32Array]:
        """As `encode`, in one call and on one thread (processes share the work better)."""
        rows = self._processor.encode(list(texts), num_threads=1) if len(texts) else []
        return [np.array(row, dtype=np.int32) for row in rows]

    def encode_utf8(
        self, texts: Sequence[bytes], dtype: npt.DTypeLike, end: int | None = None
    ) -> tuple[npt.NDArray, npt.NDArray[np.int64]]:
        """As `encode_batch`, without making text of the bytes, which the library would turn back."""
        return flat(self._processor.encode(list(texts), num_threads=1) if len(texts) else [], dtype, end)

    def decode(self, ids: Ids) -> str:
        """Text up to the first end of sequence; ids out of range are unknown, which reads as ' \u2047 ' (SeqIO)."""
        known = [token if 0 <= token < self.size else self.unk_id for token in self._until_eos(ids)]
        return str(self._processor.decode(known))

    def decode_with_sentinels(self, ids: Ids) -> str:
        """As `decode`, in which user-defined pieces read as <extra_id_k>; so do control symbols here."""
        if not any(self._processor.is_control(token) for token in self.sentinels[:1]):
            return self.decode(ids)
        numbers = {token: number for number, token in enumerate(self.sentinels)}
        shown = []
        for sentinel, group in groupby(self._until_eos(ids), key=numbers.get):
            tokens = list(group)
            shown.extend([self.decode(tokens)] if sentinel is None else [f"<extra_id_{sentinel}>"] * len(tokens))
        return " ".join(shown)

    def spell(self, ids: Ids) -> str:
        """Pieces as they are, a space for each word-start mark; pieces of single bytes as UTF-8, or as \\xNN."""
        shown = []
        for is_byte, group in groupby(map(int, ids), key=self._is_byte):
            tokens = list(group)
            if is_byte:
                content = bytes(int(piece[3:-1], 16) for piece in self._processor.id_to_piece(tokens))  # <0xNN>
                shown.append(content.decode("utf-8", errors="backslashreplace"))
            else:
                shown += [self._spelled(token) for token in tokens]
        return "".join(shown)

    def fingerprint(self) -> str:
        """SHA-256 of the model file and the sentinels."""
        model = hashlib.sha256(self._model).hexdigest()
        return hashlib.sha256(f"sentencepiece {model} {self.size} {self.sentinels}".encode()).hexdigest()

    def files(self) -> dict[str, bytes]:
        """The model file as it was given, without appended sentinels."""
        return {MODEL_FILE: self._model}

    def _is_byte(self, token: int) -> bool:
        return 0 <= token < self.size and bool(self._processor.is_byte(token))

    def _spelled(self, token: int) -> str:
        is_mark = not 0 <= token < self.size or token in self.sentinels or token == self.unk_id
        if is_mark or self._processor.is_control(token):
            return self._mark(token)
        return str(self._processor.id_to_piece(token)).replace(_WORD_START, " ")


def check_model(model: bytes, name: str) -> int:
    """The number of its ids. Raises VocabularyError, with the name, for a model that no vocabulary can be."""
    processor = _load(model, name)
    _special_ids(processor, name)
    _own_sentinels(processor, name)
    return int(processor.get_piece_size())


def _load(model: bytes, path: str | Path) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.load_from_serialized_proto(model)
    except RuntimeError as error:
        raise VocabularyError(
            f"{path} is no SentencePiece model or is damaged ({error}): fetch the .model file again"
        ) from error
    _refuse_broken_pieces(processor, path)
    return processor


def _refuse_broken_pieces(processor: sentencepiece.SentencePieceProcessor, path: str | Path) -> None:
    """Raise VocabularyError for pieces that are no text: the library reads them, and fails when it says them."""
    try:
        processor.id_to_piece(list(range(processor.get_piece_size())))
    except UnicodeDecodeError as error:
        raise VocabularyError(
            f"{path} is damaged (a piece is no UTF-8: {error.object!r}): fetch the .model file again"
        ) from None


def _special_ids(processor: sentencepiece.SentencePieceProcessor, path: str) -> tuple[int, int]:
    """(eos, unk). Padding must be id 0: batches are padded with it and its positions carry no loss."""
    pad, eos, unk = processor.pad_id(), processor.eos_id(), processor.unk_id()
    if pad != 0:
        held = "has no padding piece" if pad < 0 else f"has padding at id {pad}"
        raise VocabularyError(
            f"{path} {held}, but id 0 must be padding (here it is {processor.id_to_piece(0)!r}): {_HINT}"
        )
    if eos < 0:
        raise VocabularyError(f"{path} has no end-of-sequence piece: {_HINT}")
    return eos, unk


def _own_sentinels(processor: sentencepiece.SentencePieceProcessor, path: str) -> tuple[int, ...]:
    """Ids of the model's own <extra_id_N> pieces, in order of N."""
    found = list(_sentinel_pieces(processor))
    numbers = [number for number, _ in found]
    doubled = {number for number in numbers if numbers.count(number) > 1}
    if doubled:
        raise VocabularyError(
            f"{path} has two pieces for <extra_id_{min(doubled)}> (one with and one without the word-start mark), so "
            "which one masks a span is unclear: retrain it with one kind"
        )
    missing = set(range(len(found))) - set(numbers)
    if missing:
        raise VocabularyError(
            f"{path} has {len(found)} <extra_id_N> pieces, but none for N = {min(missing)}: number them from 0 without "
            "gaps"
        )
    _check_kind(processor, found, path)
    return tuple(token for _, token in sorted(found))


def _check_kind(processor: sentencepiece.SentencePieceProcessor, found: list[tuple[int, int]], path: str) -> None:
    """Raise VocabularyError for sentinels that are ordinary pieces, made up by training and not set apart."""
    text = " ".join(["x", *(f"<extra_id_{number}>" for number, _ in found)])
    apart = {*processor.encode(text), *(token for _, token in found if processor.is_control(token))}
    ordinary = [number for number, token in found if token not in apart]
    if ordinary:
        raise VocabularyError(
            f"{path} has <extra_id_{ordinary[0]}> as an ordinary piece, not set apart from text: retrain it with "
            "--user_defined_symbols=<extra_id_0>,<extra_id_1>,..."
        )


def _sentinel_pieces(processor: sentencepiece.SentencePieceProcessor) -> Iterator[tuple[int, int]]:
    """(N, id) of each piece that is <extra_id_N>, with or without the word-start mark."""
    pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
    for token, piece in enumerate(pieces):
        match = _SENTINEL.fullmatch(piece)
        if match:
            yield int(match[1]), token


def _appends(settings: SentencePiece, own: tuple[int, ...]) -> bool:
    """Whether sentinels are appended; else the model's own are used."""
    if not 0 <= settings.extra_ids <= MOST_EXTRA_IDS:
        raise VocabularyError(f"extra_ids={settings.extra_ids}: must be from 0 to {MOST_EXTRA_IDS:,}; T5 has 100")
    if settings.sentinels == "pieces" and not own:
        raise VocabularyError(
            f"{settings.path} has no <extra_id_N> pieces: set sentinels=appended to add {settings.extra_ids} after its "
            "pieces, or retrain it with --user_defined_symbols=<extra_id_0>,<extra_id_1>,..."
        )
    if settings.sentinels == "appended" and own:
        raise VocabularyError(
            f"{settings.path} has {len(own)} <extra_id_N> pieces of its own, so no more can be appended: set "
            "sentinels=pieces"
        )
    if settings.sentinels not in ("auto", "appended", "pieces"):
        raise VocabularyError(f"sentinels={settings.sentinels!r} is unknown: auto, appended or pieces")
    return not own
