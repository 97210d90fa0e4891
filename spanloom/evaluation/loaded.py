"""A trained model at hand: text in, text or scores out. `spanloom.load` gives one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from spanloom.conversion.trained_model import TrainedModel
from spanloom.evaluation.arguments import check_batch_size, check_text, pairs_of, texts_of
from spanloom.evaluation.rows import BATCH, Devices
from spanloom.evaluation.scoring import Score, Scorer
from spanloom.evaluation.writing import Output, Request, Writer, settings_with
from spanloom.model.params import T5, declare
from spanloom.scale.mesh import make_layout, placement_of
from spanloom.settings.generation import Generation, check_generation
from spanloom.settings.mesh import Mesh
from spanloom.settings.model import Model
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Ids, Int32Array, Vocabulary


@dataclass(frozen=True)
class Text:
    """One output as text."""

    text: str
    """Without end of sequence; as the vocabulary decodes, sentinels left out."""
    tokens: Int32Array
    """Its ids, the end of sequence included."""
    score: float
    """By which outputs are ordered, see `spanloom.evaluation.writing.Output`."""
    log_prob: float
    """Summed log-probability of the tokens, those of a prefix left out."""


@dataclass(frozen=True)
class Generated:
    """What was written for one input."""

    outputs: tuple[Text, ...]
    """Best first, or as they were drawn; none where a search found none."""

    @property
    def text(self) -> str:
        """The first output's text."""
        return self.outputs[0].text if self.outputs else ""


class LoadedModel:
    """A model and its vocabulary on the devices of this process, or with a mesh on those of all that are connected.

    The same inputs give the same outputs whatever else is in the list, but for the last bits of probabilities, which
    depend on the shape of a batch.
    """

    def __init__(self, source: TrainedModel, mesh: Mesh | None = None, available: int | None = None) -> None:
        """`mesh`: how weights and batches are divided among devices; None: all on the first one.

        `available`: bytes of a device, beyond which nothing is written; None: unknown.
        """
        self.model: Model = replace(source.model, dropout=0.0)
        """Architecture."""
        self.vocabulary: Vocabulary = build(source.vocabulary)
        """Text to ids and back."""
        self.origin: str = source.lineage.origin
        """Where it was read from."""
        self.available: int | None = available
        """Bytes of a device; None: nobody knows."""
        layout = None if mesh is None else make_layout(mesh)
        specs = declare(self.model)
        if layout is None:
            self.params: T5 = jax.device_put(source.params)
        else:
            self.params = layout.put(source.params, layout.params(specs))
        self._devices = Devices() if layout is None else Devices(placement_of(layout))
        self._writer: Writer | None = None
        self._scorer = Scorer(self.params, self.model, self._devices)

    def encode(self, text: str, *, eos: bool = True) -> Int32Array:
        """The ids of a text, end of sequence included unless told otherwise."""
        ids = self.vocabulary.encode(text)
        return np.append(ids, np.int32(self.vocabulary.eos_id)).astype(np.int32) if eos else ids

    def generate(
        self,
        inputs: str | Sequence[str],
        settings: Generation | None = None,
        *,
        prefix: str = "",
        choices: Sequence[str] = (),
        inputs_eos: bool = True,
        batch_size: int = BATCH,
        **changes: Any,
    ) -> list[Generated]:
        """What the model writes for each of `inputs`.

        Settings are those of `Generation`, whole or one by one: `generate(texts, beams=4, alpha=1.0)`. Every output
        begins with `prefix`, and is one of `choices` after it if there are any. Input i draws with seed + i.
        `inputs_eos`: whether an end of sequence follows the inputs, as in training (T0's and mT0's tasks have none).
        Raises ValueError for arguments and settings that make no sense.
        """
        texts = texts_of([inputs] if isinstance(inputs, str) else inputs, "inputs", "input")
        check_text(prefix, "prefix")
        choices = texts_of(choices, "choices", "choice")
        check_batch_size(batch_size)
        if not isinstance(settings, Generation | None):
            raise ValueError(f"settings is {settings!r:.40}; it must be a Generation")
        chosen = settings_with(settings or Generation(), changes)
        check_generation(chosen)  # before its seed is counted on from
        begin, ends = self.vocabulary.encode(prefix), [self.vocabulary.encode(choice) for choice in choices]
        requests = [
            Request(
                self.encode(text, eos=inputs_eos),
                replace(chosen, seed=(chosen.seed + number) % 2**32),
                begin,
                ends,
            )
            for number, text in enumerate(texts)
        ]
        return [self.as_text(outputs) for outputs in self.write(requests, batch_size)]

    def write(self, requests: Sequence[Request], batch_size: int = BATCH) -> list[list[Output]]:
        """The outputs of requests in ids, each with settings of its own, see `Writer.write`."""
        if self._writer is None:
            self._writer = Writer(self.params, self.model, self.vocabulary.eos_id, self._devices, self.available)
        return self._writer.write(requests, batch_size)

    def as_text(self, outputs: Sequence[Output]) -> Generated:
        """Outputs of one request as text."""
        decode = self.vocabulary.decode
        return Generated(tuple(Text(decode(one.tokens), one.tokens, one.score, one.log_prob) for one in outputs))

    def score(
        self, pairs: Sequence[tuple[str, str]], *, inputs_eos: bool = True, batch_size: int = BATCH
    ) -> list[Score]:
        """How likely the model finds each target after its input: `log_prob` (end of sequence included), `normalized`.

        Pairs with the same input are cheapest side by side: it is encoded once for them. Raises ValueError for what are
        no pairs of strings.
        """
        pairs = pairs_of(pairs, '("question", "yes")')
        for number, (inputs, target) in enumerate(pairs, 1):
            check_text(inputs, f"pair {number}: the input")
            check_text(target, f"pair {number}: the target")
        ids = [(self.encode(inputs, eos=inputs_eos), self.encode(target)) for inputs, target in pairs]
        return self.score_ids(ids, batch_size)

    def score_ids(self, pairs: Sequence[tuple[Ids, Ids]], batch_size: int = BATCH) -> list[Score]:
        """The same of encoder tokens and target tokens, see `Scorer.score`."""
        return self._scorer.score(pairs, batch_size)
