"""Vocabularies as settings. `spanloom.vocabularies.build` turns them into text <-> ids."""

from dataclasses import dataclass
from typing import Literal

MOST_EXTRA_IDS = 1_000_000
"""More are a mistake: a list of them alone would take the memory."""


@dataclass(frozen=True)
class Bytes:
    """UTF-8 bytes as ByT5 has them: 0 pad, 1 end of sequence, 2 unknown, byte b is id b + 3."""

    sentinels: Literal["huggingface", "google", "seqio"] = "huggingface"
    """Ids of the sentinels in order of use: huggingface 259 upwards; google 258 downwards, as the released
    ByT5 were trained (11 of these can never be text); seqio from the last extra id downwards."""
    extra_ids: int = 125
    """Ids after the bytes, kept for sentinels (google uses none)."""
    google_sentinels: int = 11
    """google: how many sentinels there are. More than 11 must be accepted here, since text can hold them: the 12th
    begins private-use characters, the 16th emoji and rare scripts."""


@dataclass(frozen=True)
class SentencePiece:
    """A SentencePiece model file."""

    path: str
    """The .model file."""
    sentinels: Literal["auto", "appended", "pieces"] = "auto"
    """appended: extra ids follow the model's pieces, last one first (T5); pieces: the model holds
    <extra_id_N> pieces of its own (mT5); auto looks and refuses to guess."""
    extra_ids: int = 100
    """How many sentinels are appended."""


Vocabulary = Bytes | SentencePiece
