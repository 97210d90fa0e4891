"""How many sequences can be written for one input at a time: of outputs, or of beams."""

import math

from spanloom.model.decoding import room_for
from spanloom.settings.generation import Generation
from spanloom.settings.model import Model

_FEWEST = 8  # sequences that are always tried: most end long before the longest that they may be
_PAIR_BYTES = 4 + 4  # float32 scores and weights of a sequence to one token of another, as a compiled step holds them
_LOGIT_BYTES = 3 * 4  # float32 logits, what is left of them, and what is drawn
_TYPE_BYTES = {"float32": 4, "bfloat16": 2}


def most_sequences(model: Model, available: int, max_length: int) -> int:
    """How many sequences of one input so many bytes can hope to hold at their longest.

    All of them meet the keys of all (see `spanloom.model.decoding_cache`), so it grows with the square.
    """
    room = room_for(max_length)
    square = _PAIR_BYTES * model.num_heads * room
    cached = 2 * _TYPE_BYTES[model.dtype] * model.num_decoder_layers * model.num_heads * model.d_kv * room
    half = (cached + _LOGIT_BYTES * model.vocab_size) // 2
    return max(
        _FEWEST, (math.isqrt(half**2 + square * available) - half) // square
    )  # square n^2 + 2 half n = available


def check_sequences(settings: Generation, model: Model, available: int | None) -> None:
    """Raise ValueError, naming the setting, for more sequences than memory takes. `available`: None is unknown."""
    if available is None:
        return
    most = most_sequences(model, available, settings.max_length)
    for name in ("beams", "outputs"):
        if getattr(settings, name) > most:
            raise ValueError(
                f"{name} is {getattr(settings, name):,}, and memory takes about {most:,} of max_length "
                f"{settings.max_length:,}; give fewer, or a smaller max_length"
            )
