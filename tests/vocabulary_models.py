"""Small SentencePiece models for tests, and the same model with its pieces in another order."""

import random
from pathlib import Path

from spanloom.vocabularies import wire
from spanloom.vocabularies.train import Training, train

_TEXT = (
    "the quick brown fox jumps over a lazy dog while five boxing wizards and seven judges vow to pack my liquor jug "
    "under grey zinc roofs near the quiet harbour where old boats wait for better weather and nobody reads letters"
)
WORDS = _TEXT.split(" ")
_PARTS = "ba de fi go lu ma ne pi ro su ta ve wi zo kra ste plo tri gen hal mur sen tor vil"
_SYLLABLES = _PARTS.split(" ")
MADE_UP = [a + b + c for a in _SYLLABLES[:8] for b in _SYLLABLES[8:16] for c in _SYLLABLES[16:]]
"""Enough words for some hundred pieces."""


def sentences(count: int = 400, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices([*WORDS * 10, *MADE_UP], k=draw.randint(3, 12))) + "." for _ in range(count)]


def write_model(path: Path, texts: list[str] | None = None, **settings: object) -> str:
    training = Training(**{"size": 120, "sentinels": 10, "byte_fallback": False} | settings)
    path.write_bytes(train(texts or sentences(), training).model)
    return str(path)


def reordered(model: bytes, seed: int = 1) -> bytes:
    """The same model with all its normal pieces at other ids."""
    fields = list(wire.fields(memoryview(model)))
    pieces = [value for number, value in fields if number == 1]
    normal = pieces[3:]
    random.Random(seed).shuffle(normal)
    whole = bytearray()
    for number, value in [*((1, piece) for piece in (*pieces[:3], *normal)), *(f for f in fields if f[0] != 1)]:
        whole += wire.key(number, wire.BYTES) + wire.varint(len(value)) + bytes(value)
    return bytes(whole)
