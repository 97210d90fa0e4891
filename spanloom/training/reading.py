"""The data of a run as it begins or goes on: opened or built, checked against what it learnt from before, and said."""

from collections.abc import Collection, Mapping
from pathlib import Path

from spanloom.evaluation.task_metrics import try_metrics
from spanloom.pipeline.data import Data, open_data
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.watched import open_watched
from spanloom.settings.run import Run
from spanloom.training.facts import Facts
from spanloom.training.progress import Display
from spanloom.training.same_data import refuse_changed_text, vocabulary_for
from spanloom.training.say import say_data


def read_data(
    run: Run,
    directory: Path,
    checkpoint: Path | None,
    facts: Facts | None,
    display: Display,
    accepted: Collection[str] = (),
    workers: int = 1,
) -> tuple[Data, Mapping[str, Dataset]]:
    """The data of a run that goes on from `checkpoint`, if it has one, and all parts that are held out, by task.

    Raises ChangedDataError where the text is not what the run learnt from, unless that is `accepted`, and what reading
    it raises.
    """
    # A checkpoint needs nothing but itself: its vocabulary is used, not the file that this once came from.
    vocabulary = None
    if checkpoint and facts:
        vocabulary = vocabulary_for(checkpoint, facts, run, accepted)
        refuse_changed_text(checkpoint, facts, run, directory, accepted)
    data = open_data(
        run,
        directory,
        vocabulary=vocabulary,
        resumption=facts.resumption if facts else None,
        progress=display.building,
        workers=workers,
        warn=display.warn,
    )
    say_data(display, run, data)
    watched = open_watched(
        run, directory, data.vocabulary, progress=display.building, workers=workers, warn=display.warn
    )
    for one in data.tasks:
        try_metrics(one.task, one.heldout, data.vocabulary)
    return data, {**data.heldout, **watched}
