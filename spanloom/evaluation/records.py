"""What a model makes of held-out examples: a record for each, of plain data, from which every number is computed.

The inputs are those that training has, end of sequence and cuts included: T0's tasks have none at the end. A record has

- `example`: its number; `left_out`, and nothing else, where a preprocessor leaves it out whenever it is read;
- `inputs`, `targets`: its text; `loss`, `tokens`: cross-entropy in nats over its target tokens, and how many they are;
- `text_loss`, `text_tokens`: the same over those that are neither sentinel nor end of sequence (tasks on text alone);
- `prediction`: what is written greedily; `unknown`, if the vocabulary lacks something in the target; `cut`, if that is
  longer than what is written at most;
- `choices`, `scores`, `lengths`, `correct`: each answer that may be right, its summed log-probability, end of sequence
  included, its tokens, and whether it is right; `weight`. A row that is one option (see `options_of`) has `idx`, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np

from spanloom.evaluation.exact_match import Prediction
from spanloom.evaluation.options import Option, options_of
from spanloom.evaluation.ranking import Scored
from spanloom.evaluation.scoring import Score
from spanloom.evaluation.task_metrics import example_of, takes_scores
from spanloom.evaluation.writing import Output, Request
from spanloom.pipeline.dataset import Dataset, TextExample
from spanloom.settings.generation import Generation
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import Task
from spanloom.tasks.feature_vocabularies import vocabularies_of
from spanloom.tasks.prompts.answers import CHOICES
from spanloom.vocabularies.vocabulary import Ids, Vocabulary

Record = dict[str, Any]
_Pair = tuple[tuple[int, ...], tuple[int, ...]]
_LOOKED_AT = 4  # examples
_BLOCK = 128  # examples at once, so that those of like lengths are computed together


class Answering(Protocol):
    """What a model is asked by; `spanloom.evaluation.loaded.LoadedModel` is one."""

    def score_ids(self, pairs: Sequence[tuple[Ids, Ids]], batch_size: int) -> list[Score]:
        """See `scoring.Scorer.score`."""

    def write(self, requests: Sequence[Request], batch_size: int) -> list[list[Output]]:
        """See `writing.Writer.write`."""


@dataclass(frozen=True)
class HeldoutTask:
    """A task, and how a model is asked about its held-out part."""

    task: Task
    heldout: Dataset
    vocabulary: Vocabulary
    """The checkpoint's."""
    writes: bool = True
    """Whether the model also writes, where the task has metrics of what is written (by default, exact match)."""
    batch_size: int = 32
    """Examples that are computed together, at most."""

    @property
    def of_targets(self) -> Vocabulary:
        """Whose ids targets are."""
        return vocabularies_of(self.task, self.vocabulary).get("targets", self.vocabulary)

    @property
    def decodes(self) -> bool:
        """Whether the model writes."""
        is_pairs, metrics = isinstance(self.task.objective, Supervised), self.task.metrics
        return self.writes and is_pairs and not (metrics and all(map(takes_scores, metrics)))

    @property
    def ranks(self) -> bool:
        """Whether examples have choices, as far as the first ones tell."""
        first = range(min(self.heldout.num_examples, _LOOKED_AT))
        return isinstance(self.task.objective, Supervised) and any(_has_options(self._example(one)) for one in first)

    def with_all_options(self, numbers: Sequence[int]) -> list[int]:
        """`numbers`, or, where rows are one option each, about as many: all options of some of the examples. The rows
        of an example follow one another.
        """
        option = next((number for number in numbers[:_LOOKED_AT] if _is_one_option(self._options(number))), None)
        if option is None or len(numbers) == self.heldout.num_examples:
            return list(numbers)
        found: dict[int, None] = {}
        for number in numbers[:: len(self._options_beside(option))]:
            if number not in found:
                found |= dict.fromkeys(self._options_beside(number))
        return list(found)

    def _options_beside(self, number: int) -> range:
        """The rows around `number` that are options of the same example."""
        first, end, example = number, number + 1, self._asked_of(number)
        while first and self._asked_of(first - 1) == example:
            first -= 1
        while end < self.heldout.num_examples and self._asked_of(end) == example:
            end += 1
        return range(first, end)

    def _asked_of(self, number: int) -> int | None:
        """The example that a row is an option of."""
        idx = self._example(number).get("idx")
        return int(idx[0]) if idx is not None and np.ndim(idx) == 1 else None

    def records(self, model: Answering, numbers: Iterable[int]) -> Iterator[list[Record]]:
        """Records of the examples of these numbers, in blocks. Raises RankingError for choices that make no sense."""
        remaining = iter(numbers)
        while block := list(islice(remaining, _BLOCK)):
            yield self._block(model, block)

    def _block(self, model: Answering, numbers: Sequence[int]) -> list[Record]:
        texts = self.heldout.heldout_examples(np.asarray(numbers))
        found: list[Record] = [{"example": number} for number in numbers]
        asked = []
        for record, text in zip(found, texts, strict=True):
            if len(text.targets):
                record |= self._texts(text)
                asked.append((record, text, self._options(record["example"])))
            else:
                record["left_out"] = True
        self._score(model, asked)
        if self.decodes:
            self._write(model, [(record, text) for record, text, options in asked if not _is_one_option(options)])
        return found

    def _texts(self, text: TextExample) -> Record:
        vocabularies = vocabularies_of(self.task, self.vocabulary)
        inputs = vocabularies.get("inputs", self.vocabulary).decode(text.inputs)
        record: Record = {"inputs": inputs, "targets": self.of_targets.decode(text.raw)}
        if bool(np.isin(self.of_targets.unk_id, text.raw)):
            record["unknown"] = True
        if isinstance(self.task.objective, Supervised) and len(text.raw) >= self.heldout.targets_length:
            record["cut"] = True
        return record

    def _options(self, number: int) -> list[Option]:
        if not isinstance(self.task.objective, Supervised) or not _has_options(example := self._example(number)):
            return []
        return options_of(example, number)

    def _example(self, number: int) -> Mapping[str, Any]:
        return example_of(self.heldout, Prediction("", "", "", number=number))

    def _score(self, model: Answering, asked: Sequence[tuple[Record, TextExample, list[Option]]]) -> None:
        """Adds losses and scores. Each pair is scored once: options that read alike, and the target among them, too."""
        eos_id = self.of_targets.eos_id
        pairs: list[list[_Pair]] = []
        for _, text, options in asked:
            inputs = tuple(text.inputs.tolist())
            targets = [tuple(text.targets.tolist())]
            for option in options:
                ids = text.raw if _is_one_option(options) else self.of_targets.encode(str(option.target))
                targets.append((*map(int, ids), eos_id))
            pairs.append([(inputs, target) for target in targets])
        distinct = list(dict.fromkeys(pair for one in pairs for pair in one))
        scores = dict(zip(distinct, model.score_ids(distinct, self.batch_size), strict=True))
        for (record, text, options), ours in zip(asked, pairs, strict=True):
            of_target, *of_options = (scores[pair] for pair in ours)
            record |= self._losses(text, of_target)
            if options:
                record |= _ranked(record["targets"], options, of_options)

    def _losses(self, text: TextExample, score: Score) -> Record:
        losses: Record = {"loss": -score.log_prob, "tokens": len(text.targets)}
        if not isinstance(self.task.objective, Supervised):
            marks = [self.vocabulary.eos_id, *self.vocabulary.sentinels]
            is_text = ~np.isin(text.targets, marks)
            each = np.asarray(score.token_log_probs, np.float64)
            losses |= {"text_loss": -float(each[is_text].sum()), "text_tokens": int(is_text.sum())}
        return losses

    def _write(self, model: Answering, asked: Sequence[tuple[Record, TextExample]]) -> None:
        settings = Generation(max_length=self.heldout.targets_length)
        written = model.write([Request(text.inputs, settings) for _, text in asked], self.batch_size)
        for (record, _), outputs in zip(asked, written, strict=True):
            record["prediction"] = self.of_targets.decode(outputs[0].tokens)


