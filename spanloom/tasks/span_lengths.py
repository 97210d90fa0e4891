"""How many tokens and spans are masked, and how long inputs and targets become: one integer function for all of it.

T5's code computes these numbers twice, in float64 for the lengths and in float32 for the mask, and where the two
disagree the ends of targets are cut off. Here a density is the decimal number that its shortest representation
shows (0.15 is 15/100), products are exact, and halves are rounded to even. That equals T5's numbers wherever its
two computations agree.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache


@dataclass(frozen=True)
class SpanLengths:
    """Lengths of span corruption, in tokens."""

    raw_length: int
    """Tokens of text in one example."""
    inputs_length: int
    """Width of the inputs: sentinels and end of sequence included; rarely a row leaves the last position empty."""
    targets_length: int
    """Width of the targets: sentinels and end of sequence included."""
    num_noise_tokens: int
    """Tokens masked in each example."""
    num_spans: int
    """Masked spans in each example: so many sentinels are used."""


def noise_counts(raw_length: int, noise_density: float, mean_span_length: float) -> tuple[int, int]:
    """(masked tokens, masked spans) of an example of `raw_length` tokens.

    At least one token and one span is masked and at least one token stays, as in T5's mask; in fewer than 2 tokens
    nothing is masked. The short end of a text may have too few tokens for spans apart: then there are as many spans
    as tokens that stay, where T5's code fails. Raises ValueError for settings that make no sense.
    """
    density, mean = _checked_settings(noise_density, mean_span_length)
    if raw_length < 2:
        return 0, 0
    tokens, spans = _counts(raw_length, density, mean)
    return tokens, min(spans, raw_length - tokens)


@lru_cache(maxsize=1024)
def span_lengths(inputs_length: int, noise_density: float, mean_span_length: float) -> SpanLengths:
    """The most raw tokens whose inputs fit into `inputs_length`, and the lengths that follow from it.

    Inputs are raw tokens - masked tokens + spans + 1 and targets masked tokens + spans + 1 (the 1 is the end of
    sequence). At density 0.5 targets longer than inputs give up one raw token, as in T5's
    `random_spans_helper` (Raffel et al. 2020).
    Raises ValueError where no mask exists: unusable numbers, too short inputs, more spans than tokens that stay.
    """
    density, mean = _checked_settings(noise_density, mean_span_length)
    if inputs_length < 3:
        raise ValueError(
            f"inputs_length={inputs_length} has no room for a token, a sentinel and the end of sequence: use at least 3"
        )
    # Rounding and the least numbers of tokens and spans add less than 6 to what the shares give.
    surely_fits = (inputs_length - 6) / (1 - density + density / mean)
    raw_length = max(inputs_length - 1, math.floor(surely_fits))
    while _both_lengths(raw_length + 1, density, mean)[0] <= inputs_length:
        raw_length += 1
    inputs, targets_length = _both_lengths(raw_length, density, mean)
    if noise_density == 0.5 and targets_length > inputs:
        raw_length -= 1
        targets_length -= 1
    tokens, spans = _counts(raw_length, density, mean)
    if spans > raw_length - tokens:
        raise ValueError(
            f"span corruption with noise_density={noise_density} and mean_span_length={mean_span_length} masks "
            f"{tokens} of {raw_length} tokens in {spans} spans, but only {raw_length - tokens} tokens stay to keep "
            "the spans apart: lower the density or use longer spans"
        )
    return SpanLengths(raw_length, inputs_length, targets_length, tokens, spans)


def check_sentinels(lengths: SpanLengths, available: int, more: str = "") -> None:
    """Raise ValueError where examples of these lengths need more sentinels than there are; `more` says what helps."""
    if lengths.num_spans <= available:
        return
    more = more or f"a vocabulary with more sentinels (--task.vocabulary.extra-ids {lengths.num_spans})"
    if not available:
        raise ValueError(
            "span corruption puts a sentinel in the place of each masked span, and the vocabulary has 0 sentinels, "
            f"where inputs of {lengths.inputs_length} tokens need {lengths.num_spans}: what helps is {more}"
        )
    mean = lengths.num_noise_tokens / lengths.num_spans
    least_mean = -(-lengths.num_noise_tokens // available)
    raise ValueError(
        f"inputs of {lengths.inputs_length} tokens are masked in {lengths.num_spans} spans (mean length {mean:.3g}), "
        f"but the vocabulary has {available} sentinels: use a mean_span_length of about {least_mean}, an inputs_length "
        f"of about {lengths.inputs_length * available // lengths.num_spans}, or {more}"
    )


def _checked_settings(noise_density: float, mean_span_length: float) -> tuple[Fraction, Fraction]:
    if not 0 < noise_density < 1:
        raise ValueError(f"noise_density={noise_density} is no share between 0 and 1: T5 used 0.15")
    if not 1 <= mean_span_length < float("inf"):
        raise ValueError(f"mean_span_length={mean_span_length} is below one token: T5 used 3, ByT5 20")
    return _decimal(noise_density), _decimal(mean_span_length)


@lru_cache(maxsize=1024)
def _decimal(number: float) -> Fraction:
    """The number as its shortest decimal representation shows it: 0.15 is 3/20, not 5404319552844595/2**55."""
    return Fraction(repr(float(number)))


def _counts(raw_length: int, density: Fraction, mean: Fraction) -> tuple[int, int]:
    tokens = _round_half_even(raw_length * density.numerator, density.denominator)
    tokens = min(max(tokens, 1), raw_length - 1)
    spans = _round_half_even(tokens * mean.denominator, mean.numerator)
    return tokens, max(spans, 1)


def _both_lengths(raw_length: int, density: Fraction, mean: Fraction) -> tuple[int, int]:
    tokens, spans = _counts(raw_length, density, mean)
    return raw_length - tokens + spans + 1, tokens + spans + 1


def _round_half_even(numerator: int, denominator: int) -> int:
    quotient, remainder = divmod(numerator, denominator)
    up = 2 * remainder > denominator or (2 * remainder == denominator and quotient % 2 == 1)
    return quotient + up
