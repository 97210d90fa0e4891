"""What a model answers on held-out examples as it trains: which choice it ranks first, and what it writes."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from spanloom.evaluation.judged import RANK, NothingHeldOutError, judged
from spanloom.evaluation.options import RankingError
from spanloom.evaluation.records import HeldoutTask
from spanloom.evaluation.rows import Devices
from spanloom.evaluation.scoring import Score, Scorer
from spanloom.evaluation.task_metrics import MetricError
from spanloom.evaluation.writing import Output, Request, Writer
from spanloom.model.placement import Placement
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.store import Warn
from spanloom.settings.run import Run
from spanloom.vocabularies.vocabulary import Ids, Vocabulary


class Weights:
    """Weights as they stand at a step, to be asked."""

    def __init__(self, params: Any, run: Run, vocabulary: Vocabulary, place: Placement) -> None:
        model, devices = replace(run.model, dropout=0.0), Devices(place)
        self._scorer = Scorer(params, model, devices)
        self._writer = functools.cache(lambda: Writer(params, model, vocabulary.eos_id, devices))

    def score_ids(self, pairs: Sequence[tuple[Ids, Ids]], batch_size: int) -> list[Score]:
        """See `Scorer.score`."""
        return self._scorer.score(pairs, batch_size)

    def write(self, requests: Sequence[Request], batch_size: int) -> list[list[Output]]:
        """See `Writer.write`."""
        return self._writer().write(requests, batch_size)


@dataclass(frozen=True)
class Answers:
    """What is asked beside the losses, as `run.eval.answers` has it, of the examples that losses are of; where rows are
    one option each, of whole examples, about as many rows.
    """

    run: Run
    parts: Mapping[str, Dataset]
    vocabulary: Vocabulary
    place: Placement
    warn: Warn

    def of(self, params: Any) -> dict[str, dict[str, float]]:
        """The numbers of each task on pairs that has any, by its name; those of ranks as `accuracy` and so on, but
        where what is written has a number of that name.
        """
        settings = self.run.eval
        if settings.answers == "none":
            return {}
        weights, size = Weights(params, self.run, self.vocabulary, self.place), settings.batch_size or 1
        found = {}
        with jax.transfer_guard_host_to_device("allow"):
            for task in (*self.run.tasks, *settings.also):
                if task.name not in self.parts:
                    continue
                asked = HeldoutTask(task, self.parts[task.name], self.vocabulary, settings.answers == "all", size)
                if asked.decodes or asked.ranks:
                    found[task.name] = self._numbers(asked, weights)
        return {task: numbers for task, numbers in found.items() if numbers}

    def _numbers(self, asked: HeldoutTask, weights: Weights) -> dict[str, float]:
        batches = asked.heldout.eval_examples(asked.batch_size, self.run.eval.max_batches)
        try:
            numbers = asked.with_all_options([number for batch in batches for number in batch.tolist()])
            records = [record for block in asked.records(weights, numbers) for record in block]
            values = judged(asked.task, asked.heldout, records).numbers
        except (RankingError, MetricError, NothingHeldOutError) as error:  # no reason to end a training
            self.warn(f"not measured on what is held out of task {asked.task.name!r}: {error}")
            return {}
        plain = {name: value for name, value in values.items() if not name.startswith((RANK, "heldout_"))}
        ranks = {name.removeprefix(RANK): value for name, value in values.items() if name.startswith(RANK)}
        return {**plain, **{name if name not in plain else RANK + name: value for name, value in ranks.items()}}
