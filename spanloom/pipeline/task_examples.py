"""What makes the examples of a task out of its stores."""

from collections.abc import Mapping

from spanloom.pipeline.examples import Examples, PairExamples, StreamExamples, Widths, widths_of
from spanloom.pipeline.row_encoder import RowEncoder
from spanloom.pipeline.row_examples import RowExamples, end_ids
from spanloom.pipeline.store import Store
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import Task, uses_rows
from spanloom.tasks.heldout import Split
from spanloom.vocabularies.vocabulary import Vocabulary


def examples_of(task: Task, stores: Mapping[Split, Store], vocabulary: Vocabulary) -> dict[Split, Examples]:
    """The examples of each part. Raises DataError where they do not fit the settings."""
    objective = task.objective
    if not isinstance(objective, Supervised):
        return {split: StreamExamples(store, objective, vocabulary) for split, store in stores.items()}
    ends = None
    if uses_rows(task):
        encoder = RowEncoder(task, vocabulary)
        eos = end_ids(encoder)
        ends = eos["inputs"], eos["targets"]
        if encoder.chain.read:
            asked = Widths(objective.inputs_length or 0, objective.targets_length or 0)
            return {split: RowExamples(store, task, asked, vocabulary) for split, store in stores.items()}
    widths = widths_of(stores, objective, ends)
    return {split: PairExamples(store, widths, vocabulary, ends) for split, store in stores.items()}
