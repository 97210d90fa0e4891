"""Objectives as settings: what makes inputs and targets of text, or of pairs."""

from dataclasses import dataclass
from typing import Literal

Separator = Literal["eos", "none"]


@dataclass(frozen=True, kw_only=True)
class TokenStream:
    """Plain text as a stream of tokens that is cut into examples: what all objectives on text share."""

    separator: Separator | None = None
    """What ends a document in the token stream; unset: eos where documents share examples, and for full LM; or none."""
    concat_documents: int = 0
    """SeqIO's way of joining: this many documents, then a short segment (128 there); 0: one long stream."""
    merge: bool = True
    """Whether documents share examples; false: each is one by itself, padded, and a long one is cut."""


@dataclass(frozen=True)
class Denoising(TokenStream):
    """Text of which the encoder reads a part, and the decoder writes what is missing."""

    inputs_length: int = 512
    """Encoder length in tokens, all marks and the end of sequence included; the target length follows from it."""


@dataclass(frozen=True)
class SpanCorruption(Denoising):
    """T5's pretraining objective: spans of a token stream are masked and predicted (Raffel et al. 2020)."""

    noise_density: float = 0.15
    """Share of the tokens that is masked."""
    mean_span_length: float = 3.0
    """Mean length of a masked span in tokens (20 for ByT5)."""
    random_roll: bool = False
    """Whether masks are turned by a random number of tokens, so that texts begin and end masked or not, by chance;
    else the first token always stays and the last one is always masked, as in T5."""


@dataclass(frozen=True)
class IidDenoising(Denoising):
    """Each token is masked by itself; neighbours that are masked share a sentinel (the baseline of Raffel et al. 2020).

    Lengths hold four standard deviations above the mean; an example that draws more keeps its last tokens unmasked.
    """

    noise_density: float = 0.15
    """Probability that a token is masked."""


@dataclass(frozen=True)
class PrefixLM(Denoising):
    """The encoder reads a prefix of uniformly random length, the decoder writes the rest (Raffel et al. 2020).

    With 512 tokens, what Lester et al. 2021 adapted T5 1.1 with ("LM adaptation").
    """

    noise_density: float = 0.5
    """Mean share of the tokens that is to be written, at most 0.5: a prefix has from 1 - 2 x this share upwards."""


@dataclass(frozen=True)
class FullLM(TokenStream):
    """The decoder writes all of the text, the encoder reads an end of sequence only (Raffel et al. 2020)."""

    targets_length: int = 512
    """Decoder length in tokens. The end of sequence stands at ends of documents only, not at those of examples."""


@dataclass(frozen=True)
class TextInfilling(Denoising):
    """BART's objective: spans of Poisson lengths, 0 too, become one mask each; all text is written (Lewis et al. 2020).

    The mask is the first sentinel of the vocabulary, the same for all spans.
    """

    noise_density: float = 0.3
    """Share of the tokens that is masked."""
    mean_span_length: float = 3.0
    """Mean length of a masked span in tokens."""


@dataclass(frozen=True)
class UL2(Denoising):
    """UL2's mixture of denoisers: Regular, Sequential (prefix LM) and eXtreme ones, each told by a mode token that
    stands first in the inputs (Tay et al. 2022). All read examples of as many tokens as fit for each of them.
    """

    r_rate: float = 2.0
    """How often an R-denoiser is drawn, relative to the others; by default all seven denoisers are equally likely."""
    r_noise_densities: tuple[float, ...] = (0.15, 0.15)
    """Share of the tokens that each R-denoiser masks."""
    r_mean_span_lengths: tuple[float, ...] = (3.0, 8.0)
    """Mean length of a masked span of each R-denoiser, in tokens."""
    s_rate: float = 1.0
    """How often the S-denoiser is drawn."""
    s_noise_density: float = 0.25
    """Mean share of the tokens that the S-denoiser has written, at most 0.5."""
    x_rate: float = 4.0
    """How often an X-denoiser is drawn."""
    x_noise_densities: tuple[float, ...] = (0.5, 0.5, 0.15, 0.5)
    """Share of the tokens that each X-denoiser masks."""
    x_mean_span_lengths: tuple[float, ...] = (3.0, 8.0, 64.0, 64.0)
    """Mean length of a masked span of each X-denoiser, in tokens."""
    random_roll: bool = True
    """Whether masks are turned by a random number of tokens: else a single long span is always the end of the text."""
    modes: tuple[str, ...] = ()
    """Texts that tell R, S and X, encoded by the vocabulary, such as '[NLU]' '[S2S]' '[NLG]' of the released UL2; none:
    the last three sentinels, in this order, which then mask no span."""


@dataclass(frozen=True)
class Supervised:
    """Inputs and targets as they come, end of sequence appended to both."""

    inputs_length: int | None = None
    """Encoder length in tokens; unset: the longest input of the data."""
    targets_length: int | None = None
    """Decoder length in tokens; unset: the longest target of the data."""
    too_long: Literal["error", "trim"] = "error"
    """What to do with longer examples: stop and say how many there are, or cut at the right, keeping EOS."""


Objective = SpanCorruption | IidDenoising | PrefixLM | FullLM | TextInfilling | UL2 | Supervised


def writes_masks(objective: Objective) -> bool:
    """Whether a model that learnt it writes the text of masks, each after its sentinel, as `spanloom fill` wants it."""
    return isinstance(objective, SpanCorruption | IidDenoising)


def separator_of(objective: TokenStream) -> Separator:
    """What ends a document in the stream: what is set, or what suits how documents are joined."""
    if objective.separator is not None:
        return objective.separator
    apart = objective.concat_documents > 0 or not objective.merge
    return "none" if apart and not isinstance(objective, FullLM) else "eos"
