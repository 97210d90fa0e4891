"""Exact match: the share of examples whose greedily decoded text is the target's, character by character."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.model.decoding import greedy
from spanloom.settings.model import Model
from spanloom.vocabularies.vocabulary import Vocabulary


@dataclass(frozen=True)
class Prediction:
    """One example as text."""

    inputs: str
    target: str
    prediction: str

    @property
    def correct(self) -> bool:
        """Whether prediction and target are the same string."""
        return self.prediction == self.target


def predictions(
    params: Any, model: Model, vocabulary: Vocabulary, batches: Iterable[Mapping[str, Any]]
) -> Iterable[Prediction]:
    """What the model makes of each example of `batches` (fields as the pipeline makes them; filled-in rows left out).

    At most as many tokens are written as the targets are wide. One program for each shape of batch.
    """
    for batch in batches:
        targets_BxT = np.asarray(batch["decoder_target_tokens"])
        real_B = np.asarray(batch["decoder_loss_weights"]).any(axis=1)
        inputs_BxS, width = batch["encoder_input_tokens"], targets_BxT.shape[1]
        written_BxT = np.asarray(greedy(params, model, inputs_BxS, width, eos_id=vocabulary.eos_id).tokens)
        for row in np.flatnonzero(real_B):
            inputs = np.trim_zeros(np.asarray(inputs_BxS[row]), "b")
            yield Prediction(*(vocabulary.decode(ids) for ids in (inputs, targets_BxT[row], written_BxT[row])))


def exact_match(
    params: Any, model: Model, vocabulary: Vocabulary, batches: Iterable[Mapping[str, Any]]
) -> tuple[float, list[Prediction]]:
    """The share of examples that are right, 0 to 1, and all predictions. Raises ValueError if there is no example."""
    made = list(predictions(params, model, vocabulary, batches))
    if not made:
        raise ValueError("there are no held-out examples to compare; keep some out of training")
    return sum(prediction.correct for prediction in made) / len(made), made
