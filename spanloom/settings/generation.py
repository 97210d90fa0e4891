"""How sequences are written: greedily, by beam search or by drawing tokens."""

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

Search = Literal["t5x", "transformers"]
_LARGEST = 1e30  # float32 holds it


@dataclass(frozen=True)
class Generation:
    """Settings of one request. The defaults are greedy: the likeliest token each time."""

    max_length: int = 128
    """Most tokens written, end of sequence included."""
    outputs: int = 1
    """Sequences that come back for each input, best first: of the beams, or so many drawn ones."""
    beams: int = 1
    """Beams of beam search; 1: none."""
    alpha: float = 0.6
    """Length penalty of beam search: 0 is none, and more favours longer sequences."""
    search: Search = "t5x"
    """Whose beam search: t5x divides log-probabilities by ((5 + length) / 6)^alpha, transformers by length^alpha (its
    length_penalty, 1.0 there unless set); they also differ in which sequences count as finished."""
    temperature: float = 0.0
    """Tokens are drawn, from logits divided by this; 0: the likeliest."""
    top_k: int = 0
    """Draw from the k likeliest tokens alone; 0: from all."""
    top_p: float = 1.0
    """Draw from the likeliest tokens alone that together have this probability."""
    min_p: float = 0.0
    """Draw from tokens alone that are at least this fraction as likely as the likeliest."""
    seed: int = 0
    """Of what is drawn. The same request with the same seed gives the same, whatever else is written beside it."""
    no_repeat_ngram: int = 0
    """No sequence of so many tokens comes twice; 0: it may."""


def check_generation(settings: Generation) -> None:
    """Raise ValueError, naming the setting and what it may be, where the settings make no sense."""
    for one in fields(settings):
        value = getattr(settings, one.name)
        if wanted := _misfit(value, one.default):
            raise ValueError(f"{one.name} is {value!r:.40}; it must be {wanted}")
    for name, least in (("max_length", 1), ("outputs", 1), ("beams", 1), ("top_k", 0), ("no_repeat_ngram", 0)):
        if not least <= getattr(settings, name) < 2**31:
            raise ValueError(f"{name} is {getattr(settings, name)}; it must be at least {least}, and below 2^31")
    for name, good, wanted in (
        ("alpha", 0 <= settings.alpha <= _LARGEST, f"at least 0, else search would end too early, at most {_LARGEST}"),
        ("temperature", 0 <= settings.temperature <= _LARGEST, f"at least 0, and at most {_LARGEST}"),
        ("top_p", 0 < settings.top_p <= 1, "above 0, and at most 1"),
        ("min_p", 0 <= settings.min_p <= 1, "at least 0, and at most 1"),
        ("seed", 0 <= settings.seed < 2**32, "at least 0, and below 2^32"),
    ):
        if not good:
            raise ValueError(f"{name} is {getattr(settings, name)}; it must be {wanted}")
    if settings.beams > 1 and settings.temperature > 0:
        raise ValueError(
            f"beams is {settings.beams} and temperature {settings.temperature}: beam search draws nothing, so give "
            "one of the two"
        )
    if settings.outputs > 1 and settings.temperature == 0 and settings.outputs > settings.beams:
        raise ValueError(
            f"outputs is {settings.outputs}, but there are {settings.beams} beams: give as many beams, or "
            "draw them, with a temperature above 0"
        )
    filters = [name for name, off in (("top_k", 0), ("top_p", 1), ("min_p", 0)) if getattr(settings, name) != off]
    if filters and settings.temperature == 0:
        raise ValueError(
            f"{filters[0]} is set, but temperature is 0, so nothing is drawn: give a temperature, such as 1"
        )


def _misfit(value: Any, default: Any) -> str:
    """What a value must be, if it is not of its default's kind: lines of JSON may hold anything."""
    if isinstance(default, str):
        return "" if value in get_args(Search) else f"one of {', '.join(get_args(Search))}"
    if isinstance(value, bool) or not isinstance(value, Integral if isinstance(default, int) else Real):
        return "a whole number" if isinstance(default, int) else "a number"
    return ""
