"""What a model fills into the gaps of held-out text as it trains: the same examples each time, to see it get better."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from spanloom.evaluation.fill import pieces_of
from spanloom.evaluation.writing import Request
from spanloom.model.placement import Placement
from spanloom.pipeline.dataset import Dataset
from spanloom.settings.generation import Generation
from spanloom.settings.objectives import Supervised
from spanloom.settings.run import Run
from spanloom.training.answers import Weights
from spanloom.vocabularies.vocabulary import Vocabulary

Pieces = list[tuple[str, str | None, bool]]
"""Text, guess and whether the vocabulary can write the text, as `spanloom.evaluation.fill.Piece` has them."""


@dataclass(frozen=True)
class Filling:
    """What is filled in, `run.eval.fills` examples of each task on text."""

    run: Run
    parts: Mapping[str, Dataset]
    vocabulary: Vocabulary
    place: Placement

    def of(self, params: Any) -> dict[str, list[Pieces]]:
        """Examples in pieces, by task; the model writes greedily."""
        settings, found = self.run.eval, dict[str, list[Pieces]]()
        if not settings.fills:
            return found
        weights = Weights(params, self.run, self.vocabulary, self.place)
        with jax.transfer_guard_host_to_device("allow"):
            for task in (*self.run.tasks, *settings.also):
                if task.name in self.parts and not isinstance(task.objective, Supervised):
                    found[task.name] = self._fill(weights, self.parts[task.name])
        return found

    def _fill(self, weights: Weights, part: Dataset) -> list[Pieces]:
        examples = [one for one in part.text_examples(self.run.eval.fills) if len(one.targets)]
        how = Generation(max_length=part.targets_length)
        written = weights.write([Request(one.inputs, how) for one in examples], len(examples))
        filled = (
            pieces_of(one.inputs, one.targets, outputs[0].tokens, self.vocabulary)
            for one, outputs in zip(examples, written, strict=True)
        )
        return [[(piece.text, piece.guess, piece.known) for piece in pieces] for pieces in filled]
