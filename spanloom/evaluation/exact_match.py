"""Exact match: the share of examples whose greedily decoded text is the target's, character by character.

The target is compared as the vocabulary writes it (SentencePiece may normalise text). One with a piece that the
vocabulary lacks cannot be written at all: its unknown pieces read alike whatever they stand for, so it is never right.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.model.decoding import greedy
from spanloom.settings.model import Model
from spanloom.vocabularies.vocabulary import Ids, Vocabulary


@dataclass(frozen=True)
class Prediction:
    """One example as text."""

    inputs: str
    """As the model saw it, cut to its width where the settings say so."""
    target: str
    """Whole, also where training cut it."""
    prediction: str
    cut: bool = False
    """Whether the target, end of sequence included, is longer than what training and the model have room for."""
    unknown: bool = False
    """Whether the target holds what the vocabulary lacks, so that no model can write it."""
    number: int = 0
    """Of the example in its part."""

    @property
    def correct(self) -> bool:
        """Whether prediction and target are the same string, and one that the vocabulary can write."""
        return self.prediction == self.target and not self.unknown


def predictions(
    params: Any,
    model: Model,
    vocabulary: Vocabulary,
    batches: Iterable[Mapping[str, Any]],
    targets: Iterable[tuple[int, Ids]],
) -> Iterator[Prediction]:
    """What the model makes of each example of `batches` (fields as the pipeline makes them; filled-in rows left out).

    `targets` are their numbers and whole targets in the same order, without end of sequence: those of the batches may
    be trimmed (too_long = "trim"), and half an answer is not the answer. Rows without a target, whose examples were
    left out when they were read, are passed over. At most as many tokens are written as the batches' targets are wide,
    end of sequence included. Rows hold one example each, from their first column on (packed rows, which hold several,
    are for training only). One program for each shape of batch.
    """
    remaining = iter(targets)
    for batch in batches:
        weights_BxT = np.asarray(batch["decoder_loss_weights"])
        inputs_BxS, width = batch["encoder_input_tokens"], np.asarray(batch["decoder_target_tokens"]).shape[1]
        written_BxT = np.asarray(greedy(params, model, inputs_BxS, width, eos_id=vocabulary.eos_id).tokens)
        for row, (number, target) in zip(range(len(weights_BxT)), remaining, strict=False):
            if not weights_BxT[row].any():
                continue
            inputs = np.trim_zeros(np.asarray(inputs_BxS[row]), "b")
            asked, wanted, made = (vocabulary.decode(ids) for ids in (inputs, target, written_BxT[row]))
            unknown = vocabulary.unk_id in target
            yield Prediction(asked, wanted, made, cut=len(target) + 1 > width, unknown=unknown, number=number)
