"""Which ids of an old vocabulary stand for each id of a new one: what a model that moves between them keeps.

Ids are matched by what they stand for: padding, end of sequence and unknown by role, sentinels by their order of use,
single bytes by their value, all others by their text. What the old vocabulary lacks is made of what it has instead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import sentencepiece

from spanloom.vocabularies.bytes import ByteVocabulary
from spanloom.vocabularies.pieces import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED, pieces_of, without_edges
from spanloom.vocabularies.vocabulary import Vocabulary, VocabularyError

NewRows = Literal["parts", "bytes", "mean"]
_WORD_START = "\u2581"
_FIRST_BYTE = 3  # of ByT5


@dataclass(frozen=True)
class Correspondence:
    """The old ids behind each new one."""

    old_ids: tuple[tuple[int, ...], ...]
    """By new id: the one old id that means the same, several whose mean stands in for it, or none: the mean of all."""
    copied: tuple[bool, ...]
    """By new id: whether the old id means the same."""
    text_ids: tuple[int, ...]
    """Old ids that stand for text, over which the mean of all is taken."""
    sentinels: tuple[int, ...]
    """New sentinels that the old vocabulary lacks."""
    old_size: int
    """Ids of the old vocabulary; rows of its embedding from there on stand for nothing."""

    @property
    def from_parts(self) -> int:
        """How many new ids stand for several old ones."""
        return sum(not same and bool(ids) for ids, same in zip(self.old_ids, self.copied, strict=True))

    @property
    def from_mean(self) -> int:
        """How many new ids have nothing in the old vocabulary."""
        return sum(not ids for ids in self.old_ids)

    def counts(self) -> dict[str, int]:
        """The table, as JSON data."""
        return {
            "ids": len(self.old_ids),
            "copied": sum(self.copied),
            "from_parts": self.from_parts,
            "from_mean": self.from_mean,
            "new_sentinels": len(self.sentinels),
        }

    def describe(self) -> str:
        """The table in words."""
        return described(self.counts())


def described(counts: Mapping[str, int]) -> str:
    """The table of `Correspondence.counts` in words."""
    sentinels = f"; {counts['new_sentinels']:,} of them sentinels" if counts["new_sentinels"] else ""
    return (
        f"{counts['ids']:,} rows of the new vocabulary: {counts['copied']:,} copied by piece, "
        f"{counts['from_parts']:,} the mean of their parts, {counts['from_mean']:,} the mean of all{sentinels}"
    )


def correspond(old: Vocabulary, new: Vocabulary, new_rows: NewRows = "parts") -> Correspondence:
    """The old ids behind each new one.

    `new_rows` says what stands for a piece that the old vocabulary lacks: parts (the pieces that it splits the text
    into), bytes (its pieces of single bytes) or mean (the mean of all that stands for text). New sentinels are the mean
    of the old ones. Raises VocabularyError for bytes where the old vocabulary has none.
    """
    theirs, ours = _contents(old), _contents(new)
    if new_rows == "bytes" and len(theirs.bytes) < 256:
        raise VocabularyError("follow.new_rows is bytes, and the old vocabulary has no pieces of bytes: give parts")
    same = {new.pad_id: old.pad_id, new.eos_id: old.eos_id, new.unk_id: old.unk_id}
    same |= {ours.bytes[value]: theirs.bytes[value] for value in ours.bytes.keys() & theirs.bytes.keys()}
    same |= {ours.texts[text]: theirs.texts[text] for text in ours.texts.keys() & theirs.texts.keys()}
    same |= dict(zip(new.sentinels, old.sentinels, strict=False))
    absent = new.sentinels[len(old.sentinels) :]
    texts = _spoken(ours) if new_rows != "mean" else {}
    parts = {
        token: theirs.bytes_of(text) if new_rows == "bytes" else theirs.split(text) for token, text in texts.items()
    }
    instead = {token: tuple(part for part in ids if part != old.unk_id) for token, ids in parts.items()}
    instead |= dict.fromkeys(absent, old.sentinels)
    tokens = range(max(new.size, new.highest_id + 1))
    return Correspondence(
        tuple((same[token],) if token in same else instead.get(token, ()) for token in tokens),
        tuple(token in same for token in tokens),
        theirs.text_ids,
        absent,
        old.size,
    )


@dataclass(frozen=True)
class _Contents:
    """What the ids of a vocabulary stand for, but for its special ones."""

    texts: dict[str, int]
    """Pieces, with U+2581 for a space, and control symbols by name."""
    bytes: dict[int, int]
    """Values of bytes."""
    text_ids: tuple[int, ...]
    """Ids of stretches of text."""
    split: Callable[[str], list[int]]
    """The ids that a piece's text is split into, whatever stands before it."""

    def bytes_of(self, text: str) -> list[int]:
        """The ids of the bytes of a text."""
        return [self.bytes[value] for value in text.encode("utf-8")]


def _contents(vocabulary: Vocabulary) -> _Contents:
    if isinstance(vocabulary, ByteVocabulary):
        values = {value: value + _FIRST_BYTE for value in range(256)}
        return _Contents({}, values, tuple(values.values()), lambda text: vocabulary.encode(text).tolist())
    (model,) = vocabulary.files().values()
    taken = {vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id, *vocabulary.sentinels}
    pieces = [(token, piece) for token, piece in enumerate(pieces_of(model)) if token not in taken]
    texts = {piece.text: token for token, piece in pieces if piece.kind in (NORMAL, USER_DEFINED, CONTROL, UNUSED)}
    values = {int(piece.text[3:-1], 16): token for token, piece in pieces if piece.kind == BYTE}  # <0xNN>
    text_ids = tuple(token for token, piece in pieces if piece.kind in (NORMAL, USER_DEFINED))
    # a piece is a stretch inside a text: no space is put before it, and its own is kept
    inside = sentencepiece.SentencePieceProcessor(model_proto=without_edges(model))
    return _Contents(texts, values, text_ids or tuple(values.values()), inside.encode)


def _spoken(contents: _Contents) -> dict[int, str]:
    """The text of each id that has one of its own; a byte alone is a character only in ASCII."""
    ascii_bytes = {token: chr(value) for value, token in contents.bytes.items() if value < 128}
    stretches = set(contents.text_ids)
    pieces = {token: text for text, token in contents.texts.items() if token in stretches}
    return ascii_bytes | {token: text.replace(_WORD_START, " ") for token, text in pieces.items()}
