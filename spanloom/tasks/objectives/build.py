"""From the settings of an objective on text to the denoiser that works by them."""

from spanloom.settings.objectives import UL2, FullLM, IidDenoising, PrefixLM, SpanCorruption, TextInfilling, TokenStream
from spanloom.tasks import span_corruption
from spanloom.tasks.objectives import full_lm, iid_denoising, prefix_lm, text_infilling, ul2
from spanloom.tasks.objectives.denoiser import Denoiser
from spanloom.vocabularies.vocabulary import Vocabulary


def denoiser_of(objective: TokenStream, vocabulary: Vocabulary) -> Denoiser:
    """The objective at work; call it when a task is built.

    Raises ValueError, with the reason and the fix, where lengths, shares and sentinels do not go together.
    """
    match objective:
        case SpanCorruption():
            return span_corruption.denoiser(objective, vocabulary)
        case IidDenoising():
            return iid_denoising.denoiser(objective, vocabulary)
        case PrefixLM():
            return prefix_lm.denoiser(objective, vocabulary)
        case FullLM():
            return full_lm.denoiser(objective, vocabulary)
        case TextInfilling():
            return text_infilling.denoiser(objective, vocabulary)
        case UL2():
            return ul2.denoiser(objective, vocabulary)
    raise TypeError(f"{type(objective).__name__} makes no examples of text")