def predictions_in(records: Iterable[Record]) -> list[Prediction]:
    """What was written, as metrics of texts take it."""
    return [
        Prediction(
            one["inputs"],
            one["targets"],
            one["prediction"],
            unknown=bool(one.get("unknown")),
            number=one["example"],
        )
        for one in records
        if "prediction" in one
    ]


def scored_in(records: Iterable[Record]) -> list[Scored]:
    """The options with their scores."""
    found = []
    for one in records:
        number, first = one.get("idx", (one["example"], 0))
        count = 0 if "idx" in one else len(one.get("choices", ()))
        columns = [one.get(name, ()) for name in ("correct", "lengths", "scores")]
        for place, (correct, length, score) in enumerate(zip(*columns, strict=True), first):
            found.append(Scored(number, place, count, correct, one["weight"], length, score))
    return found


def _has_options(example: Mapping[str, Any]) -> bool:
    return CHOICES in example or np.ndim(example.get("idx", 0)) == 1


def _is_one_option(options: Sequence[Option]) -> bool:
    """Whether the row is an option itself, of which another row may be the right one."""
    return bool(options) and not options[0].options


def _ranked(target: str, options: Sequence[Option], scores: Sequence[Score]) -> Record:
    ranked: Record = {
        "choices": [target] if _is_one_option(options) else [str(option.target) for option in options],
        "scores": [float(np.float32(score.log_prob)) for score in scores],
        "lengths": [len(score.token_log_probs) for score in scores],
        "correct": [option.is_correct for option in options],
        "weight": options[0].weight,
    }
    if _is_one_option(options):
        ranked["idx"] = [options[0].example, options[0].option]
    return ranked
